"""The training script's command line, its output and its score keep their promises."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from nights import SMALL, run_script, with_dials

import prepare
import train_mlx


@pytest.fixture(scope="module")
def finished_run(tiny_data, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("run")
    script = with_dials(tmp_path, **SMALL)
    return run_script(tiny_data, "--max-steps", "30", "--out", str(tmp_path / "out"), script=script), tmp_path / "out"


def read_losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_run_on_real_text_learns_scores_itself_and_prints_what_its_ancestor_prints(finished_run, tiny_data):
    process, out = finished_run
    assert process.returncode == 0, process.stderr
    losses = read_losses(out)
    assert len(losses) == 30
    assert losses[-1] < losses[0] - 0.5
    lines = process.stdout.split("---\n")[1].splitlines()
    keys = "val_bpb training_seconds total_seconds peak_vram_mb mfu_percent total_tokens_M num_steps num_params_M depth"
    assert [line.split(":")[0] for line in lines] == keys.split()
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["num_steps"], summary["depth"]) == (30, 2)
    model = train_mlx.load_model(out / "model.safetensors")
    assert prepare.evaluate_bpb(model, prepare.load_data(tiny_data)) == pytest.approx(summary["val_bpb"], abs=1e-5)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_and_another_another(finished_run, tiny_data, tmp_path):
    def losses_with(seed: str) -> list[float]:
        words = ("--max-steps", "30", "--seed", seed, "--no-eval", "--out", str(tmp_path / seed))
        run_script(tiny_data, *words, script=with_dials(tmp_path, **SMALL))
        return read_losses(tmp_path / seed)

    first = read_losses(finished_run[1])
    assert first == losses_with("0")
    assert first != losses_with("1")


def test_the_clock_ends_a_run_and_no_eval_leaves_the_score_open(tiny_data, tmp_path):
    script = with_dials(tmp_path, **SMALL)
    process = run_script(tiny_data, "--budget-s", "1", "--no-eval", "--out", str(tmp_path / "out"), script=script)
    assert process.returncode == 0, process.stderr
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["val_bpb"] is None
    ends = [json.loads(line)["t_s"] for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert summary["training_seconds"] == pytest.approx(ends[-1], abs=0.06)
    late = 1 + train_mlx.QUEUED_STEPS  # steps that may end after the second
    assert all(end < 1 for end in ends[:-late])
    longest_s = max(end - begin for begin, end in pairwise((0.0, *ends)))
    assert ends[-1] + late * longest_s > 1


def test_a_run_of_many_steps_leaves_a_thousand_points_of_its_curve_and_the_last(tmp_path):
    log = train_mlx.Log(tmp_path, budget_s=300.0)
    for step in range(1, 20_001):
        log.step(step=step, t_s=step * 0.015, progress=step / 20_000, loss=1.0, tokens=step, tokens_s=67.0, mfu=0.1)
    log.metrics.close()
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == pytest.approx(1000, abs=60)
    assert max(later - earlier for earlier, later in pairwise(steps)) <= 21
    assert steps[-1] == 20_000


@pytest.mark.parametrize(
    ("options", "dials", "words"),
    [
        (("--budget-s", "nan"), {}, "'nan' is no number"),
        (("--max-steps", "1", "--out", "/dev/null/out"), {}, "name another folder"),
        (("--max-steps", "1"), {"BATCH_ROWS": 10_000_000}, "lower BATCH_ROWS"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(tiny_data, tmp_path, options, dials, words):
    process = run_script(tiny_data, *options, script=with_dials(tmp_path, **{**SMALL, **dials}))
    assert process.returncode == 2
    assert words in process.stderr
    assert "Traceback" not in process.stderr


def test_a_loss_that_is_no_number_ends_the_run_with_code_3(tiny_data, tmp_path):
    script = with_dials(tmp_path, **SMALL, SCALAR_LR=1e38, EMBEDDING_LR=1e38)
    process = run_script(tiny_data, "--max-steps", "50", "--out", str(tmp_path / "out"), script=script)
    assert process.returncode == 3
    assert "the loss became nan at step" in process.stderr
    assert not (tmp_path / "out/summary.json").exists()
