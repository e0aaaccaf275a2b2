"""What coding agents read: the skill and AGENTS.md say one thing, and all that they name exists."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from json_page import HEAD, tables
from nights import PROJECT, environment, options_of
from toolcallers import DONE, ToolCaller

from agent.cli.init import SKILLS, text_of
from agent.cli.main import COMMANDS, without_json
from agent.invocation import SKILL
from agent.mcp import TOOLS as SERVED

PAGE = (PROJECT / SKILL).read_text()
AGENTS = (PROJECT / "AGENTS.md").read_text()
# words in backticks that are no keys of an answer: values of keys, tools and commands
VALUES = {"keep", "discard", "crash", "done", "waiting", "running", "confirm", "nightshift"}
TOOLS = {tool.__name__ for tool in SERVED}


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


@pytest.mark.parametrize("line", lines_typed())
def test_every_command_with_its_options_is_one(line):
    words = shlex.split(line.replace(" N ", " 4 "), comments=True)[1:]
    words = [word for word in words if word != "…"]
    if len(words) == 1:
        assert words[0] in COMMANDS
        return
    assert options_of(*without_json(words)[0]) is not None


def test_every_key_is_one_of_the_page_about_answers_and_every_tool_one_of_the_server():
    in_its_prose = {"go_on_with", "missing_edits"}
    known = {name for section in tables().values() for name in section} | in_its_prose
    named = set(re.findall(r"`([a-z_]+)`", text_of(PAGE))) - VALUES - TOOLS
    assert {"next", "tries", "honest"} <= named
    assert named <= known
    assert {"error", "exit_code"} <= tables()[HEAD].keys()
    listed = text_of(PAGE).partition("(MCP: ")[2].partition(")")[0]
    assert set(re.findall(r"`([a-z_]+)`", listed)) == TOOLS


# ---- the programs themselves -----------------------------------------------------------------------------------------


def asked(root: Path, tmp_path: Path, program: str) -> str:
    """What a program tells its model, played on loopback, about the folder that it was started in."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on PATH")
    (tmp_path / "home" / "codex").mkdir(parents=True)
    keys = {"ANTHROPIC_API_KEY": "sk-test", "TOY_KEY": "sk-test", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    env = environment(HOME=str(tmp_path / "home"), CODEX_HOME=str(tmp_path / "home" / "codex"), **keys)
    with ToolCaller("none", {}) as model:
        toy = f'{{name="toy", base_url="{model.url}/v1", env_key="TOY_KEY", wire_api="responses"}}'
        settings = (f"model_providers.toy={toy}", "model_provider=toy", "model=toy")
        codex = ["exec", "--ephemeral", *(word for setting in settings for word in ("-c", setting)), "Hello"]
        done = subprocess.run(
            [program, *(codex if program == "codex" else ["-p", "Hello"])],
            cwd=root, env=env | {"ANTHROPIC_BASE_URL": model.url}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    assert DONE in done.stdout, done.stdout + done.stderr
    return str(model.asked)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["claude", "codex"])
@pytest.mark.parametrize("is_clone", [False, True])
def test_claude_code_and_codex_show_their_models_both_pages(grounds, tmp_path, program, is_clone):
    if is_clone:
        for name in ("AGENTS.md", *SKILLS):
            (grounds.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROJECT / name, grounds.root / name, follow_symlinks=False)
    else:
        assert grounds.nightshift("init").returncode == 0
    shown = asked(grounds.root, tmp_path, program)
    assert "How does an agent do research with nightshift?" in shown
    assert "Use it when asked to lower val_bpb" in shown
