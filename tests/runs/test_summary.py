"""A script's summary is read number by number: impossible ones are left out, and the others stay."""

import json
from dataclasses import replace

import pytest

from agent.experiment import Attempt, Ending, Proposal, Run, Summary
from agent.runs.train import read_summary, slow, usual_steps_s

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
    false += ["12.0", "0.5"] if name in ("num_steps", "depth") else []
    for value in false:
        others = json.dumps({other: TRUE[other] for other in TRUE if other != name})
        (tmp_path / "summary.json").write_text(f'{others[:-1]}, "{name}": {value}}}')
        assert read_summary(tmp_path) == Summary(**TRUE | {name: None}), value


def timed(steps_s: float, trained_s: float = 1000.0) -> Run:
    summary = Summary(training_seconds=trained_s, num_steps=round(steps_s * trained_s))
    return Run(0, Ending.FINISHED, 0, trained_s, summary, "")


def test_a_run_that_is_a_fifth_slower_than_others_of_its_script_is_told():
    edit = Attempt(1, 0, Proposal("", "", ""), "", runs=(timed(10.0), timed(12.0), timed(11.0)))
    assert usual_steps_s(edit) == 11.0
    assert slow(timed(0.79 * 11.0), 11.0) == "it trained 21% slower than other runs of its script"
    assert slow(timed(0.81 * 11.0), 11.0) is slow(timed(1.0), None) is None
    assert slow(timed(1.0, trained_s=1.9), 11.0) is None, "too short to tell"
    assert usual_steps_s(replace(edit, number=0, runs=(timed(10.0),))) is None, "its first run compiles"
