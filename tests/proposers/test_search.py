"""Search over the dials: sensible steps, the same ones every time, never one twice."""

import math
import re
from dataclasses import replace
from functools import cache

import pytest
from judged import decided
from samples import NIGHT

from agent.errors import Exhausted, ScriptError
from agent.experiment import Attempt, Decision, Ending, Kind, Noise, Proposal, Run, Score, Status, Summary, incumbent
from agent.proposers.briefing import Briefing, Refusal
from agent.proposers.search.evidence import MOST, Candidate, evidence_of, most_telling
from agent.proposers.search.search import Search
from agent.proposers.search.space import MIN_STEP, RADIUS, Axis
from agent.records.shipped import Outline, PastNight
from agent.script.dials import fingerprint, read_dials, searched, values_of

SCRIPT = """\
LR = 0.04  # [0.005, 0.2] log
DECAY = by_device(cpu=0.2, metal=0.1, cuda=0.1)  # [0.0, 0.6]
DEPTH = 4  # {2, 4, 6, 8}
HEADS = 2  # [1, 8]
PATTERN = "SL"  # {"L", "SL", "SSSL"}
FIXED = 3
"""


def attempt(number: int, script: str, bpb: float | None, *, keep: bool = False, memory_mb: float = 100.0) -> Attempt:
    status = Status.CRASH if bpb is None else Status.KEEP if keep else Status.DISCARD
    run = Run(0, Ending.FINISHED, 0, 1.0, Summary(peak_vram_mb=memory_mb), "", Score(bpb, 1.0, None))
    return Attempt(number, None, Proposal(script, "", "", ""), "", "c", (run,), decided(status, ""), True)


def brief(history: list[Attempt]) -> Briefing:
    best = incumbent(history)
    assert best is not None
    return Briefing(NIGHT, history, best)


def night(bpb_of, count: int, seed: int = 0, script: str = SCRIPT) -> list[Attempt]:
    history = [attempt(0, script, bpb_of(values(script)), keep=True)]
    best = history[0].val_bpb
    for number in range(1, count + 1):
        proposed = Search("cpu", seed).ideas(brief(history))[0].script
        bpb = bpb_of(values(proposed))
        history.append(attempt(number, proposed, bpb, keep=bpb is not None and bpb < best))
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


@cache
def where_all_is_alike() -> list[Attempt]:
    return night(lambda dials: 1.0, 40)


def test_a_proposal_turns_dials_within_their_ranges():
    for number, one in enumerate(in_the_bowl()[1:26]):
        assert 0.005 <= values(one.proposal.script)["LR"] <= 0.2, number
        assert 0.0 <= values(one.proposal.script)["DECAY"] <= 0.6
        assert values(one.proposal.script)["DEPTH"] in (2, 4, 6, 8)
        assert values(one.proposal.script)["HEADS"] in range(1, 9)
        assert values(one.proposal.script)["FIXED"] == 3


def test_each_edit_is_of_the_incumbent():
    history = in_the_bowl()[:13]
    for number in range(1, len(history)):
        incumbent = min(history[:number], key=lambda one: one.val_bpb).proposal.script
        before, after = values(incumbent), values(history[number].proposal.script)
        assert any(before[name] != after[name] for name in before)


def test_steps_too_small_to_be_seen_are_not_made():
    for one, another in zip(where_all_is_alike()[1:21], [SCRIPT] * 20, strict=True):
        step = abs(math.log(values(one.proposal.script)["LR"] / values(another)["LR"]))
        assert step == 0 or step >= MIN_STEP * math.log(0.2 / 0.005) * 0.99


def test_a_single_turn_is_no_leap():
    before = values(SCRIPT)
    for seed in range(40):
        after = values(Search("cpu", seed).ideas(brief([attempt(0, SCRIPT, 1.0, keep=True)]))[0].script)
        assert abs(math.log(after["LR"] / before["LR"])) <= RADIUS * math.log(0.2 / 0.005) * 1.001
        assert abs(after["DECAY"] - before["DECAY"]) <= RADIUS * 0.6 * 1.001
        assert after["DEPTH"] in (2, 4, 6)
        assert abs(after["HEADS"] - before["HEADS"]) <= 2


def test_the_same_seed_and_history_give_the_same_night():
    assert [one.proposal.script for one in night(bowl, 8)] == [one.proposal.script for one in in_the_bowl()[:9]]


def test_no_script_is_proposed_twice():
    scripts = [fingerprint(one.proposal.script) for one in in_the_bowl()]
    assert len(set(scripts)) == len(scripts)


def test_it_finds_a_clearly_better_place():
    history = in_the_bowl()
    assert min(one.val_bpb for one in history) < 1 + 0.3 * (history[0].val_bpb - 1)


def test_crashes_are_avoided():
    def crash_when_deep(dials):
        return None if dials["DEPTH"] > 4 else bowl(dials)

    history = night(crash_when_deep, 30)
    assert sum(one.val_bpb is None for one in history) <= 5


def test_what_was_bad_one_way_is_tried_the_other_way():
    history = [attempt(0, SCRIPT, 1.0, keep=True)]
    for number, rate in enumerate(("0.05", "0.07", "0.1"), 1):
        history.append(attempt(number, SCRIPT.replace("LR = 0.04", f"LR = {rate}"), 1.0 + 0.1 * number))
    rates = [values(Search("cpu", seed).ideas(brief(history))[0].script)["LR"] for seed in range(10)]
    assert all(rate <= 0.04 for rate in rates)
    assert sum(rate < 0.04 for rate in rates) >= 8


def test_two_near_misses_are_put_together():
    lower, higher = SCRIPT.replace("LR = 0.04", "LR = 0.02"), SCRIPT.replace("HEADS = 2", "HEADS = 4")
    history = [attempt(0, SCRIPT, 1.0, keep=True), attempt(1, lower, 0.999), attempt(2, higher, 0.999)]
    history += [attempt(3 + i, SCRIPT.replace("cpu=0.2", f"cpu=0.{i}"), 1.01) for i in (1, 3, 4)]
    found = [values(Search("cpu", seed).ideas(brief(history))[0].script) for seed in range(5)]
    assert sum(dials["LR"] < 0.04 and dials["HEADS"] > 2 for dials in found) >= 3
    assert all(dials["LR"] < 0.04 or dials["HEADS"] > 2 for dials in found)


def test_what_ruins_a_run_does_not_drown_what_helps():
    history = [attempt(0, SCRIPT, 1.0, keep=True), attempt(1, SCRIPT.replace("cpu=0.2", "cpu=0.4"), 50.0)]
    history += [attempt(2 + i, SCRIPT.replace("0.04", f"0.0{i + 1}"), 0.99 + 0.002 * i) for i in range(3)]
    found = [values(Search("cpu", seed).ideas(brief(history))[0].script) for seed in range(10)]
    assert sum(dials["LR"] < 0.04 for dials in found) >= 8


def past(night: list[Attempt], protocol: str = NIGHT.protocol, sigma_bpb: float | None = None) -> PastNight:
    attempts = tuple(Outline.of(one, "cpu") for one in night)
    noise = Noise(sigma_bpb, 3, sigma_bpb)
    return PastNight(replace(NIGHT, tag="before", protocol=protocol), noise, attempts)


def taught(level: float, much: float = 0.1) -> list[Attempt]:
    lower = SCRIPT.replace("LR = 0.04", "LR = 0.02")
    worse = [SCRIPT.replace("cpu=0.2", f"cpu=0.{i}") for i in (1, 3, 4)]
    night = [attempt(0, SCRIPT, level, keep=True), attempt(1, lower, level - much, keep=True)]
    return night + [attempt(2 + i, script, level + much / 2) for i, script in enumerate(worse)]


def test_earlier_nights_teach_by_their_differences_whatever_their_level():
    tonight = brief([attempt(0, SCRIPT, 1.0, keep=True)])
    for level in (0.5, 1.0, 3.0):
        found = [Search("cpu", seed, earlier=[past(taught(level))]).ideas(tonight)[0].script for seed in range(6)]
        rates = [values(script)["LR"] for script in found]
        assert sum(rate < 0.04 for rate in rates) >= 5, level
        assert max(rates) <= 0.04, level


def test_nights_of_another_protocol_teach_less_and_in_units_of_their_noise():
    tonight = replace(brief([attempt(0, SCRIPT, 1.0, keep=True)]), noise=Noise(0.01, 5, 0.03))
    axes = [Axis.of(dial) for dial in searched(SCRIPT, "cpu")]
    found = {
        protocol: evidence_of(axes, tonight, "cpu", [past(taught(3.0, 0.5), protocol, sigma_bpb=0.05)])
        for protocol in (NIGHT.protocol, "another")
    }
    same, other = found[NIGHT.protocol], found["another"]
    assert [len(same), len(other)] == [6, 6]
    assert (same[0].runs, other[0].runs) == (1.0, 0.5)
    assert same[0].bpb - same[1].bpb == pytest.approx(0.5)
    assert other[0].bpb - other[1].bpb == pytest.approx(0.1), "ten of its sigma are ten of tonight's"
    elsewhere = replace(past(taught(3.0)), night=replace(NIGHT, device_kind="cuda"))
    assert len(evidence_of(axes, tonight, "cpu", [elsewhere])) == 1


def test_of_many_earlier_nights_the_most_alike_are_read_and_of_a_long_one_the_latest_attempts():
    tonight = brief([attempt(0, SCRIPT, 1.0, keep=True)])
    axes = [Axis.of(dial) for dial in searched(SCRIPT, "cpu")]
    long = past([attempt(0, SCRIPT, 1.0, keep=True), *(attempt(k, SCRIPT, 1.0 + k) for k in range(1, 600))])
    alike = replace(past(taught(3.0)), night=replace(NIGHT, tag="alike"))
    other = replace(long, night=replace(NIGHT, tag="other", protocol="another"))
    found = evidence_of(axes, tonight, "cpu", [alike, other])
    assert [one.group.split()[0] for one in found[-6:-1]] == ["alike"] * 5
    others = [one.bpb for one in found if one.group.startswith("other")]
    assert len(others) == MOST - 6
    assert others[-1] == 600


def test_an_edit_of_more_than_dials_makes_a_group_of_its_own():
    edited = SCRIPT + "x = 1\n"
    history = [attempt(0, SCRIPT, 1.0, keep=True), attempt(1, SCRIPT.replace("0.04", "0.02"), 0.99)]
    history += [attempt(2, edited, 0.5, keep=True), attempt(3, edited.replace("0.04", "0.1"), 0.52)]
    found = [values(Search("cpu", seed).ideas(brief(history))[0].script) for seed in range(5)]
    assert all(dials["LR"] < 0.04 for dials in found)


def test_a_crash_of_edited_code_says_nothing_about_its_dials():
    history = [attempt(0, SCRIPT, 1.0, keep=True), attempt(1, SCRIPT.replace("0.04", "0.02"), 0.99)]
    broken = [attempt(2 + i, SCRIPT + f"typo{i}\n", None) for i in range(3)]
    without, beside = (brief(some) for some in (history, history + broken))
    found = [
        values(Search("cpu", seed).ideas(briefing)[0].script) for briefing in (without, beside) for seed in range(4)
    ]
    assert all(dials["LR"] <= 0.04 for dials in found)
    assert sum(dials["LR"] < 0.04 for dials in found) >= 7


def test_a_refused_proposal_is_not_made_again():
    history = [attempt(0, SCRIPT, 1.0, keep=True)]
    first = Search("cpu", 0).ideas(brief(history))[0]
    second = Search("cpu", 0).ideas(replace(brief(history), refused=(Refusal(first, "no"),)))[0]
    assert fingerprint(first.script) != fingerprint(second.script)


# ---- long nights, and runs that were ended early ---------------------------------------------------------------------


def test_the_model_looks_at_the_latest_of_the_incumbents_group_first():
    def of(group: str, count: int, first: int = 0) -> list[Candidate]:
        return [Candidate(attempt(first + k, SCRIPT, 1.0), group) for k in range(count)]

    mine, others, many = of("mine", MOST - 100), of("other", 500), of("mine", MOST + 5, 1000)
    elsewhere = -1
    assert most_telling(others + mine, "mine", elsewhere) == others[-100:] + mine
    assert most_telling(many + others, "mine", elsewhere) == many[5:]
    assert most_telling(many + others, "mine", 1000) == [many[0], *many[6:]]


def test_what_a_proposal_reads_is_bounded_and_holds_the_incumbent():
    scripts = [SCRIPT.replace("LR = 0.04", f"LR = {0.04 + k / 1e5:.5f}") for k in range(30)]
    history = [attempt(k, scripts[k % 30], 1.0 + k % 7 / 100, keep=k == 3) for k in range(1000)]
    axes = [Axis.of(dial) for dial in searched(SCRIPT, "cpu")]
    found = evidence_of(axes, brief(history), "cpu", [])
    assert [one.number for one in found] == [3, *range(1000 - (MOST - 1), 1000)]
    assert Search("cpu", 0).ideas(brief(history))[0].hypothesis.count(f"what {MOST} attempts say") == 1


def test_a_run_that_was_ended_early_counts_with_its_forecast():
    """Where it is not known to be bad, the search would go there again."""
    history = [attempt(0, SCRIPT, 1.0, keep=True)]
    for number, rate in enumerate(("0.05", "0.07", "0.1"), 1):
        one = attempt(number, SCRIPT.replace("LR = 0.04", f"LR = {rate}"), None)
        run = replace(one.runs[0], ending=Ending.HOPELESS, score=None)
        stopped = Decision(Kind.STOPPED_EARLY, "stopped early", gain_bpb=-0.1 * number)
        history.append(replace(one, parent=0, runs=(run,), decision=stopped))
    rates = [values(Search("cpu", seed).ideas(brief(history))[0].script)["LR"] for seed in range(10)]
    assert all(rate <= 0.04 for rate in rates)
    assert sum(rate < 0.04 for rate in rates) >= 8


def test_a_dial_whose_range_an_edit_misspelt_is_left_alone():
    broken = SCRIPT.replace("[0.005, 0.2] log", "[0.2, 0.005] log").replace("cpu=0.2, metal=0.1, cuda=0.1", "metal=0.1")
    for seed in range(5):
        found = Search("cpu", seed).ideas(brief([attempt(0, broken, 1.0, keep=True)]))[0].script
        assert values_of(found, "cpu")["LR"] == 0.04


def test_small_spaces_end_in_good_order():
    with pytest.raises(Exhausted, match="no untried setting of 1 dials"):
        night(lambda dials: 1.0, 4, script='PATTERN = "L"  # {"L", "SL", "SSSL"}\n')


def test_a_value_outside_of_its_range_is_within_reach():
    script = "LR = 0.5  # [0.005, 0.2] log\n"
    assert values(Search("cpu", 0).ideas(brief([attempt(0, script, 1.0, keep=True)]))[0].script)["LR"] <= 0.5


def test_attempts_by_others_with_other_dials_do_no_harm():
    history = [attempt(0, SCRIPT, 1.0, keep=True), attempt(1, "LR = 'high'\nDEPTH = 5\n", 1.1)]
    history.append(attempt(2, "LR = 0.1  # [broken\n", None))
    assert Search("cpu", 0).ideas(brief(history))[0].source == "search"


def test_title_and_hypothesis_name_what_is_turned():
    proposal = Search("cpu", 0).ideas(brief([attempt(0, "LR = 0.04  # [0.005, 0.2] log\n", 1.0, keep=True)]))[0]
    new = values(proposal.script)["LR"]
    assert proposal.title == f"LR 0.04 → {new}"
    assert f"LR = {new}" in proposal.hypothesis


def test_a_title_names_the_three_turns_that_matter_most_and_counts_the_rest():
    script = "".join(f"{name}_LR = 0.1  # [0.01, 1.0] log\n" for name in "ABCDEFGHIJ")
    turned = [re.sub(r"A_LR = 0.1", f"A_LR = {rate}", script) for rate in (0.08, 0.07, 0.06, 0.05)]
    history = [attempt(0, script, 1.0, keep=True)]
    history += [attempt(k, text, 1.0 - 0.2 * k) for k, text in enumerate(turned, 1)]
    proposals = [Search("cpu", seed).ideas(brief(history))[0] for seed in range(8)]
    unknown = [Search("cpu", seed).ideas(brief(history[:1]))[0] for seed in range(8)]
    for proposal in (*proposals, *unknown):
        now = {name for name, value in values(proposal.script).items() if value != 0.1}
        told = proposal.hypothesis.partition(": ")[0].split(" and ")
        assert {one.partition(" = ")[0] for one in told} == now
        named = proposal.title.partition(" and ")[0].split(", ")
        assert len(named) == min(3, len(now))
        assert proposal.title.endswith(f" and {len(now) - 3} more") == (len(now) > 3)
    assert all(proposal.title.startswith("A_LR 0.1 → ") for proposal in proposals)
    assert any(" more" in proposal.title for proposal in unknown)


def test_a_script_without_ranges_says_how_to_write_one():
    with pytest.raises(ScriptError, match=r"no dial with a range.*LR = 0.04  # step size"):
        Search("cpu", 0).ideas(brief([attempt(0, "NAME = 'x'\n", 1.0, keep=True)]))


def test_words_and_switches_are_turned_like_numbers():
    night_of_one = Search("cpu", 0).ideas(brief([attempt(0, "FLAG = True  # {True, False}\n", 1.0, keep=True)]))[0]
    assert night_of_one.title == "FLAG True → False"
    patterns = [values(one.proposal.script)["PATTERN"] for one in where_all_is_alike()[1:]]
    assert sum(pattern != "SL" for pattern in patterns) >= 5
