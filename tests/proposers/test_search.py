"""Search over the dials: sensible steps, the same ones every time, never one twice."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from judged import decided
from samples import NIGHT

from agent.errors import Exhausted, ScriptError
from agent.experiment import Attempt, Decision, Ending, Kind, Noise, Proposal, Run, Score, Status, incumbent
from agent.proposers.briefing import Briefing, Refusal
from agent.proposers.search.curves import Curves
from agent.proposers.search.evidence import MOST, Evidence, evidence_of
from agent.proposers.search.search import RADIUS, Search, edge_risk
from agent.proposers.search.space import MIN_STEP, Axis
from agent.records.record import Outline, Record
from agent.script.dials import fingerprint, read_dials, searched

SCRIPT = """\
LR = 0.04  # [0.005, 0.2] log
DECAY = by_device(cpu=0.2, metal=0.1, cuda=0.1)  # [0.0, 0.6]
DEPTH = 4  # {2, 4, 6, 8}
HEADS = 2  # [1, 8]
PATTERN = "SL"  # {"L", "SL", "SSSL"}
FIXED = 3
"""
AXES = [Axis.of(dial) for dial in searched(SCRIPT, "cpu")]


def attempt(number: int, script: str, bpb: float | None, *, keep: bool = False) -> Attempt:
    status = Status.CRASH if bpb is None else Status.KEEP if keep else Status.DISCARD
    run = Run(0, Ending.FINISHED, 0, 1.0, None, "", Score(bpb, 1.0, None))
    return Attempt(number, None, Proposal(script, "", "", ""), "", "c", (run,), decided(status, ""), True)


FIRST = attempt(0, SCRIPT, 1.0, keep=True)


def brief(*history: Attempt) -> Briefing:
    best = incumbent(history)
    assert best is not None
    return Briefing(NIGHT, history, best)


def proposed(briefing: Briefing, seed: int = 0) -> Proposal:
    return Search("cpu", seed).ideas(briefing)[0]


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


@cache
def in_the_bowl() -> list[Attempt]:
    """Return a night of 40 attempts, for all tests; a shorter one is its beginning."""
    return night(bowl, 40)


def rates(briefing: Briefing, count: int = 10, **options) -> list[float]:
    """Return the learning rates that searches with different seeds propose."""
    return [values(Search("cpu", seed, **options).ideas(briefing)[0].script)["LR"] for seed in range(count)]


def test_proposals_turn_dials_of_the_incumbent_within_their_ranges_and_none_comes_twice():
    history = in_the_bowl()
    for number, one in enumerate(history[1:], 1):
        dials = values(one.proposal.script)
        assert 0.005 <= dials["LR"] <= 0.2, number
        assert 0.0 <= dials["DECAY"] <= 0.6
        assert (dials["DEPTH"] in (2, 4, 6, 8), dials["HEADS"] in range(1, 9), dials["FIXED"]) == (True, True, 3)
    scripts = [fingerprint(one.proposal.script) for one in history]
    assert len(set(scripts)) == len(scripts)
    assert min(one.val_bpb for one in history) < 1 + 0.3 * (history[0].val_bpb - 1)


def test_a_first_turn_is_no_leap_and_none_is_too_small_to_be_seen():
    before = values(SCRIPT)
    for seed in range(40):
        after = values(proposed(brief(FIRST), seed).script)
        step = abs(math.log(after["LR"] / before["LR"])) / math.log(0.2 / 0.005)
        assert step == 0 or MIN_STEP * 0.99 <= step <= RADIUS * 1.001
        assert abs(after["DECAY"] - before["DECAY"]) <= RADIUS * 0.6 * 1.001
        assert after["DEPTH"] in (2, 4, 6)
        assert abs(after["HEADS"] - before["HEADS"]) <= 2


def test_the_same_seed_and_history_give_the_same_night():
    assert [one.proposal.script for one in night(bowl, 8)] == [one.proposal.script for one in in_the_bowl()[:9]]


def test_crashes_are_avoided():
    history = night(lambda dials: None if dials["DEPTH"] > 4 else bowl(dials), 30)
    assert sum(one.val_bpb is None for one in history) <= 5


@pytest.mark.parametrize("ends_early", [False, True])
def test_what_was_bad_one_way_is_tried_the_other_way(ends_early):
    """A run that was ended early counts with its forecast; without it, the search would go there again."""
    history = [FIRST]
    for number, rate in enumerate(("0.05", "0.07", "0.1"), 1):
        one = attempt(number, SCRIPT.replace("LR = 0.04", f"LR = {rate}"), None if ends_early else 1.0 + 0.1 * number)
        if ends_early:
            runs = (replace(one.runs[0], ending=Ending.HOPELESS, score=None),)
            stopped = Decision(Kind.STOPPED_EARLY, "stopped early", gain_bpb=-0.1 * number)
            one = replace(one, parent=0, runs=runs, decision=stopped)
        history.append(one)
    found = rates(brief(*history))
    assert all(rate <= 0.04 for rate in found)
    assert sum(rate < 0.04 for rate in found) >= 8


def past(night: list[Attempt], protocol: str = NIGHT.protocol, sigma_bpb: float | None = None) -> Record:
    outlines = tuple(Outline.of(one.proposal.script, "cpu") for one in night)
    noise = Noise(sigma_bpb, 3, sigma_bpb)
    return Record(replace(NIGHT, tag="before", protocol=protocol), tuple(night), noise=noise, outlines=outlines)


def taught(level: float, much: float = 0.1) -> list[Attempt]:
    lower = SCRIPT.replace("LR = 0.04", "LR = 0.02")
    worse = [SCRIPT.replace("cpu=0.2", f"cpu=0.{i}") for i in (1, 3, 4)]
    night = [attempt(0, SCRIPT, level, keep=True), attempt(1, lower, level - much, keep=True)]
    return night + [attempt(2 + i, script, level + much / 2) for i, script in enumerate(worse)]


def test_earlier_nights_teach_by_their_differences_in_units_of_their_noise_as_far_as_they_are_alike():
    found = rates(brief(FIRST), 6, earlier=[past(taught(3.0))])
    assert sum(rate < 0.04 for rate in found) >= 5
    assert max(found) <= 0.04
    tonight = replace(brief(FIRST), noise=Noise(0.01, 5, 0.03))
    other = evidence_of(AXES, tonight, "cpu", [past(taught(3.0, 0.5), "another", sigma_bpb=0.05)])
    assert other[0].runs == 0.5
    assert other[0].bpb - other[1].bpb == pytest.approx(0.1), "ten of its sigma are ten of tonight's"
    elsewhere = replace(past(taught(3.0)), night=replace(NIGHT, device_kind="cuda"))
    assert len(evidence_of(AXES, tonight, "cpu", [elsewhere])) == 1


def test_the_latest_of_a_long_night_is_read_and_then_the_most_alike_of_earlier_ones():
    long = [FIRST, *(attempt(k, SCRIPT, 1.0 + k) for k in range(1, 600))]
    alike, other = past(taught(3.0)), past(long, "another")
    found = evidence_of(AXES, brief(FIRST), "cpu", [replace(alike, night=replace(NIGHT, tag="alike")), other])
    assert len(found) == MOST
    assert [one.group.split()[0] for one in found[-6:-1]] == ["alike"] * 5
    assert found[-7].bpb == 600
    late = evidence_of(AXES, brief(*long), "cpu", [alike])
    assert [one.bpb for one in late] == [1.0 + k for k in range(600 - MOST, 600)]


def test_edited_code_is_a_group_of_its_own_and_its_crashes_and_other_dials_say_nothing():
    edited, others = SCRIPT + "x = 1\n", "LR = 'high'\nDEPTH = 5\n"
    history = [FIRST, attempt(1, SCRIPT.replace("0.04", "0.02"), 0.99), attempt(2, edited, 0.5, keep=True)]
    history += [attempt(3, edited.replace("0.04", "0.1"), 0.52), attempt(4, others, 1.1)]
    history += [attempt(5 + i, SCRIPT + f"typo{i}\n", None) for i in range(3)]
    found = rates(brief(*history), 6)
    assert all(rate <= 0.04 for rate in found)
    assert sum(rate < 0.04 for rate in found) >= 5


def test_what_was_refused_or_is_in_flight_is_not_proposed_again():
    first = proposed(brief(FIRST))
    refused = proposed(replace(brief(FIRST), refused=(Refusal(first, "no"),)))
    waiting = replace(attempt(1, first.script, None), runs=(), decision=None, settled=False)
    scripts = {fingerprint(script) for script in (first.script, refused.script)}
    assert len(scripts) == 2
    assert proposed(brief(FIRST, waiting)).script != first.script


def test_small_spaces_are_tried_out():
    with pytest.raises(Exhausted, match="no untried setting of 1 dials"):
        night(lambda dials: 1.0, 4, script="DEPTH = 2  # {2, 4, 6, 8}\n")
    assert len(night(lambda dials: 1.0, 3, script="DEPTH = 2  # {2, 4, 6, 8}\n")) == 4


def test_title_and_hypothesis_name_what_is_turned_and_first_what_matters_most():
    script = "".join(f"{name}_LR = 0.1  # [0.01, 1.0] log\n" for name in "ABCDEFGHIJ")
    lower = [script.replace("A_LR = 0.1", f"A_LR = {rate}") for rate in (0.08, 0.07, 0.06, 0.05)]
    history = [attempt(0, script, 1.0, keep=True)]
    history += [attempt(k, text, 1.0 - 0.2 * k) for k, text in enumerate(lower, 1)]
    for seed in range(8):
        proposal = proposed(brief(*history), seed)
        now = {name for name, value in values(proposal.script).items() if value != 0.1}
        told = proposal.hypothesis.partition(": ")[0].split(" and ")
        assert {one.partition(" = ")[0] for one in told} == now
        assert proposal.title.startswith("A_LR 0.1 → ")


def test_a_script_without_ranges_says_how_to_write_one():
    with pytest.raises(ScriptError, match=r"no dial with a range.*LR = 0.04  # step size"):
        proposed(brief(attempt(0, "NAME = 'x'\n", 1.0, keep=True)))


def test_words_and_switches_are_turned_like_numbers():
    assert proposed(brief(attempt(0, "FLAG = True  # {True, False}\n", 1.0, keep=True))).title == "FLAG True → False"
    patterns = [values(proposed(brief(FIRST), seed).script)["PATTERN"] for seed in range(40)]
    assert {"L", "SSSL"} <= set(patterns)


# ---- the model -------------------------------------------------------------------------------------------------------

NUMBERS = [Axis.of(dial) for dial in searched("".join(f"D{k} = 0.5  # [0.0, 1.0]\n" for k in range(12)), "cpu")]
START = np.full(len(NUMBERS), 0.5)


def scored(count: int, seed: int, unit: float = 1.0) -> list[Evidence]:
    """Places about the start in a landscape where two dials matter, with scores and their noise in a unit."""
    rng = np.random.default_rng(seed)
    places = np.vstack([START, rng.uniform(0.3, 0.7, (count, len(START)))])
    bpb = unit * (1 + 0.5 * (places[:, 3] - 0.35) ** 2 - 0.2 * places[:, 7] + 0.01 * rng.standard_normal(count + 1))
    return [Evidence(place, one, 1.0, False, "a", True) for place, one in zip(places, bpb.tolist(), strict=True)]


def fitted(evidence: list[Evidence], sigma_bpb: float | None = 0.01) -> Curves:
    return Curves.fitted(NUMBERS, evidence, START, sigma_bpb, np.random.default_rng(0))


@pytest.mark.parametrize("sigma_bpb", [0.01, None])
def test_every_run_says_something_about_each_dial_that_it_turns(sigma_bpb):
    curves = fitted(scored(40, 0), sigma_bpb)
    falls = np.array([curves.gain(START, place)[0] for place in START + 0.2 * np.eye(len(START))])
    assert (np.argmax(falls), np.argmin(falls)) == (7, 3)
    assert falls[7] == pytest.approx(0.04, abs=0.012)
    assert np.abs(np.delete(falls, [3, 7])).max() < 0.012, "few dials matter"


def test_neither_unit_nor_level_matters_and_a_score_that_is_worth_less_says_less():
    there, evidence = START + np.linspace(-0.2, 0.2, len(START)), scored(30, 2)
    fall, error = fitted(evidence).gain(START, there)
    assert fitted(scored(30, 2, unit=100.0), 1.0).gain(START, there) == pytest.approx((100 * fall, 100 * error))
    halves = [replace(one, group="ab"[k % 2]) for k, one in enumerate(evidence)]
    apart = [replace(one, bpb=one.bpb + 5.0) if one.group == "b" else one for one in halves]
    assert fitted(apart).gain(START, there) == pytest.approx(fitted(halves).gain(START, there))
    faint = fitted([replace(one, runs=0.01) for one in evidence]).gain(START, there)
    assert faint[1] > 1.5 * error


def test_words_are_told_apart_and_widen_no_other_dial():
    axes = [NUMBERS[0], Axis.of(searched(f"WORD = 'a'  # {{{', '.join(map(repr, 'abcdefg'))}}}\n", "cpu")[0])]
    levels = np.array([0.0, 0.1, -0.1, 0.2, 0.0, -0.2, 0.1])
    rng, here = np.random.default_rng(0), np.array([0.5, 0.0])
    places = np.column_stack([rng.uniform(0, 1, 70), np.arange(70) % 7 * 1.0])
    bpb = 1 + levels[places[:, 1].astype(int)] + 0.005 * rng.standard_normal(70)
    evidence = [Evidence(place, one, 1.0, False, "a", True) for place, one in zip(places, bpb.tolist(), strict=True)]
    curves = Curves.fitted(axes, evidence, here, 0.005, np.random.default_rng(0))
    falls = [curves.gain(here, np.array([0.5, word]))[0] for word in range(7)]
    assert falls == pytest.approx(-levels, abs=0.015)


# ---- crashes ---------------------------------------------------------------------------------------------------------


def risks(crashed: list[list[float]], place: list[float]) -> list[float]:
    ran = np.array([[0.4, 0.4], [0.6, 0.6], [0.5, 0.5]])
    return edge_risk(ran, np.array(crashed).reshape(-1, 2), np.array([place]), np.ones(2, bool))[0].tolist()


def test_a_crash_is_blamed_on_the_dials_that_left_what_ran_and_the_risk_grows_up_to_its_place():
    assert risks([[0.45, 0.55]], [0.5, 0.5]) == [0.0, 0.0], "a crash within them is no edge of one dial"
    assert risks([[0.8, 0.5]], [0.9, 0.9]) == [pytest.approx(0.99), 0.0]
    assert risks([[0.8, 0.5]], [0.7, 0.5])[0] == pytest.approx(0.5, abs=0.05), "the edge is half way or not"
    assert risks([[0.2, 0.8]], [0.2, 0.5]) == [pytest.approx(0.5, abs=0.01), 0.0], "two share it"
    words = edge_risk(np.array([[0.0], [1.0]]), np.array([[2.0]]), np.arange(4.0)[:, None], np.array([False]))
    assert words[:, 0].tolist() == [0.0, 0.0, pytest.approx(0.99), 0.0]
