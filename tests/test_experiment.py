"""The nouns: scripts are held compressed and read as texts; who is the incumbent follows the order of decisions."""

import copy
import pickle
from dataclasses import replace

import pytest

from agent.errors import NightError
from agent.experiment import Attempt, Decision, Entry, Kind, Proposal, Script, Status, incumbent, kept
from agent.script.cached import remembered

TEXT = "# π\nA = 1\n" * 1000


def proposal(script: str | Script = TEXT) -> Proposal:
    return Proposal(script, "title", "why", "you")  # type: ignore[arg-type]


def test_a_proposal_takes_a_text_and_gives_it_back():
    assert proposal().script == TEXT
    assert proposal(Script.of(TEXT)).script == TEXT
    assert len(proposal().packed.packed) < len(TEXT) / 50
    assert proposal("\ud800").script == "\ud800"  # as a proposer's JSON may have it


def test_proposals_are_equal_where_their_texts_are():
    assert proposal() == proposal(Script.of(TEXT))
    assert hash(proposal()) == hash(proposal(Script.of(TEXT)))
    assert proposal() != proposal(TEXT + " ")
    assert Script.of(TEXT) == replace(Script.of(TEXT), fingerprint="f")


def test_a_proposal_can_be_replaced_copied_and_pickled():
    assert replace(proposal(), script="B = 2") == proposal("B = 2")
    assert replace(proposal(), title="other").script == TEXT
    assert copy.deepcopy(proposal()) == proposal() == pickle.loads(pickle.dumps(proposal()))
    assert "π" in repr(proposal())


def test_what_is_known_of_a_script_needs_no_unpacking():
    length = remembered(len)
    assert length(TEXT) == length(Script.of(TEXT)) == len(TEXT)
    assert length(Script(Script.of(TEXT).sha256, b"no zlib")) == len(TEXT)


def test_a_damaged_script_is_named():
    with pytest.raises(NightError, match=r"the script [0-9a-f]{12} in the journal is damaged"):
        str(Script(Script.of(TEXT).sha256, b"no zlib"))


# ---- the incumbent ---------------------------------------------------------------------------------------------------


def attempt(number: int, *decisions: tuple[int, Kind], parent: int = 0) -> Attempt:
    """With decisions that were recorded at these places of the night's."""
    entries = tuple(Entry(place, None, Decision(kind, "")) for place, kind in decisions)
    return Attempt(number, parent, proposal(""), "", "c", (), entries[-1].decision, True, decisions=entries)


def test_without_a_journal_the_incumbent_is_the_last_kept_by_number():
    history = [Attempt(n, None, proposal(""), "", decision=Decision(Kind.KEPT, "")) for n in range(3)]
    assert incumbent(history) == history[2]
    assert incumbent(()) is None


def test_the_incumbent_is_the_latest_keep_by_decision():
    """Attempts may end in any order, and what dawn has confirmed may be older than the champion."""
    history = [attempt(0, (1, Kind.BASELINE)), attempt(1, (3, Kind.KEPT)), attempt(2, (2, Kind.KEPT))]
    assert incumbent(history) == history[1]
    history[0] = attempt(0, (1, Kind.BASELINE), (4, Kind.REVOKED), (5, Kind.ADOPTED))
    assert [one.number for one in kept(history)] == [2, 1, 0]


def test_a_keep_that_is_confirmed_keeps_its_place():
    history = [
        attempt(0, (1, Kind.BASELINE)),
        attempt(1, (2, Kind.PROVISIONAL), (4, Kind.CONFIRMED), (5, Kind.CONFIRMED)),
        attempt(2, (3, Kind.KEPT)),
    ]
    assert incumbent(history) == history[2]


def test_after_a_revocation_the_branch_goes_back_to_what_was_kept_before():
    history = [
        attempt(0, (1, Kind.BASELINE)),
        attempt(1, (2, Kind.KEPT)),
        attempt(2, (3, Kind.WORSE)),
        attempt(3, (4, Kind.KEPT), (6, Kind.REVOKED)),
        attempt(4, (5, Kind.WORSE)),
    ]
    assert incumbent(history) == history[1]
    history[1] = attempt(1, (2, Kind.KEPT), (7, Kind.ORPHANED))
    assert incumbent(history) == history[0]


def test_every_kind_has_its_status():
    assert {kind for kind in Kind if kind.status is None} == {Kind.UNDECIDED, Kind.VOID}
    assert {kind for kind in Kind if kind.status is Status.CRASH} == {Kind.CRASHED}
    assert {kind for kind in Kind if kind.status is Status.KEEP} == {
        *(Kind.BASELINE, Kind.KEPT, Kind.PROVISIONAL, Kind.CONFIRMED, Kind.SIMPLER, Kind.ADOPTED)
    }
