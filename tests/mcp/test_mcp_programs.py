"""Claude Code and Codex CLI themselves start the server and call a tool; their models are scripted, on loopback.

npm install @anthropic-ai/claude-code @openai/codex
PATH=$PWD/node_modules/.bin:$PATH uv run pytest -m slow tests/mcp/test_mcp_programs.py
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from nights import Grounds, command, environment, unigram
from toolcallers import DONE, ToolCaller

pytestmark = pytest.mark.slow
TOOL = "mcp__nightshift__try_edit"
ARGUMENTS = {"message": "sharper", "script_text": unigram(SHARPNESS=0.9)}
VERDICT = " better than the incumbent"


def run(words: list[str], folder: Path, env: Mapping[str, str]) -> str:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not on PATH")
    done = subprocess.run(
        words, cwd=folder, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def own_home(tmp_path: Path) -> dict[str, str]:
    """An environment in which the programs find no settings and no login of the user's."""
    (tmp_path / "home" / "codex").mkdir(parents=True)
    mine = environment(HOME=str(tmp_path / "home"), CODEX_HOME=str(tmp_path / "home" / "codex"))
    keys = {"ANTHROPIC_API_KEY": "sk-test", "TOY_KEY": "sk-test"}
    return mine | keys | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


@pytest.fixture
def night(grounds: Grounds) -> Grounds:
    grounds.try_scripts("t", [])
    return grounds


def words_of(program: str, url: str) -> tuple[list[str], dict[str, str]]:
    """The command line that has a program try an edit, and what its environment needs for that."""
    if program == "claude":
        ask = ["claude", "-p", "Try an edit.", "--allowedTools", "mcp__nightshift", "--output-format", "json"]
        return ask, {"ANTHROPIC_BASE_URL": url}
    settings = (
        "mcp_servers.nightshift.required=true",
        f'model_providers.toy={{name="toy", base_url="{url}/v1", env_key="TOY_KEY", wire_api="responses"}}',
        *("model_provider=toy", "model=toy"),
    )
    options = [word for setting in settings for word in ("-c", setting)]
    return ["codex", "exec", "--ephemeral", "--json", *options, "Try an edit."], {}


@pytest.mark.parametrize(("program", "connected"), [("claude", "✔ Connected"), ("codex", "nightshift")])
def test_a_program_connects_offers_the_tools_and_tries_an_edit(night, own_home, program, connected):
    run([program, "mcp", "add", "nightshift", "--env", f"PYTHONPATH={own_home['PYTHONPATH']}", "--", *command("mcp")],
        night.root, own_home)  # fmt: skip
    assert connected in run([program, "mcp", "list"], night.root, own_home)
    with ToolCaller((TOOL, ARGUMENTS)) as model:
        ask, needs = words_of(program, model.url)
        assert DONE in run(ask, night.root, own_home | needs)
    assert TOOL in model.tools()  # Claude Code is shown those that it has searched for
    assert VERDICT in model.results()[-1]
    assert night.attempts("t")[1].status == "keep"
