"""Options are parsed once: each command gets a frozen record, and below agent/cli/ argparse is unknown."""

import dataclasses
import re

import pytest
from nights import PROJECT, options_of

from agent.cli.main import COMMANDS

LEAST = {  # words without which they are refused
    "submit": ("idea.py", "-m", "why"),
    "note": ("word",),
    "plot": ("--out", "p.svg"),
    "show": ("1",),
    "diff": ("1",),
}


@pytest.mark.parametrize("name", [one.name for one in COMMANDS])
def test_each_command_gets_a_record_that_cannot_be_changed(name):
    options = options_of(name, *LEAST.get(name, ()))
    assert dataclasses.is_dataclass(options)
    for field in dataclasses.fields(options):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(options, field.name, None)


def test_below_the_command_line_argparse_is_unknown():
    files = [path for path in (PROJECT / "agent").rglob("*.py") if path.parent.name != "cli"]
    assert len(files) > 50
    assert [path for path in files if re.search(r"(?m)^\s*(import|from) argparse\b", path.read_text())] == []
