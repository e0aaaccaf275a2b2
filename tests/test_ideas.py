"""Every shipped idea applies, learns, keeps the script's contract, goes with most other ideas, and can be undone."""

import subprocess
from itertools import combinations

import pytest
from idea_checks import SHIPPED, check

from agent.errors import ScriptError
from agent.invocation import IDEAS as FOLDER
from agent.invocation import PACKAGE, SCRIPT
from agent.proposers.catalogue.catalogue import applied
from agent.proposers.catalogue.idea import Idea, read_ideas
from agent.script.dials import read_dials, set_dials, values_of
from agent.script.merge import carried, check_edit, undone

IDEAS, FAULTS = read_ideas(PACKAGE / FOLDER)
SAMPLE = IDEAS[:: -(-len(IDEAS) // 3)] if IDEAS else ()
MOST_CONFLICTS = 0.2  # of all pairs
MOST_ADDED_LINES = 60
OF_PAIRS = 12  # one in so many is tried: each takes a quarter of a second


def named(idea: Idea) -> str:
    return idea.slug


def turned(script: str) -> set[str]:
    """Return the dials of the shipped script that have another value in this one."""
    new = values_of(script, "cpu")
    return {name for name, value in values_of(SHIPPED, "cpu").items() if new.get(name, value) != value}


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


def test_every_file_applies_to_the_shipped_script_as_git_has_it(tmp_path):
    (tmp_path / SCRIPT).write_text(SHIPPED)
    command = ("git", "apply", "--check")  # alone, it takes milliseconds for each
    done = [subprocess.run((*command, idea.file), cwd=tmp_path, capture_output=True, check=False) for idea in IDEAS]
    assert [idea.slug for idea, one in zip(IDEAS, done, strict=True) if one.returncode] == []


def test_the_table_of_pairs_and_threes_which_only_cuda_has_keeps_the_contract_on_a_cpu_too(
    tiny_data, tmp_path, monkeypatch
):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    check(set_dials(SHIPPED, "cpu", {"TRIGRAM_ROWS": 16384}), tmp_path)


@pytest.mark.slow
def test_the_numbers_that_ideas_add_are_dials_that_can_be_searched(edited):
    for idea in IDEAS:
        dials = {dial.name: dial for dial in read_dials(edited[idea.slug], "cpu")}
        added = [dials[name] for name in idea.dials if name in dials]  # a dtype is none that a search could turn
        numbers = [dial for dial in added if isinstance(dial.value, int | float)]
        assert [dial.name for dial in numbers if dial.span is None] == [], idea.slug


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
    dials = {slug: turned(script) for slug, script in edited.items()}
    # of two edits that turn one dial, the later one counts, and the earlier one cannot be taken out
    pairs = [pair for pair in combinations(edited, 2) if not dials[pair[0]] & dials[pair[1]]][::OF_PAIRS]
    conflicts = []
    for one, other in pairs:
        try:
            both = carried(edited[one], SHIPPED, edited[other], "cpu")
            check_edit(both, SHIPPED)
        except ScriptError as error:
            conflicts.append(f"{one}, {other}: {error}")
        else:
            assert undone(both, SHIPPED, edited[one], "cpu") == edited[other], (one, other)
            assert undone(both, edited[one], both, "cpu") == edited[one], (one, other)
    print(f"{len(conflicts)} of {len(pairs)} pairs conflict:", *conflicts, sep="\n")
    assert len(conflicts) <= MOST_CONFLICTS * len(pairs)
