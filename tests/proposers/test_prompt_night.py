"""What a real night tells its proposers: read from its own folders, and shown by a command."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from briefings import briefing_of
from nights import PROJECT, Grounds, scripted_context
from proposing import Proposer

from agent.night.proposals import brief
from agent.proposers.prompts import written


@pytest.fixture(scope="module")
def grounds(tmp_path_factory, trained_night):
    grounds = Grounds(Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("told") / "repository")))
    (grounds.root / "program.md").write_text("# Program\n\nLower it.\n")
    return grounds


def test_a_night_tells_its_setting_only_where_a_proposer_can_read(grounds):
    with scripted_context(grounds.root, "t", []) as context:
        state = context.state()
        assert state.best is not None
        assert brief(state, state.best).setting is None
        setting = brief(replace(context, proposers=[Proposer("llm")]).state(), state.best).setting
    assert setting is not None
    assert 1 < setting.corpus.bytes_per_token < 10
    assert set(setting.ideas.values()) == {"no"}  # none applies to this script, which is no transformer


def test_the_prompt_command_shows_what_a_model_would_be_told(grounds):
    done = grounds.nightshift("prompt", "t")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("You improve one training script, train_mlx.py")
    assert "Lower it." in done.stdout
    assert "- 1 (edits 0): keep" in done.stdout
    facts = json.loads(grounds.nightshift("prompt", "--json").stdout)
    assert f"{facts['system']}\n\n{facts['user']}\n" == done.stdout


def test_the_example_in_docs_is_a_prompt_as_it_is_written_now():
    prompt = (PROJECT / "docs" / "example-prompt.txt").read_text().partition("-" * 120 + "\n\n")[2]
    outside = re.sub(r"(?ms)^(````*)\w*\n.*?^\1$", "", prompt)
    parts = ("Program", "What the script may call", "The night", "The script: train_mlx.py", "So far", "Attempts",
             "Dials", "Edits", "Known ideas", "Your task")  # fmt: skip
    assert re.findall(r"(?m)^# (.+)$", outside) == list(parts)
    for template in ("system", "calls", "explore"):
        assert written(template, script="train_mlx.py", briefing=briefing_of()) in prompt
