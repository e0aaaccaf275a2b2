"""Options are parsed once: each command gets a frozen record, and below agent/cli/ argparse is unknown."""

import argparse
import dataclasses
import re

import pytest
from nights import PROJECT, options_of

from agent.cli.main import FILES, commands_for

LEAST = {  # words without which they are refused
    "submit": ("idea.py", "-m", "why"),
    "note": ("word",),
    "plot": ("--out", "p.svg"),
    "show": ("1",),
    "sample": ("text",),
    "diff": ("1",),
    "compare": ("1", "2"),
    "replay": ("1",),
    "export": ("csv",),
    "archive": ("--tag", "nov22"),
    "unpack": ("night.tar.gz",),
}


@pytest.mark.parametrize("name", FILES)
def test_each_command_gets_a_record_that_cannot_be_changed(name):
    options = options_of(name, *LEAST.get(name, ()))
    assert dataclasses.is_dataclass(options)
    for field in dataclasses.fields(options):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(options, field.name, None)


def test_the_files_of_the_commands_hold_them_and_one_command_does_not_import_the_others():
    assert [one.name for one in commands_for(())] == list(FILES)
    assert [one.name for one in commands_for(("status", "--json"))] == ["status"]


def test_below_the_command_line_argparse_is_unknown():
    files = [path for path in (PROJECT / "agent").rglob("*.py") if "cli" not in path.parts]
    assert len(files) > 50
    assert [path for path in files if re.search(r"(?m)^\s*(import|from) argparse\b", path.read_text())] == []


@pytest.mark.parametrize("name", FILES)
def test_a_night_is_named_by_tag_alone(name):
    """Other words are attempts or files; `compare` compares nights, too."""
    words = argparse.ArgumentParser()
    [command] = commands_for((name,))
    command.add_words(words)
    assert {one.metavar for one in words._actions if "--tag" in one.option_strings} <= {None, "TAG"}
    assert "TAG" not in [one.metavar for one in words._actions if not one.option_strings]
