"""What each command says of itself."""

import inspect
import re

import pytest

from agent.cli.main import COMMANDS, answers, app_of, command_named, main
from agent.cli.options import NightOptions, RunOptions


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_its_options_and_refuses_others_in_one_sentence(name, capsys):
    assert main((name, "--help")) == 0
    shown = capsys.readouterr().out
    docs = "\n".join(inspect.getdoc(one) or "" for one in (command_named(name), NightOptions, RunOptions))
    for option in app_of(command_named(name), name).assemble_argument_collection():
        if option.show and not option.children:
            assert not option.names[0].startswith("--") or option.names[0] in shown
            assert option.parameter.help or re.search(rf"(?m)^    {option.field_info.names[0]}: ", docs), option.names
    assert ("--json" in shown) == answers(command_named(name))
    assert "COMMAND" not in shown.splitlines()[0]
    assert main((name, "--ba-nana")) == 2
    said = capsys.readouterr().err
    assert said.startswith("nightshift: ")
    assert said.count("\n") == 1
