"""The proof of the cheats fails where a cheat gets through, and where its list of exceptions is not what happens."""

import sys
from pathlib import Path

import pytest
from arena import CHEATS, HONEST, Trial

from agent.experiment import Status

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import cheats  # noqa: E402

CHEAT, LAWFUL = CHEATS[0], HONEST[0]


def trial(script=CHEAT, status=Status.DISCARD, effects=()) -> Trial:
    return Trial(script, status, "a word", "a reason", effects, 1.0, None)


def test_each_exception_is_of_a_script_that_there_is_and_security_names_it():
    scripts = {script.name for script in (*CHEATS, *HONEST)}
    listed = {name for names in cheats.LISTED.values() for name in names}
    assert listed <= scripts
    assert {name for name in listed if f"`{name}`" not in (ROOT / "SECURITY.md").read_text()} == set()
    assert set(cheats.QUICK) <= scripts


def test_a_quick_proof_keeps_an_honest_script_and_tries_what_is_listed():
    honest = [script.name for script in HONEST if script.name in cheats.QUICK]
    assert len(honest) > 1
    assert {name for names in cheats.LISTED.values() for name in names} <= set(cheats.QUICK)


@pytest.mark.parametrize("listed", [{}, {CHEAT.name: "why", LAWFUL.name: "why"}], ids=["unlisted", "listed"])
def test_a_list_that_is_too_short_or_too_long_is_no_proof(listed):
    as_expected = [trial(), trial(LAWFUL, Status.KEEP)]
    others = [trial(effects=("sent",)), trial(status=Status.KEEP), trial(LAWFUL), trial(LAWFUL, Status.KEEP, ("left",))]
    assert {cheats.verdict(each, listed).isupper() for each in as_expected} == {bool(listed)}
    assert {cheats.verdict(each, listed).isupper() for each in others} == {not listed}


def test_a_script_that_was_not_tried_is_missed():
    trials, scripts = [trial(), trial(LAWFUL, Status.KEEP)], (CHEAT, LAWFUL)
    assert cheats.figures(trials[:1], scripts, {})["ok"] == 0
    counts = cheats.figures(trials, scripts, {})
    assert (counts["ok"], counts["through"], counts["refused"]) == (1, 0, 0)
