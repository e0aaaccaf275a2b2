"""Every shipped idea applies, learns, keeps the script's contract, goes with most other ideas, and can be undone."""

from itertools import combinations

import pytest
from idea_checks import SHIPPED, check

from agent.errors import ScriptError
from agent.invocation import ABOVE
from agent.invocation import IDEAS as FOLDER
from agent.proposers.catalogue.applying import applied
from agent.proposers.catalogue.idea import Idea, read_ideas
from agent.script.dials import read_dials
from agent.script.merge import check_edit, undone
from agent.script.threeway import merge_texts

IDEAS, FAULTS = read_ideas(ABOVE / FOLDER)
SAMPLE = IDEAS[:: -(-len(IDEAS) // 3)] if IDEAS else ()
MOST_CONFLICTS = 0.2  # of all pairs
MOST_ADDED_LINES = 60
UNDONE_PAIRS = 8  # one in so many is taken apart again


def named(idea: Idea) -> str:
    return idea.slug


@pytest.fixture(scope="module")
def edited() -> dict[str, str]:
    """Return the shipped script with each idea."""
    return {idea.slug: applied(idea, SHIPPED, (), "cpu") for idea in IDEAS}


def test_every_file_can_be_read_and_tells_all_that_a_night_and_a_reader_need():
    assert FAULTS == ()
    assert len({idea.title for idea in IDEAS}) == len(IDEAS)
    assert [idea.slug for idea in IDEAS if not (idea.why and idea.source and idea.reported)] == []
    assert [idea.slug for idea in IDEAS if idea.group == "other"] == []
    assert [idea.slug for idea in IDEAS if idea.patch.count("\n+") > MOST_ADDED_LINES] == []


def test_every_idea_applies_to_the_shipped_script_with_dials_that_can_be_searched(edited):
    for idea in IDEAS:
        dials = {dial.name: dial for dial in read_dials(edited[idea.slug], "cpu")}
        assert [name for name in idea.dials if name not in dials or dials[name].span is None] == [], idea.slug


@pytest.mark.parametrize("idea", SAMPLE, ids=named)
def test_a_sample_of_ideas_learns_and_keeps_the_contract(idea, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    check(applied(idea, SHIPPED, (), "cpu"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("idea", [idea for idea in IDEAS if idea not in SAMPLE], ids=named)
def test_every_other_idea_learns_and_keeps_the_contract(idea, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    check(applied(idea, SHIPPED, (), "cpu"), tmp_path)


@pytest.mark.slow
def test_every_idea_is_undone_exactly(edited):
    for slug, script in edited.items():
        assert undone(script, SHIPPED, script, "cpu") == SHIPPED, slug


@pytest.mark.slow
def test_most_pairs_of_ideas_go_together_and_each_of_a_pair_is_undone_exactly(edited):
    pairs, conflicts = list(combinations(edited, 2)), []
    for number, (one, other) in enumerate(pairs):
        try:
            both = merge_texts(edited[one], SHIPPED, edited[other])
            check_edit(both, SHIPPED)
        except ScriptError as error:
            conflicts.append(f"{one}, {other}: {error}")
            continue
        if number % UNDONE_PAIRS == 0:
            assert undone(both, SHIPPED, edited[one], "cpu") == edited[other], (one, other)
            assert undone(both, edited[one], both, "cpu") == edited[one], (one, other)
    print(f"{len(conflicts)} of {len(pairs)} pairs conflict:", *conflicts, sep="\n")
    assert len(conflicts) <= MOST_CONFLICTS * len(pairs)
