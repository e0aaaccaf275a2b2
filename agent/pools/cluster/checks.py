"""Decide whether a node can take part in a night: pure functions of its facts."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from agent.experiment import Audit, DryRun, Night, Run
from agent.invocation import typed
from agent.pools.cluster.content import is_inside
from agent.pools.cluster.messages import NodeDevice, NodeJoined, Returned, Versions
from agent.pools.cluster.slots import FAILURES_IN_A_ROW
from agent.runs.fixed import protocol
from agent.runs.jobs import AuditRun, Job, Measure, Trial

RESULTS = {Trial: DryRun, Measure: Run, AuditRun: Audit}


def unfit(joined: NodeJoined, own: Versions) -> str | None:
    """Return why a node can take part in no night of this driver; None if it can."""
    if joined.why is not None:
        return f"node {joined.name} is not used: {joined.why}"
    for name, theirs, ours in (
        ("Python", joined.versions and joined.versions.python, own.python),
        ("MLX", joined.versions and joined.versions.mlx, own.mlx),
    ):
        if theirs != ours:
            return f"node {joined.name} is not used: it has {name} {theirs or 'not at all'}, and here it is {ours}"
    return None


def different(joined: NodeJoined, night: Night) -> str | None:
    """Return why scores of a node would not compare with those of a night; None if they would."""
    device = joined.device
    assert device is not None
    if device.device != night.device:
        return (
            f"node {joined.name} is not used: it has {device.device}, and night {night.tag} runs on {night.device}, so "
            f"scores would not compare"
        )
    now = protocol(asdict(device), night.budget_s)
    if now != night.protocol:
        return (
            f"node {joined.name} is not used: its corpus and settings give protocol {now}, and night {night.tag} has "
            f"{night.protocol}, so scores would not compare"
        )
    return None


def unusable(job: Job, returned: Returned) -> str | None:
    """Return why what a node has sent cannot be the result of this job; None if it can, and where there is none."""
    result, sent = returned.result, returned.files
    if not all(name.startswith("runs/") and is_inside(name) for name in sent):
        return "it sent a file that no job has"
    if result is None:
        return None
    if not isinstance(result, RESULTS[type(job)]):
        return f"it sent a {type(result).__name__} in answer to another job"
    if isinstance(job, Measure) and isinstance(result, Run):
        if result.seed != job.seed:
            return f"it sent a run with seed {result.seed} for one with seed {job.seed}"
        scores = [score.val_bpb for score in (result.score, result.holdout) if score and score.val_bpb is not None]
        losses = [content for name, content in sent.items() if name.endswith(".f32") and content]
        if not all(map(math.isfinite, scores)) or len(losses) < len(scores):
            return "it sent a score that is no number, or none of the losses that it is of"
    return None


def given_up(node: str, why: str, tag: str) -> str:
    """Return how a night ends all whose nodes have failed as often as one machine may, the last time this one."""
    return (
        f"no node of the Ray cluster does its work: node {node} failed {FAILURES_IN_A_ROW} times in a row or more, now "
        f"with: {why}; repair that and go on with: {typed('run', '--tag', tag)} (what was lost is done again)"
    )


def usual(devices: Sequence[NodeDevice], wanted: str | None = None) -> NodeDevice | None:
    """Return the device that a night runs on: the wanted one if a node has it, else the one that most nodes have.

    A node without a GPU among nodes with GPUs is left out.
    """
    if not devices:
        return None
    gpus = [device for device in devices if device.device_kind != "cpu"]
    most = Counter(device.device for device in gpus or devices).most_common(1)[0][0]
    name = wanted if wanted in {device.device for device in devices} else most
    return next(device for device in devices if device.device == name)


def most_each(nodes: Sequence[NodeJoined], workers: int) -> int:
    """Return the most cores that each of so many workers can have, all of them as many; at least one."""
    most = max(node.cpus for node in nodes)
    return next((each for each in range(most, 1, -1) if sum(node.cpus // each for node in nodes) >= workers), 1)
