"""Search over the dials: sensible steps, the same ones every time, never one twice."""

import math
from dataclasses import replace

import pytest
from judged import scored_attempt
from samples import NIGHT

from agent.errors import Exhausted
from agent.experiment import Attempt, Decision, Ending, Kind, Noise, Proposal, Status, best_of
from agent.proposers.proposer import Briefing, Refusal
from agent.proposers.search import Search
from agent.records.record import Record
from agent.script.dials import fingerprint, read_dials

SCRIPT = """\
LR = 0.04  # [0.005, 0.2] log
DECAY = by_device(cpu=0.2, metal=0.1, cuda=0.1)  # [0.0, 0.6]
DEPTH = 4  # {2, 4, 6, 8}
HEADS = 2  # [1, 8]
PATTERN = "SL"  # {"L", "SL", "SSSL"}
FIXED = 3
"""


def attempt(number: int, script: str, bpb: float | None, *, keep: bool = False) -> Attempt:
    status = Status.CRASH if bpb is None else Status.KEEP if keep else Status.DISCARD
    return scored_attempt(number, *(() if bpb is None else (bpb,)), status=status, script=script)


FIRST = attempt(0, SCRIPT, 1.0, keep=True)


def brief(*history: Attempt) -> Briefing:
    best = best_of(history)
    assert best is not None
    return Briefing(NIGHT, history, best)


def proposed(briefing: Briefing, seed: int = 0) -> Proposal:
    return Search(seed).proposals(briefing)[0]


def night(bpb_of, count: int, seed: int = 0, script: str = SCRIPT) -> list[Attempt]:
    history = [attempt(0, script, bpb_of(values(script)), keep=True)]
    best = history[0].val_bpb
    for number in range(1, count + 1):
        edited = proposed(brief(*history), seed).script
        bpb = bpb_of(values(edited))
        history.append(attempt(number, edited, bpb, keep=bpb is not None and bpb < best))
        best = min(best, bpb if bpb is not None else best)
    return history


def values(script: str) -> dict[str, float]:
    return {dial.name: dial.value for dial in read_dials(script, "cpu")}


def bowl(dials: dict[str, float]) -> float:
    return 1 + 0.02 * math.log(dials["LR"] / 0.02) ** 2 + (dials["DECAY"] - 0.1) ** 2 + 0.01 * abs(dials["DEPTH"] - 8)


def rates(briefing: Briefing, count: int = 10) -> list[float]:
    """Return the learning rates that searches with different seeds propose."""
    return [values(Search(seed).proposals(briefing)[0].script)["LR"] for seed in range(count)]


def test_proposals_turn_dials_of_the_best_script_within_their_ranges_and_none_comes_twice():
    history = night(bowl, 40)
    for attempt in history[1:]:
        dials = values(attempt.proposal.script)
        assert 0.005 <= dials["LR"] <= 0.2
        assert 0.0 <= dials["DECAY"] <= 0.6
        assert (dials["DEPTH"] in (2, 4, 6, 8), dials["HEADS"] in range(1, 9), dials["FIXED"]) == (True, True, 3)
    assert len({fingerprint(attempt.proposal.script) for attempt in history}) == len(history)
    assert min(attempt.val_bpb for attempt in history) < 1 + 0.3 * (history[0].val_bpb - 1)


def test_crashes_are_avoided():
    history = night(lambda dials: None if dials["DEPTH"] > 4 else bowl(dials), 30)
    assert sum(attempt.val_bpb is None for attempt in history) <= 5


@pytest.mark.parametrize("ends_early", [False, True])
def test_what_was_bad_one_way_is_tried_the_other_way(ends_early):
    """A run that was ended early counts with its forecast; without it, the search would go there again."""
    history = [FIRST]
    for number, rate in enumerate(("0.05", "0.07", "0.1"), 1):
        worse = attempt(number, SCRIPT.replace("LR = 0.04", f"LR = {rate}"), 1.0 + 0.1 * number)
        if ends_early:
            runs = (replace(worse.runs[0], ending=Ending.HOPELESS, score=None),)
            stopped = Decision(Kind.STOPPED_EARLY, "stopped early", gain_bpb=-0.1 * number)
            worse = replace(worse, parent=0, runs=runs, decisions=(stopped,))
        history.append(worse)
    assert_lower(rates(brief(*history)))


def assert_lower(rates: list[float]) -> None:
    """Check that no rate is above the best script's 0.04, and most are below."""
    assert max(rates) <= 0.04
    assert sum(rate < 0.04 for rate in rates) >= 0.8 * len(rates)


def test_an_earlier_night_teaches_by_its_differences_whatever_its_level():
    lower = SCRIPT.replace("LR = 0.04", "LR = 0.02")
    worse = [SCRIPT.replace("cpu=0.2", f"cpu=0.{digit}") for digit in (1, 3, 4)]
    night = [attempt(0, SCRIPT, 3.0, keep=True), attempt(1, lower, 2.9, keep=True)]
    night += [attempt(number, script, 3.05) for number, script in enumerate(worse, 2)]
    earlier = Record(replace(NIGHT, tag="before"), tuple(night), noise=Noise(None, 3, None))
    assert_lower(rates(replace(brief(FIRST), past=[earlier]), 6))


@pytest.mark.parametrize("far", [1e7, 1e9, 1e12, -1e15])
def test_a_dial_that_somebody_set_far_beyond_its_range_does_not_end_the_search(far):
    tried = [attempt(at, SCRIPT.replace("cpu=0.2", f"cpu={far * at!r}"), 1.0 + at / 10) for at in range(1, 5)]
    assert proposed(brief(FIRST, *tried)).script != SCRIPT


def test_a_title_names_three_turns_and_the_hypothesis_all():
    script = "".join(f"DIAL_{at} = 0.1  # [0.01, 1.0] log\n" for at in range(8))
    turned = [proposed(brief(attempt(0, script, 1.0, keep=True)), seed) for seed in range(20)]
    counts = {proposal.hypothesis.count("DIAL") for proposal in turned}
    assert max(counts) > 3
    for proposal in turned:
        more = proposal.hypothesis.count("DIAL") - 3
        assert proposal.title.count(" → ") == min(3, 3 + more)
        assert proposal.title.endswith(f" and {more} more") == (more > 0)


def test_what_was_refused_or_is_in_flight_is_not_proposed_again():
    first = proposed(brief(FIRST))
    refused = proposed(replace(brief(FIRST), refused=(Refusal(first, "no"),)))
    waiting = replace(attempt(1, first.script, None), runs=(), decisions=(), settled=False)
    assert fingerprint(refused.script) != fingerprint(first.script)
    assert proposed(brief(FIRST, waiting)).script != first.script


def test_small_spaces_are_tried_out():
    history = night(lambda dials: 1.0, 3, script="DEPTH = 2  # {2, 4, 6, 8}\n")
    with pytest.raises(Exhausted, match="no untried setting of 1 dials"):
        proposed(brief(*history))
