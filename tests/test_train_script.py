"""The training script's command line, its output and its score keep their promises."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from training import SMALL, run_script, with_dials

import prepare
import train_mlx


@pytest.fixture(scope="module")
def finished_run(tiny_data, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("run")
    script = with_dials(tmp_path, **SMALL)
    return run_script(tiny_data, "--max-steps", "30", "--out", str(tmp_path / "out"), script=script), tmp_path / "out"


def read_losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_run_on_real_text_learns_and_scores_itself(finished_run):
    process, out = finished_run
    assert process.returncode == 0, process.stderr
    losses = read_losses(out)
    assert len(losses) == 30
    assert losses[-1] < losses[0] - 0.5
    assert 1 < json.loads((out / "summary.json").read_text())["val_bpb"] < 8


def test_the_same_seed_gives_the_same_run_and_another_another(finished_run, tiny_data, tmp_path):
    script = with_dials(tmp_path, **SMALL)
    runs = {seed: tmp_path / f"seed{seed}" for seed in (0, 1)}
    for seed, out in runs.items():
        run_script(tiny_data, "--max-steps", "30", "--seed", str(seed), "--no-eval", "--out", str(out), script=script)
    first, again, other = (read_losses(out) for out in (finished_run[1], runs[0], runs[1]))
    assert first == again
    assert first != other


def test_a_run_prints_the_summary_that_its_ancestor_prints(finished_run):
    process, out = finished_run
    lines = process.stdout.split("---\n")[1].splitlines()
    keys = "val_bpb training_seconds total_seconds peak_vram_mb mfu_percent total_tokens_M num_steps num_params_M depth"
    assert [line.split(":")[0] for line in lines] == keys.split()
    summary = json.loads((out / "summary.json").read_text())
    assert float(lines[0].split(":")[1]) == pytest.approx(summary["val_bpb"], abs=1e-6)
    assert summary["num_steps"] == 30
    assert summary["depth"] == 2


def test_the_weights_of_a_run_score_what_the_run_said(finished_run, tiny_data):
    _, out = finished_run
    model = train_mlx.load_model(out / "model.safetensors")
    said = json.loads((out / "summary.json").read_text())["val_bpb"]
    assert prepare.evaluate_bpb(model, prepare.load_data(tiny_data)) == pytest.approx(said, abs=1e-5)


def test_the_clock_ends_a_run_and_no_eval_leaves_the_score_open(tiny_data, tmp_path):
    script = with_dials(tmp_path, **SMALL)
    process = run_script(tiny_data, "--budget-s", "1", "--no-eval", "--out", str(tmp_path / "out"), script=script)
    assert process.returncode == 0, process.stderr
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["val_bpb"] is None
    ends = [json.loads(line)["t_s"] for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert summary["training_seconds"] == pytest.approx(ends[-1], abs=0.06)
    longest = max(end - begin for begin, end in pairwise((0.0, *ends)))
    begun = 1 + train_mlx.QUEUED_STEPS  # steps that may end after the second
    assert all(end < 1 for end in ends[:-begun])
    assert ends[-1] + (begun - 0.5) * longest > 0.99, "another step would have ended further from the second"


def test_a_loss_that_is_no_number_ends_the_run_with_code_3(tiny_data, tmp_path):
    script = with_dials(tmp_path, **SMALL, SCALAR_LR=1e38, EMBEDDING_LR=1e38)
    process = run_script(tiny_data, "--max-steps", "50", "--out", str(tmp_path / "out"), script=script)
    assert process.returncode == 3
    assert "the loss became nan at step" in process.stderr
    assert "Traceback" not in process.stderr
    assert not (tmp_path / "out/summary.json").exists()


def test_what_cannot_fit_is_refused_in_one_sentence(tiny_data, tmp_path):
    script = with_dials(tmp_path, **{**SMALL, "BATCH_ROWS": 10_000_000})
    process = run_script(tiny_data, "--max-steps", "1", script=script)
    assert process.returncode == 2
    assert "10000000 rows would need about" in process.stderr
    assert "lower BATCH_ROWS" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    "options", [("--budget-s", "0"), ("--max-steps", "0"), ("--seed", "-1"), ("--budget-s", "nan")]
)
def test_numbers_that_mean_nothing_are_refused(tiny_data, options):
    process = run_script(tiny_data, *options)
    assert process.returncode == 2
    assert "above zero" in process.stderr


def test_an_output_folder_that_cannot_be_made_is_refused(tiny_data, tmp_path):
    (tmp_path / "file").write_text("")
    process = run_script(tiny_data, "--max-steps", "1", "--out", str(tmp_path / "file" / "out"))
    assert process.returncode == 2
    assert "name another folder" in process.stderr
    assert "Traceback" not in process.stderr


def test_progress_tells_the_speed_since_the_line_before_and_at_the_end_that_of_the_whole_run(capsys):
    log = train_mlx.Log(None, budget_s=20.0)
    for t_s, tokens in ((8.0, 800.0), (9.0, 1000.0), (16.0, 2400.0), (20.0, 4000.0)):  # the second comes too soon
        log.step(step=1, t_s=t_s, progress=t_s / 20, loss=1.0, tokens=tokens, tokens_s=1e9, mfu=1e6)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[5:7] for line in lines] == [[speed, "tokens/s"] for speed in ("100", "200", "200")]
    assert [line.split()[8] for line in lines] == ["10.0%", "20.0%", "20.0%"]
