"""Write the facts about a night's best script as lines for a terminal."""

from collections.abc import Iterator

from rich.text import Text

from agent.invocation import typed
from agent.model.best_script import BestScript
from agent.model.card import interval, score_words
from agent.model.weights import KeptWeights
from agent.view.terminal import fact_lines

COMMANDS = {"measure it", "make them", "fetch it", "take it", "take them"}  # which are copied, and so not wrapped


def best_lines(
    best: BestScript, weights: KeptWeights | None, width: int | None = None, *, is_ref_here: bool, can_go_on: bool
) -> list[Text]:
    """Return what the script is, how good, and how to take it; width: of a terminal, None to wrap nothing.

    can_go_on: the night's journal is here, too.
    """
    facts = [*_measured(best, can_go_on=can_go_on), *_places(best, weights, is_ref_here=is_ref_here)]
    return [line for name, value in facts for line in fact_lines(name, value, None if name in COMMANDS else width)]


def _measured(best: BestScript, *, can_go_on: bool) -> Iterator[tuple[str, str]]:
    attempt, tag, dawn = best.attempt, best.facts.tag, best.dawn
    yield "best", f"#{attempt.number} of night {tag}: {attempt.title}"
    if attempt.words is not None:
        yield "decision", attempt.words
    if best.score is not None:
        yield "val_bpb", score_words(best.score)
    if best.gain is not None:
        yield "gain", f"{interval(best.gain)} over #0, by the night's own scores"
    if dawn is not None and dawn.honest is not None:
        whose = "" if dawn.champion == attempt.number else f", of #{dawn.champion}"
        yield "honest gain", f"{interval(dawn.honest)}, on fresh seeds{whose}"
    elif attempt.number:
        yield "honest gain", "not measured on fresh seeds yet"
        if can_go_on:
            yield "measure it", typed("confirm", tag)


def _places(best: BestScript, weights: KeptWeights | None, *, is_ref_here: bool) -> Iterator[tuple[str, str]]:
    attempt, tag = best.attempt, best.facts.tag
    yield "commit", attempt.commit or "not made yet"
    yield "ref", best.ref
    if best.branch is not None:
        yield "branch", best.branch
    if is_ref_here:
        yield "take it", typed("take", f"{tag}:best")
    else:
        yield "fetch it", f"git fetch REMOTE {best.ref}:{best.ref}"
    if weights is None:
        yield "weights", "none here"
        yield "make them", typed("replay", f"{tag}:{attempt.number}")
    else:
        yield "weights", str(weights.path)
        yield "take them", typed("best", tag, "--weights", "DIR")
