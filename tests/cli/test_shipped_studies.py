"""The studies in experiments/studies: each plan can begin, and the plain scripts of their arms train and are scored."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from nights import PROJECT, SCRIPT, Grounds, make_repository

from agent.judging.study_plan import read_plan
from agent.proposers.arms import scripts_of
from agent.records.place import Place
from agent.script.dials import read_dials

STUDIES = PROJECT / "experiments" / "studies"
PLANS = sorted(path.name for path in STUDIES.glob("*.toml"))
OF_PARTS_THAT_A_CPU_LACKS = "parts-of-the-script.toml"
QUICK_OF_SCRIPTS = [name for name in PLANS if "quick" in name and 'script = "' in (STUDIES / name).read_text()]


@pytest.fixture
def grounds(tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> Grounds:
    """A user's repository with the shipped script and studies, and a small corpus."""
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    root = make_repository(tmp_path / "user", SCRIPT.read_text())
    shutil.copytree(STUDIES, root / "experiments" / "studies")
    return Grounds(root)


def test_every_plan_can_begin(grounds):
    assert QUICK_OF_SCRIPTS
    for name in sorted({*PLANS} - {OF_PARTS_THAT_A_CPU_LACKS}):
        dry = grounds.nightshift("study", f"experiments/studies/{name}", "--dry", "--json")
        assert dry.returncode == 0, name + dry.stdout + dry.stderr
        assert json.loads(dry.stdout)["runs"] >= 4
    refused = grounds.nightshift("study", f"experiments/studies/{OF_PARTS_THAT_A_CPU_LACKS}", "--dry")
    assert "it is the script of arm everything again" in refused.stderr


def test_no_text_is_too_short_for_the_n_grams_where_they_are_compared(grounds):
    file = grounds.root / "experiments" / "studies" / OF_PARTS_THAT_A_CPU_LACKS
    text, place = file.read_text(), Place.of(grounds.root / "train_mlx.py")
    for name, script in scripts_of(read_plan(text), text, file, place, "cuda").items():
        dials = {dial.name: dial.value for dial in read_dials(script, "cuda")}
        assert dials["ENGRAM_TOKENS_S"] == 0, name
        assert dials["ENGRAM_LAYERS"] == ("" if name == "no_ngrams" else "15")


def test_a_wrong_tag_is_told_in_a_sentence(grounds):
    ranks = [sys.executable, grounds.root / "experiments" / "studies" / "short_predicts_long.py", "nope", "nor-this"]
    done = subprocess.run(ranks, cwd=grounds.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "nope" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK_OF_SCRIPTS)
def test_every_arm_of_a_quick_form_trains_and_is_scored(grounds, name):
    plan = grounds.root / "experiments" / "studies" / name
    shortened = re.sub(r"(?m)^budget_s = .*", "budget_s = 0.3", plan.read_text())
    plan.write_text(re.sub(r"(?m)^seeds = .*", "seeds = 2", shortened))
    done = grounds.nightshift("study", str(plan), "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(grounds.nightshift("study", plan.stem, "--json").stdout)["results"]
    assert found["is_complete"]
    assert [arm["name"] for arm in found["arms"] if arm["fault"] is not None] == []


@pytest.mark.parametrize("dials", [{}, {"QUERIES_PER_KV": 2}, {"ATTENTION": "latent"}], ids=str)
def test_a_token_is_expected_alike_with_and_without_a_cache(dials):
    text = (STUDIES / "mla.py").read_text()
    for name, value in dials.items():
        text = re.sub(rf"(?m)^{name} = .*?(  #|$)", rf"{name} = {value!r}\1", text)
    script = {"__name__": "mla"}
    exec(compile(text, "mla.py", "exec"), script)
    model, tokens = script["GPT"](50), mx.random.randint(0, 50, (3, 12))
    caches = [block.attention.empty_cache(3, 12) for block in model.blocks]
    one_by_one = [model(tokens[:, at : at + 1], at, caches) for at in range(12)]
    assert mx.allclose(mx.concatenate(one_by_one, axis=1), model(tokens), atol=1e-4)
    other = mx.array(tokens)
    other[:, 4] = (tokens[:, 4] + 1) % 50
    is_moved = mx.abs(model(other) - model(tokens)).max(axis=(0, 2)) > 1e-3
    assert is_moved.tolist() == [at >= 4 for at in range(12)]  # nothing looks ahead
