"""What a real night tells its authors: read from its own folders, and shown by a command."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from nights import PROJECT, Grounds, scripted_context
from sources import Source

from agent.night.briefing import briefing_of
from agent.night.ideas import brief
from agent.proposers.briefing import Left
from agent.records.journal import Journal
from agent.records.place import Place

PROGRAM = "# Program\n\nLower it.\n"


@pytest.fixture(scope="module")
def grounds(tmp_path_factory, trained_night):
    found = Grounds(Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("told") / "repository")))
    (found.root / "program.md").write_text(PROGRAM)
    for run in found.folder("t").glob("runs/*/seed*/out"):  # a busy machine leaves no time for a point of the curve
        points = [{"progress": step / 20, "loss": 3.0 - step / 10} for step in range(1, 21)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points) + '{"prog')
    return found


@pytest.fixture(scope="module")
def night(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    with Journal.read(place.journal("t")) as journal:
        return place, journal.night(), journal.attempts()


def test_the_setting_is_read_from_the_night_its_data_and_its_fixed_files(night):
    place, facts, history = night
    setting = briefing_of(place, facts, history, history[0], left=Left(), has_reader=True).setting
    assert setting is not None
    assert setting.cores is not None
    assert setting.cores > 0
    assert setting.memory_gb is not None
    assert setting.memory_gb > 0
    assert setting.corpus is not None
    assert setting.corpus.vocab_size > 0
    assert 1 < setting.corpus.bytes_per_token < 10
    assert {call.name.split(".")[0] for call in setting.calls} == {"prepare", "hardware", "kernels"}
    assert set(setting.curves) == {1, 2}
    assert len(setting.curves[1]) == 10
    assert setting.curves[1][0] == (0.1, pytest.approx(2.9))
    assert {idea.state for idea in setting.ideas} == {"yes"}


def test_a_night_tells_its_setting_only_where_a_source_can_read(grounds):
    with scripted_context(grounds.root, "t", []) as context:
        state = context.state()
        assert state.best is not None
        assert brief(context, state, state.best).setting is None
        told = brief(replace(context, sources=[Source("llm")]), state, state.best)
    assert told.setting is not None
    assert told.setting.calls
    assert told.left == Left(None, None)


def test_the_prompt_command_shows_what_a_model_would_be_told(grounds):
    done = grounds.nightshift("prompt", "t")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("You improve one training script, train_mlx.py")
    assert "Lower it." in done.stdout
    assert "- 1 (edits 0): keep" in done.stdout
    said = json.loads(grounds.nightshift("prompt", "--json").stdout)
    assert f"{said['system']}\n\n{said['user']}\n" == done.stdout
    assert said["user"][: said["stable_chars"]].endswith("```")


# ---- the example in docs/ --------------------------------------------------------------------------------------------

TITLES = [
    "Program", "What the script may call", "The night", "The script: train_mlx.py", "So far", "Attempts", "Loss curves",
    "Dials", "Edits", "Known ideas", "Your task",
]  # fmt: skip


def test_the_example_holds_every_part_within_sixteen_thousand_tokens():
    page = (PROJECT / "docs" / "example-prompt.txt").read_text()
    prompt = page[page.index("You improve one training script") :]
    outside = re.sub(r"(?ms)^(````*)\w*\n.*?^\1$", "", prompt)
    assert re.findall(r"(?m)^# (.+)$", outside) == TITLES
    assert len(prompt) / 3.28 < 16_000  # characters of code and tables in a token
