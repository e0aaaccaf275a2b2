"""Write the facts about a night's best script as lines for a terminal."""

from collections.abc import Iterator

from rich.text import Text

from agent.invocation import typed
from agent.model.best_script import BestScript
from agent.model.card import estimate, interval
from agent.model.weights import KeptWeights
from agent.view.terminal import fact_lines


def best_lines(best: BestScript, weights: KeptWeights | None, width: int | None) -> list[Text]:
    """Return what the script is, how good, and how to take it; width: of a terminal, None to wrap nothing."""
    return [line for name, value in _facts(best, weights) for line in fact_lines(name, value, width)]


def _facts(best: BestScript, weights: KeptWeights | None) -> Iterator[tuple[str, str]]:
    attempt, tag, found = best.attempt, best.night.tag, best.findings
    yield "best", f"#{attempt.number} of night {tag}: {attempt.proposal.title}"
    if attempt.decision is not None:
        yield "decision", attempt.decision.words
    if best.score is not None:
        seeds = len(attempt.scores_bpb)
        yield "val_bpb", f"{estimate(best.score)}, mean of {seeds} seed{'s' if seeds != 1 else ''}"
    if best.gain is not None:
        yield "gain", f"{estimate(best.gain)} over #0, by the night's own scores"
    if found is not None and found.honest is not None:
        yield "honest gain", f"{interval(found.honest)}, of #{found.champion} on fresh seeds"
    elif attempt.number:
        yield "honest gain", f"not measured: {typed('confirm', '--tag', tag)}"
    yield "commit", attempt.commit or "not made yet"
    yield "ref", best.ref
    if best.branch is not None:
        yield "branch", best.branch
    yield "check out", f"git checkout {best.ref} -- {best.night.script}"
    if weights is None:
        yield "weights", f"gone; make them again with: {typed('replay', str(attempt.number), '--tag', tag)}"
    else:
        yield "weights", str(weights.path)
        yield "take it", typed("best", "--tag", tag, "--weights", "DIR")
