"""How a night and an attempt are named: the same in all commands, and a slip is answered with what was meant."""

import pytest
from commands import refused
from nights import Grounds
from samples import record_nights


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Grounds:
    """The nights old and new, of which the first edit was kept."""
    titles = {"old": ("an edit", "another"), "new": ("a third", "a fourth")}
    return Grounds(record_nights(tmp_path_factory.mktemp("addresses") / "user", **titles).repo.root)


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("old", "an edit"),
        ("old:best", "an edit"),
        ("old:2", "another"),
        ("best", "a third"),
        ("2", "a fourth"),
        (":2", "a fourth"),
    ],
)
def test_an_attempt_is_named_by_itself_and_by_its_night_whose_best_is_meant_by_its_tag_alone(grounds, words, title):
    assert f"title         {title}\n" in grounds.nightshift("show", words).stdout
    assert grounds.nightshift("take", words).stdout.endswith(f": {title}\n")
    assert grounds.nightshift("show", words, "old:0").stdout.splitlines()[0].endswith(title)


@pytest.mark.parametrize(
    "command", ["status", "report", "results", "confirm", "confirm --show", "prompt", "serve", "pack", "export record"]
)
@pytest.mark.parametrize(("named", "whole"), [("old:1", ": old;"), ("old:best", ": old;"), ("1", "a night;")])
def test_an_attempt_where_a_night_is_wanted_is_answered_with_the_tag(grounds, command, named, whole):
    said = refused(grounds.nightshift(*command.split(), named))
    assert said.startswith(f"'{named}' is an attempt, and this command is about a whole night; ")
    assert whole in said
    assert said.endswith(f"or see: nightshift show {named}")


@pytest.mark.parametrize("command", ["show", "take", "sample x"])
def test_what_names_neither_says_how_both_are_named(grounds, command):
    said = refused(grounds.nightshift(*command.split(), "odl"))
    assert said.startswith("'odl' is neither an attempt (a number, best or confirmed; ")
    assert said.endswith("nor a night; known nights: old, new")
    assert refused(grounds.nightshift(*command.split(), "odl:1")) == "no night odl is here; known nights: old, new"
