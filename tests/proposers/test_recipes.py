"""The recipes of docs/agents.md, run as they are written; the models of the programs are scripted, on loopback.

npm install @anthropic-ai/claude-code @openai/codex
PATH=$PWD/node_modules/.bin:$PATH uv run pytest -m slow tests/proposers/test_recipes.py
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import EDITED, Agent, brief
from llm_servers import TOKENS_IN, TOKENS_OUT
from toolcallers import ToolCaller

from agent.files import remove
from agent.proposers.command import Command
from agent.proposers.proposer import Messages

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
IDEA = "half the step size\n\nIt overshoots.\n"


def recipe(program: str) -> str:
    """Return a program's command line as the page has it, on one line."""
    (command_line,) = re.findall(rf"(?m)^    --command '({program} [^']+)'$", PAGE)
    return " ".join(command_line.split())


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home without settings and logins; not in /tmp, where Codex puts no helper programs."""
    folder = Path(tempfile.mkdtemp(prefix=".nightshift-test-", dir=Path.home()))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("CODEX_HOME", str(folder))
    for name, value in {"ANTHROPIC_API_KEY": "sk-test", "TOY_KEY": "sk-test", "DISABLE_AUTOUPDATER": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    yield folder
    remove(folder)


def proposed(program: str, folder: Path, model: ToolCaller) -> Agent:
    """Ask for one edit, and compare it with what the model was to write."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on PATH")
    agent = Agent(folder)
    proposal = Command(recipe(program), agent.folder, Messages(agent.asks.append)).proposals(brief())[0]
    assert (proposal.script, proposal.title, proposal.hypothesis) == (EDITED, "half the step size", "It overshoots.")
    assert len(model.results()) == len(model.calls)
    return agent


def test_claude_code_edits_the_script_and_says_what_it_cost(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    edit = {"file_path": "{cwd}/train_mlx.py", "old_string": "LR = 0.04", "new_string": "LR = 0.02"}
    calls = [
        ("Read", {"file_path": "{cwd}/train_mlx.py"}), ("Edit", edit),
        ("Write", {"file_path": "{cwd}/IDEA.md", "content": IDEA}),
    ]  # fmt: skip
    with ToolCaller(*calls) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        (ask,) = proposed("claude", tmp_path, model).asks
    assert ask.usd is not None
    assert (ask.tokens_in, ask.tokens_out) == (4 * TOKENS_IN, 4 * TOKENS_OUT)  # the sum of four answers
    assert "Bash" not in model.tools()


def test_codex_edits_the_script_and_counts_its_tokens(home: Path, tmp_path: Path):
    edit = "sed -i 's/^LR = .*/LR = 0.02/' train_mlx.py && printf 'half the step size\\n\\nIt overshoots.\\n' > IDEA.md"
    outside = f"touch {home}/outside"
    with ToolCaller(("exec_command", {"cmd": outside}), ("exec_command", {"cmd": edit})) as model:
        toy = f'{{name = "toy", base_url = "{model.url}/v1", env_key = "TOY_KEY", wire_api = "responses"}}'
        (home / "config.toml").write_text(f'model = "toy"\nmodel_provider = "toy"\nmodel_providers.toy = {toy}\n')
        (ask,) = proposed("codex", tmp_path, model).asks
    assert (ask.tokens_in, ask.tokens_out) == (3 * TOKENS_IN, 3 * TOKENS_OUT)  # the sum of three answers
    assert "Read-only file system" in model.results()[0]
    assert not (home / "outside").exists()
