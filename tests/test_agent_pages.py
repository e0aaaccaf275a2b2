"""What coding agents read: the skill and AGENTS.md say one thing, and all that they name exists."""

import re
import shlex

import pytest
from json_page import HEAD, tables
from nights import PROJECT, options_of

from agent.cli.init import SKILLS, text_of
from agent.cli.main import COMMANDS, without_json
from agent.invocation import SKILL

PAGE = (PROJECT / SKILL).read_text()
AGENTS = (PROJECT / "AGENTS.md").read_text()
# words in backticks that are no keys of an answer: values of keys, tools and commands
VALUES = {"keep", "discard", "crash", "done", "waiting", "running", "confirm", "nightshift"}


def lines_typed() -> list[str]:
    """The commands of the skill: those in indented blocks, which may go over lines, and those in backticks."""
    blocks = re.findall(r"(?m)^    nightshift [^\n]*(?:\n    (?!nightshift )[^\n]+)*", text_of(PAGE))
    return [*blocks, *re.findall(r"`(nightshift [^`]+)`", text_of(PAGE))]


def test_programs_find_one_skill_where_they_look_and_agents_md_begins_with_its_text():
    assert {(PROJECT / name).resolve() for name in SKILLS} == {PROJECT / SKILL}
    assert AGENTS.startswith(text_of(PAGE) + "\n# How does an agent change nightshift itself?\n")


def test_the_skill_has_the_header_that_agents_choose_it_by():
    header = dict(line.split(": ", 1) for line in PAGE.split("---\n")[1].splitlines())
    assert header.keys() == {"name", "description"}
    assert header["name"] == (PROJECT / SKILL).parent.name
    assert len(header["description"]) < 1024


def test_the_skill_names_each_command_of_a_try():
    for words in ("status", "take best", "try --start", "try --wait", "show N --log"):
        assert f"nightshift {words}" in PAGE


@pytest.mark.parametrize("line", lines_typed())
def test_every_command_with_its_options_is_one(line):
    words = shlex.split(line.replace(" N ", " 4 "), comments=True)[1:]
    words = [word for word in words if word != "…"]
    if len(words) == 1:
        assert words[0] in COMMANDS
        return
    assert options_of(*without_json(words)[0]) is not None


def test_every_key_is_one_of_the_page_about_answers_and_every_tool_one_of_the_server():
    from agent.mcp import TOOLS  # imports the SDK

    tools = {tool.__name__ for tool in TOOLS}
    in_its_prose = {"go_on_with", "missing_edits"}
    keys = {name for section in tables().values() for name in section} | in_its_prose
    named = set(re.findall(r"`([a-z_]+)`", text_of(PAGE))) - VALUES - tools
    assert {"next", "tries", "honest"} <= named
    assert named <= keys
    assert {"error", "exit_code"} <= tables()[HEAD].keys()
    listed = text_of(PAGE).partition("(MCP: ")[2].partition(")")[0]
    assert set(re.findall(r"`([a-z_]+)`", listed)) == tools
