"""Claude Code and Codex CLI themselves start the server and call a tool; their models are scripted, on loopback.

npm install @anthropic-ai/claude-code @openai/codex
PATH=$PWD/node_modules/.bin:$PATH uv run pytest -m slow tests/mcp/test_mcp_programs.py
"""

import json
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
VERDICT = "below the incumbent"
OFFERED = {f"mcp__nightshift__{name}" for name in ("wait", "facts", "history", "show", "take", "note")}


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


def test_claude_code_connects_finds_the_tools_and_tries_an_edit(night: Grounds, own_home: dict[str, str]):
    run(["claude", "mcp", "add", "nightshift", "-e", f"PYTHONPATH={own_home['PYTHONPATH']}", "--", *command("mcp")],
        night.root, own_home)  # fmt: skip
    assert "✔ Connected" in run(["claude", "mcp", "list"], night.root, own_home)
    ask = ["claude", "-p", "Try an edit.", "--allowedTools", "mcp__nightshift", "--output-format", "json"]
    with ToolCaller((TOOL, ARGUMENTS)) as model:
        said = run(ask, night.root, own_home | {"ANTHROPIC_BASE_URL": model.url})
    assert json.loads(said)["result"] == DONE
    assert json.loads(said)["permission_denials"] == []
    assert all(name in json.dumps(model.asked) for name in OFFERED)  # it searches for tools before it is shown them
    assert TOOL in model.tools()
    assert VERDICT in model.results()[-1]
    assert night.attempts("t")[1].status == "keep"


def test_codex_connects_offers_the_tools_and_tries_an_edit(night: Grounds, own_home: dict[str, str]):
    run(["codex", "mcp", "add", "nightshift", "--env", f"PYTHONPATH={own_home['PYTHONPATH']}", "--", *command("mcp")],
        night.root, own_home)  # fmt: skip
    assert "nightshift" in run(["codex", "mcp", "list"], night.root, own_home)
    with ToolCaller((TOOL, ARGUMENTS)) as model:
        toy = f'{{name="toy", base_url="{model.url}/v1", env_key="TOY_KEY", wire_api="responses"}}'
        settings = (
            "mcp_servers.nightshift.required=true",
            f"model_providers.toy={toy}",
            "model_provider=toy",
            "model=toy",
        )
        options = [word for setting in settings for word in ("-c", setting)]
        ask = ["codex", "exec", "--ephemeral", "--json", *options, "Try an edit."]
        events = [json.loads(line) for line in run(ask, night.root, own_home).splitlines()]
    (call,) = [
        one["item"] for one in events if one["type"] == "item.completed" and one["item"]["type"] == "mcp_tool_call"
    ]
    assert (call["server"], call["tool"], call["status"]) == ("nightshift", "try_edit", "completed")
    assert call["result"]["structured_content"]["status"] == "keep"
    assert model.tools() >= OFFERED
    assert VERDICT in model.results()[-1]
    assert night.attempts("t")[1].status == "keep"
