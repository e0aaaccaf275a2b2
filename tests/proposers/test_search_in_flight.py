"""The search with attempts in flight: a score is drawn for each, no place is tried twice, and no hope is built upon."""

from dataclasses import replace

import numpy as np
from asking import attempt
from samples import NIGHT

from agent.experiment import Attempt, Ending, Noise, Proposal, Run, Score, Status
from agent.proposers.briefing import Briefing
from agent.proposers.search.acquisition import Acquisition
from agent.proposers.search.evidence import evidence_of
from agent.proposers.search.search import Search, _axes
from agent.script.dials import fingerprint, searched, set_dials

SCRIPT = "".join(f"D{number} = 1.0  # [0.1, 10.0] log\n" for number in range(8))
NOISE = Noise(0.01, 5, 0.028)


def scored(number: int, bpb: float, status: Status = Status.DISCARD, script: str = SCRIPT, **dials: float) -> Attempt:
    run = Run(0, Ending.FINISHED, 0, 1.0, None, "", Score(bpb, 1.0))
    return attempt(number, set_dials(script, "cpu", dials), run, status=status)


def in_flight(number: int, proposal: Proposal, parent: int = 0) -> Attempt:
    return replace(attempt(number, ""), proposal=proposal, parent=parent, decision=None, settled=False)


FIRST = scored(0, 1.0, Status.KEEP)
KNOWN = [FIRST, scored(1, 0.95, D0=3.0, D1=3.0), scored(2, 1.06, D2=3.0, D3=0.4), scored(3, 1.02, D4=3.0, D1=0.4)]


def acquisition(history: list[Attempt], parent: Attempt = FIRST, seed: int = 0) -> Acquisition:
    axes, here = _axes(searched(parent.proposal.script, "cpu"))
    evidence = evidence_of(axes, Briefing(NIGHT, history, parent, noise=NOISE), "cpu", ())
    return Acquisition.of(axes, here, evidence, 0.01, np.random.default_rng(seed))


def test_of_eight_proposals_without_a_result_no_two_are_the_same_and_they_turn_other_dials():
    history = list(KNOWN)
    for number in range(4, 12):
        briefing = Briefing(NIGHT, tuple(history), FIRST, noise=NOISE)
        history.append(in_flight(number, Search("cpu", 0).ideas(briefing)[0]))
    scripts = [one.proposal.script for one in history[4:]]
    assert len({fingerprint(script) for script in scripts}) == 8
    changed = [{line for line in script.splitlines() if line not in SCRIPT.splitlines()} for script in scripts]
    assert len({line.split()[0] for lines in changed for line in lines}) == 8


def test_a_place_in_flight_is_known_better_and_is_not_taken_for_the_best_one():
    there = in_flight(4, Proposal(set_dials(SCRIPT, "cpu", {"D0": 9.0, "D1": 3.0}), "", "", "search"))
    before = [acquisition(KNOWN, seed=seed) for seed in range(4)]
    waiting = [acquisition([*KNOWN, there], seed=seed) for seed in range(4)]
    place = before[0].here.copy()
    place[:2] = [before[0].axes[0].place(9.0), before[0].axes[1].place(3.0)]
    unsure = [np.mean([one.curves.gain(one.here, place)[1] for one in ones]) for ones in (before, waiting)]
    assert unsure[1] < 0.9 * unsure[0]
    assert not any(np.allclose(one.centre, place) for one in waiting)
    assert all(len(one.ran) == len(KNOWN) + 1 for one in waiting), "it has not shown that it runs"


def test_what_is_in_flight_may_be_an_edit_of_an_older_incumbent():
    proposal = Proposal(set_dials(SCRIPT, "cpu", {"D0": 3.0, "D6": 0.3}), "", "", "search")
    kept = scored(5, 0.9, Status.KEEP, D0=3.0, D1=3.0)
    history = (*KNOWN, in_flight(4, proposal, parent=0), kept)
    found = Search("cpu", 0).ideas(Briefing(NIGHT, history, kept, noise=NOISE))[0]
    tried = {fingerprint(one.proposal.script) for one in history}
    assert fingerprint(found.script) not in tried


def test_an_edit_of_code_in_flight_has_no_level_to_draw_a_score_at():
    edited = in_flight(4, Proposal(SCRIPT + "x = 1\n", "", "", "llm:toy"))
    without, beside = acquisition(KNOWN), acquisition([*KNOWN, edited])
    assert np.array_equal(without.curves.samples, beside.curves.samples)
