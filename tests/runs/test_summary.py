"""A script's summary is read number by number: impossible ones are left out, and the others stay."""

import json

import pytest

from agent.experiment import Ending, Run, Summary
from agent.runs.train import read_summary, slow

TRUE = {
    "training_seconds": 300, "total_seconds": 310.5, "peak_vram_mb": 512.0, "mfu_percent": 0.0, "total_tokens_M": 0.0,
    "num_steps": 0, "num_params_M": 0.5, "depth": 0,
}  # fmt: skip


def test_true_numbers_are_read_zero_where_it_means_something(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(TRUE | {"val_bpb": None, "attention": "kernel"}))
    assert read_summary(tmp_path) == Summary(**TRUE)


@pytest.mark.parametrize("name", sorted(TRUE))
def test_a_false_number_is_absent_and_the_others_stay(name, tmp_path):
    false = ["-1", "NaN", "Infinity", "-Infinity", "1e300", "1" + "0" * 400, '"512"', "true", "null", "[1]", "{}"]
    false += ["0", "0.0"] if name in ("peak_vram_mb", "num_params_M") else []
    false += ["12.0", "0.5"] if name in ("num_steps", "depth") else []
    for value in false:
        others = json.dumps({other: TRUE[other] for other in TRUE if other != name})
        (tmp_path / "summary.json").write_text(f'{others[:-1]}, "{name}": {value}}}')
        assert read_summary(tmp_path) == Summary(**TRUE | {name: None}), value


@pytest.mark.parametrize(
    ("steps", "seconds", "usual_steps_s", "told"),
    [(750, 1000.0, 1.0, "it trained 25% slower than other runs of its script"), (850, 1000.0, 1.0, None),
     (500, 1000.0, None, None), (1, 1.9, 1.0, None)],
)  # fmt: skip
def test_a_run_that_lost_a_fifth_of_its_scripts_usual_speed_is_told(steps, seconds, usual_steps_s, told):
    summary = Summary(training_seconds=seconds, num_steps=steps)
    assert slow(Run(0, Ending.FINISHED, 0, seconds, summary, ""), usual_steps_s) == told
