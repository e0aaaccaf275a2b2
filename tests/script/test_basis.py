"""What an edited script was made from, and which kept edits it lacks: over the shipped script and its ideas."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from idea_checks import SHIPPED
from judged import scored_attempt

from agent.errors import ScriptError
from agent.experiment import Attempt, Status
from agent.invocation import IDEAS as FOLDER
from agent.invocation import PACKAGE
from agent.proposers.catalogue.applying import applied
from agent.proposers.catalogue.idea import read_ideas
from agent.script.basis import Basis, basis_of
from agent.script.dials import set_dials, values_of
from agent.script.merge import merged

IDEAS, _ = read_ideas(PACKAGE / FOLDER)
VALUES = values_of(SHIPPED, "cpu")


def idea(slug: str, script: str) -> str:
    return applied(next(one for one in IDEAS if one.slug == slug), script, [SHIPPED], "cpu")


def dials(script: str, **values: object) -> str:
    return set_dials(script, "cpu", values)


def night(*scripts: str) -> list[Attempt]:
    """A night that has kept each of these, one after another."""
    return [
        scored_attempt(at, 1.0 - at / 10, parent=at - 1 if at else None, status=Status.KEEP, script=script)
        for at, script in enumerate(scripts)
    ]


def found(script: str, history: Sequence[Attempt], committed: str | None = SHIPPED) -> tuple[int | None, list[int]]:
    basis = basis_of(script, history, "cpu", committed)
    return basis.number, [one.number for one in basis.missing]


@pytest.fixture(scope="module")
def kept() -> list[Attempt]:
    """Two edits of lines with one of dials between them, and one of dials at last."""
    lines = idea("parallel-block", SHIPPED)
    turned = dials(lines, MATRIX_LR=VALUES["MATRIX_LR"] / 2)
    more = idea("no-softcap", turned)
    return night(SHIPPED, lines, turned, more, dials(more, DEPTH=VALUES["DEPTH"] + 1))


def test_a_script_is_made_from_the_attempt_that_it_is_an_edit_of(kept):
    for at, base in enumerate(kept):
        missing = [one.number for one in kept[at + 1 :]]
        assert found(dials(base.proposal.script, EMBEDDING_LR=0.123), kept) == (at, missing)
        assert found(idea("smear", base.proposal.script), kept) == (at, missing)


def test_a_deleted_edit_is_an_idea_where_the_newest_is_there(kept):
    best = kept[-1].proposal.script
    for before, edit in list(pairwise(kept))[:-1]:
        without = merged(best, edit.proposal.script, before.proposal.script, "cpu")
        assert without is not None
        assert found(without, kept) == (4, []), edit.number
        assert found(dials(without, EMBEDDING_LR=0.123), kept) == (4, []), edit.number


def test_the_newest_dial_at_another_value_is_no_missing_edit(kept):
    assert found(dials(kept[-1].proposal.script, DEPTH=VALUES["DEPTH"] + 3), kept) == (4, [])


def test_an_edit_of_one_that_was_not_kept_is_told_as_that(kept):
    loser = idea("smear", kept[-1].proposal.script)
    history = [*kept, scored_attempt(5, 0.9, parent=4, script=loser)]
    assert found(dials(loser, EMBEDDING_LR=0.123), history) == (5, [])
    assert found(dials(kept[-1].proposal.script, EMBEDDING_LR=0.123), history) == (4, [])


def test_of_long_scripts_that_were_not_kept_only_the_latest_are_compared(monkeypatch):
    near = [
        scored_attempt(at, 1.1, parent=0, script=dials(SHIPPED, EMBEDDING_LR=at / 10, MATRIX_LR=at / 10))
        for at in range(1, 6)
    ]
    history = [*night(SHIPPED), *near]
    mine = [dials(one.proposal.script, DEPTH=VALUES["DEPTH"] + 1) for one in near]
    assert [found(script, history)[0] for script in mine] == [1, 2, 3, 4, 5]
    monkeypatch.setattr("agent.script.basis.MOST_NEAR_CHARS", 2 * len(SHIPPED))
    assert [found(script, history)[0] for script in mine] == [0, 0, 0, 4, 5]


def test_the_committed_script_may_be_none_of_the_attempts():
    committed = SHIPPED + "\n\ndef unused():\n    return 1\n"
    history = night(SHIPPED, dials(SHIPPED, MATRIX_LR=0.01))
    assert found(dials(committed, EMBEDDING_LR=0.123), history, committed) == (None, [1])


def test_an_edit_that_a_later_one_has_replaced_is_not_missing():
    first, second = dials(SHIPPED, MATRIX_LR=0.011), dials(SHIPPED, MATRIX_LR=0.013)
    assert found(dials(second, EMBEDDING_LR=0.123), night(SHIPPED, first, second)) == (2, [])
    assert found(dials(SHIPPED, EMBEDDING_LR=0.123), night(SHIPPED, first, second)) == (0, [2])
    assert found(dials(first, EMBEDDING_LR=0.123), night(SHIPPED, first, second)) == (1, [2])


def test_comments_and_layout_make_no_difference(kept):
    lines = kept[-1].proposal.script.splitlines(keepends=True)
    spread = "".join(f"{line}\n# a comment\n" if line == "\n" else line for line in lines)
    assert found(dials(spread, EMBEDDING_LR=0.123), kept) == (4, [])


def test_a_night_without_a_best_script_has_no_basis():
    assert basis_of(SHIPPED, [scored_attempt(0, status=Status.CRASH, script=SHIPPED)], "cpu") == Basis(None)


@pytest.mark.slow
def test_every_idea_is_seen_where_it_is_there_and_missed_where_it_is_not():
    other = dials(SHIPPED, EMBEDDING_LR=0.123)
    for one in IDEAS:
        with_it = applied(one, SHIPPED, (), "cpu")
        history = night(SHIPPED, with_it)
        assert found(dials(with_it, EMBEDDING_LR=0.123), history) == (1, []), one.slug
        assert found(other, history) == (0, [1]), one.slug


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(IDEAS), 30))
def test_of_two_ideas_the_missing_one_is_named(first):
    """The newest is missing: an edit of the older script; the older is missing: an idea."""
    one = applied(IDEAS[first], SHIPPED, (), "cpu")
    for second in IDEAS:
        try:
            both = applied(second, one, [SHIPPED], "cpu")
            alone = applied(second, SHIPPED, (), "cpu")
        except ScriptError:
            continue
        if second is not IDEAS[first]:
            history = night(SHIPPED, one, both)
            assert found(dials(one, EMBEDDING_LR=0.123), history) == (1, [2]), second.slug
            assert found(dials(both, EMBEDDING_LR=0.123), history) == (2, []), second.slug
            assert found(dials(alone, EMBEDDING_LR=0.123), history)[1] == [], second.slug
