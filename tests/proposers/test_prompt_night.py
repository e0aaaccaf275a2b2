"""What a real night tells its authors: read from its own folders, and shown by a command."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from nights import PROJECT, Grounds, scripted_context
from sources import Source

from agent.night.ideas import brief
from agent.proposers.prompts import written


@pytest.fixture(scope="module")
def grounds(tmp_path_factory, trained_night):
    grounds = Grounds(Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("told") / "repository")))
    (grounds.root / "program.md").write_text("# Program\n\nLower it.\n")
    return grounds


def test_a_night_tells_its_setting_only_where_a_source_can_read(grounds):
    with scripted_context(grounds.root, "t", []) as context:
        state = context.state()
        assert state.best is not None
        assert brief(state, state.best).setting is None
        setting = brief(replace(context, sources=[Source("llm")]).state(), state.best).setting
    assert setting is not None
    assert (setting.cores or 0) > 0
    assert (setting.memory_gb or 0) > 0
    assert setting.corpus is not None
    assert 1 < setting.corpus.bytes_per_token < 10
    assert set(setting.ideas.values()) == {"yes"}


def test_the_prompt_command_shows_what_a_model_would_be_told(grounds):
    done = grounds.nightshift("prompt", "t")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("You improve one training script, train_mlx.py")
    assert "Lower it." in done.stdout
    assert "- 1 (edits 0): keep" in done.stdout
    said = json.loads(grounds.nightshift("prompt", "--json").stdout)
    assert f"{said['system']}\n\n{said['user']}\n" == done.stdout
    assert said["user"][: said["stable_chars"]].endswith("```")


def test_the_example_in_docs_is_a_prompt_as_it_is_written_now():
    prompt = (PROJECT / "docs" / "example-prompt.txt").read_text().partition("-" * 120 + "\n\n")[2]
    outside = re.sub(r"(?ms)^(````*)\w*\n.*?^\1$", "", prompt)
    parts = ("Program", "What the script may call", "The night", "The script: train_mlx.py", "So far", "Attempts",
             "Dials", "Edits", "Known ideas", "Your task")  # fmt: skip
    assert re.findall(r"(?m)^# (.+)$", outside) == list(parts)
    for template in ("system", "calls", "explore"):
        assert written(template, script="train_mlx.py") in prompt
    attempts = outside.partition("# Attempts\n\n")[2].partition("\n\n# ")[0]
    legend, *lines = re.split(r"\n(?=- \d+)", attempts)
    template = (PROJECT / "agent" / "proposers" / "prompts" / "facts.md").read_text()
    assert legend.rpartition(" attempt ")[0] in template
    verdict = r"- \d+( \(edits \d+\))?: (keep|discard|crash|running)( \d\.\d{4}( \([+-]\d\.\d{4}( ± \d\.\d{4})?\))?)?"
    gain, costs = r"(, near miss)?(; gain [+-]\d\.\d{4}, \S+ sure)?", r"(; (speed|steps|\S+ GB)[^\"]*)?"
    assert [line for line in lines if not re.match(rf'{verdict}{gain}{costs}; ".+"', line)] == []
    assert len(lines) >= 5
    assert len(prompt) / 3.28 < 23_000  # characters of code and tables in a token
