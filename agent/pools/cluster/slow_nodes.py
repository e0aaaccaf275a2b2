"""Tell by the speed of runs whether a node is slower than the others, and try it again before it gets work.

Attempt 0 is the measure: every node has trained it. An edit may be slower by itself, so a single run of one tells
nothing. Several in a row that are slow, while those of other nodes are not, are a reason to try attempt 0 there.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.experiment import Run
from agent.pools.cluster.slots import node_of
from agent.runs.jobs import Measure

IN_A_ROW = 3  # runs of edits that are looked at together
SLOW = 0.10  # of the others' speed: runs that lose more train too few steps to be compared
TRIAL_SEED = 999_983  # of no run that counts
MOST_SPEEDS = 400
MOST_BLAMED = 2  # nodes, for runs of one edit, that then trained attempt 0 as fast as the others


@dataclass(frozen=True, slots=True)
class NodeSpeed:
    """Hold the speed of one run."""

    node: str
    attempt: int
    steps_s: float  # runs of one attempt compare by it
    tokens_s: float  # those of different ones, as long as edits change a step in the same way everywhere


def speed_on(node: str, attempt: int, run: Run) -> NodeSpeed | None:
    """Return the speed of a finished run; None where its script does not count steps and tokens."""
    if run.steps_s is None or run.tokens_s is None:
        return None
    return NodeSpeed(node, attempt, run.steps_s, run.tokens_s)


def slowness_of(own: NodeSpeed, known: Iterable[NodeSpeed]) -> float | None:
    """Return by which share a run is slower than those of the same attempt on other nodes; None without such runs."""
    others = [one.steps_s for one in known if one.attempt == own.attempt and one.node != own.node]
    return 1 - own.steps_s / statistics.median(others) if others else None


def seems_slow(node: str, known: Sequence[NodeSpeed]) -> bool:
    """Return whether the last edits that a node has trained were slow, measured by those of the other nodes."""
    edits = [one for one in known if one.attempt]
    own = [one.tokens_s for one in edits if one.node == node][-IN_A_ROW:]
    others = [one.tokens_s for one in edits if one.node != node][-4 * IN_A_ROW :]
    return min(len(own), len(others)) >= IN_A_ROW and max(own) < (1 - SLOW) * statistics.median(others)


class SlowNodes:
    """Remember the speeds of a night's runs, and the nodes that have to train attempt 0 before they get work."""

    def __init__(self, first: Iterable[Run]) -> None:
        self._known = [one for run in first if (one := speed_on(node_of(run.worker), 0, run)) is not None]
        self.trials: dict[str, Measure] = {}  # of attempt 0, by the worker that is to make it
        self._blamed: Counter[int] = Counter()  # how often nodes were, by the attempt whose runs were slow there
        self._by: dict[str, int] = {}  # that attempt, by the worker whose trial has not ended yet

    def note_run(self, worker: str, job: Measure, run: object) -> str | None:
        """Note the speed of a run; if its node is slow, plan a trial there in place of that, and return a sentence."""
        node = node_of(worker)
        own = speed_on(node, job.attempt, run) if isinstance(run, Run) else None
        if own is None or (job.attempt and self._blamed[job.attempt] >= MOST_BLAMED):
            return None  # slow on several nodes, it is so by itself, or only says so: a script counts its own steps
        lost = slowness_of(own, self._known)
        if lost is not None and lost > SLOW:
            why = f"it trains #{job.attempt} {lost:.0%} slower than others"
        elif seems_slow(node, [*self._known, own]):
            why = f"its last {IN_A_ROW} runs were more than {SLOW:.0%} slower than those of others"
        else:
            self._known = [*self._known, own][-MOST_SPEEDS:]
            return None
        self._blamed[job.attempt] += 1
        self._by[worker] = job.attempt
        first = job.machine
        self.trials[worker] = Measure(
            attempt=0, script=first.script, seed=TRIAL_SEED, allowance_s=first.allowance_s, machine=first
        )
        return f"node {node} gets no work until attempt 0 trains well there: {why}"

    def end_trial(self, worker: str, run: object) -> bool:
        """Return whether a trial was as fast as attempt 0 elsewhere; if so, forget the node's earlier speeds."""
        node = node_of(worker)
        own = speed_on(node, 0, run) if isinstance(run, Run) else None
        lost = slowness_of(own, self._known) if own is not None else None
        if lost is not None and lost > SLOW and worker in self._by:
            self._blamed[self._by.pop(worker)] -= 1  # with good reason
        if own is None or (lost is not None and lost > SLOW):
            return False
        del self.trials[worker]
        self._by.pop(worker, None)
        self._known = [one for one in self._known if one.attempt == 0 or one.node != node]
        return True
