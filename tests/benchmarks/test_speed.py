"""The comparisons with peers: processes are watched, and scores are ours."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
import psutil
import pytest

import prepare
import train_mlx

BENCHMARKS = Path(train_mlx.__file__).parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import measure  # noqa: E402
import train_speed  # noqa: E402

SMALL = ("--set", "DEPTH=2", "ASPECT_RATIO=32", "HEAD_DIM=32", "BATCH_ROWS=1")

UNIGRAM_PEER = """
import time
import mlx.core as mx
from prepare import MAX_SEQ_LEN, TIME_BUDGET, Tokenizer, evaluate_bpb, make_dataloader

tokenizer = Tokenizer.from_directory()
counts = mx.ones(tokenizer.get_vocab_size())
loader = make_dataloader(tokenizer, 8, MAX_SEQ_LEN, "train")
start, step = time.time(), 0
while time.time() - start < TIME_BUDGET:
    x, y, epoch = next(loader)
    counts = counts.at[y.reshape(-1)].add(1)
    mx.eval(counts)
    step += 1
    print(f"\\rstep {step:05d} | tok/sec: 1,{step % 1000:03d} | remaining", end="", flush=True)


def model(x, y, reduction="mean"):
    assert x.shape == y.shape == (3, MAX_SEQ_LEN)
    return (mx.log(mx.sum(counts)) - mx.log(counts[y])).reshape(-1)


print("\\n---")
print(f"val_bpb:          {evaluate_bpb(model, tokenizer, 3):.6f}")
print(f"training_seconds: {TIME_BUDGET:.1f}")
print(f"peak_vram_mb:     {mx.get_peak_memory() / 2**20:.1f}")
print(f"total_tokens_M:   {step * 8 * MAX_SEQ_LEN / 1e6:.1f}")
"""


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """A clone of somebody's: a training script for MLX that counts tokens."""
    (tmp_path / "peer").mkdir()
    (tmp_path / "peer" / "train.py").write_text(UNIGRAM_PEER)
    return tmp_path / "peer"


def run_program(name: str, *options: object) -> subprocess.CompletedProcess:
    command = [sys.executable, BENCHMARKS / name, *map(str, options)]
    return subprocess.run(command, cwd=BENCHMARKS.parent, capture_output=True, text=True, timeout=600, check=False)


# ---- watching processes ----------------------------------------------------------------------------------------------


def test_a_start_ends_where_the_first_step_that_trains_begins():
    lines = ((0.5, "warming up"), (4.0, "step     1   12.5%"), (6.0, "step     2"))
    watched = measure.Watched(seconds=9.0, lines=lines, peak_rss_gb=0.1, cpu_s=1.0)
    assert train_speed.start_seconds(watched, [{"t_s": 1.5}, {"t_s": 3.5}]) == 2.5


def test_a_program_that_outlasts_its_limit_is_ended_with_its_children(tmp_path):
    code = "import subprocess as s; print(s.Popen(['sleep', '60']).pid, flush=True); s.run(['sleep', '60'])"
    with pytest.raises(measure.Failed, match="was still running at its limit") as caught:
        measure.watch([sys.executable, "-c", code], env=dict(os.environ), cwd=tmp_path, limit_s=2.0)
    time.sleep(0.1)
    child = int(str(caught.value).split()[-1])
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


# ---- the score -------------------------------------------------------------------------------------------------------


def test_the_score_for_any_library_is_that_of_the_harness(tiny_data):
    data = prepare.load_data(tiny_data)
    mx.random.seed(0)
    logits = mx.random.normal((data.vocab_size, data.vocab_size))

    def losses_of(x, y):
        assert x.shape == y.shape == (7, data.seq_len)
        chosen = logits[mx.array(x)]
        return np.array(mx.logsumexp(chosen, -1) - mx.take_along_axis(chosen, mx.array(y)[..., None], -1)[..., 0])

    ours = prepare.evaluate_bpb(lambda tokens: logits[tokens], data)
    assert measure.bits_per_byte(losses_of, data, rows=7) == pytest.approx(ours, abs=1e-6)


def unigram_score(data: prepare.Data, counts: np.ndarray) -> float:
    tokens = data.split("validation").tokens[1:]
    nats = np.log(counts.sum()) - np.log(counts[tokens])
    of_text = data.token_bytes[tokens] > 0
    return float(nats[of_text].sum() / math.log(2) / data.token_bytes[tokens].sum())


# ---- the programs ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_train_speed_measures_both_ways_of_running_the_script(own_cache, tmp_path):
    flat_file = tmp_path / "flat.json"
    done = run_program("train_speed.py", "--quick", "--contestants", "ours", "stock_mlx", *SMALL, "--json", flat_file)
    assert done.returncode == 0, done.stderr
    flat = json.loads(flat_file.read_text())
    assert flat["ratio_stock_mlx_tokens_s"] == pytest.approx(flat["tokens_s"] / flat["stock_mlx_tokens_s"], rel=1e-3)
    assert (flat["depth"], flat["width"], flat["batch_rows"], flat["device_kind"]) == (2, 64, 1, "cpu")
    assert 0 < flat["warm_start_s"] < 60
    assert 0 < flat["cold_start_s"] < 60
    assert 0 < flat["mfu"] < 1
    assert 0.05 < flat["peak_memory_gb"] < 8


@pytest.mark.slow
def test_five_minutes_scores_a_peer_on_our_text_and_goes_on_where_it_stopped(own_cache, peer, tmp_path, tiny_data):
    flat_file, folder = tmp_path / "flat.json", tmp_path / "kept"
    options = ("--quick", "--budget-s", "1", *SMALL, "--peer", f"uni-gram={peer}", "--folder", folder)
    done = run_program("five_minutes.py", *options, "--json", flat_file)
    assert done.returncode == 0, done.stderr
    flat = json.loads(flat_file.read_text())
    data = prepare.load_data(tiny_data)
    counts = np.bincount(data.split("train").tokens, minlength=data.vocab_size) + 1.0
    assert flat["uni_gram_val_bpb"] == pytest.approx(unigram_score(data, counts), abs=0.05)
    assert flat["ratio_uni_gram_val_bpb"] == pytest.approx(flat["val_bpb"] / flat["uni_gram_val_bpb"], abs=1e-3)
    assert 1000 <= flat["uni_gram_tokens_s"] < 2000
    for prefix in ("", "uni_gram_"):
        assert 0 < flat[prefix + "seconds_beyond"] < 60
        assert 0.05 < flat[prefix + "peak_memory_gb"] < 8
        assert flat[prefix + "training_s"] == pytest.approx(1, abs=0.6)
    (peer / "train.py").write_text("import mlx; raise SystemExit('this must not run again')")
    again = run_program("five_minutes.py", *options, "--json", tmp_path / "again.json")
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "again.json").read_text()) == flat
    other = run_program("five_minutes.py", *options, "--first-seed", "3", "--json", tmp_path / "other.json")
    assert "this must not run again" in other.stderr
    assert (folder / "runs" / "ours-3" / "result.json").exists()

    alone = run_program("five_minutes.py", *options, "--no-ours", "--json", tmp_path / "alone.json")
    assert alone.returncode == 0, alone.stderr
    peers_only = json.loads((tmp_path / "alone.json").read_text())  # no figure of a peer has the name of one of ours
    assert peers_only["uni_gram_val_bpb"] == flat["uni_gram_val_bpb"]
    assert "val_bpb" not in peers_only
    assert peers_only["ratio_uni_gram_val_bpb"] is None
