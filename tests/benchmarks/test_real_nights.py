"""The comparison of proposers by real nights: what it makes of records, its commands, a cut."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import wait_until
from nights import PROJECT, environment

from agent.records.journal import Journal

BENCHMARKS = PROJECT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import real_nights  # noqa: E402

SHIPPED = PROJECT / "experiments" / "shipped"


def test_the_published_figures_are_those_of_the_shipped_records():
    flat = real_nights.flatten(real_nights.read_all(SHIPPED, "nov22-cpu"))
    assert (flat["mix_nights"], flat["mix_attempts"], flat["mix_kept"], flat["mix_crashes"]) == (4, 32, 6, 0)
    interval = [flat[f"mix_honest{end}"] for end in ("", "_low", "_high")]
    assert interval == pytest.approx([0.234, 0.200, 0.268], abs=5e-4)
    assert (flat["mix_recorded"], flat["mix_holdout"]) == pytest.approx((0.280, 0.397), abs=6e-4)
    assert flat["mix_over_search"] == pytest.approx(flat["mix_honest"] - flat["search_honest"])
    assert flat["mix_over_search_low"] < 0 < flat["mix_over_search_high"]
    assert (flat["mix_catalogue_attempts"], flat["mix_search_attempts"]) == (23, 9)
    json.dumps(flat, allow_nan=False)


def test_nights_of_two_kinds_are_not_compared(capsys):
    assert real_nights.main(["--report", "--folder", str(SHIPPED)]) == 2
    assert "do not compare" in capsys.readouterr().err


def test_the_arms_differ_in_the_proposer_alone(tmp_path):
    model = "--command 'coder --team ours' --agent-minutes 3"
    nights = real_nights.planned(["model", "search=2"], model, "n", tmp_path)
    assert [night.clone.name for night in nights] == ["n-model-0", "n-search-0", "n-search-1"]
    commands = [night.command(["--experiments", "12"])[4:] for night in nights]
    proposers = [words[words.index("--proposer") + 1 :] for words in commands]
    assert proposers == [["command", "--command", "coder --team ours", "--agent-minutes", "3"], ["search"], ["search"]]
    others = {tuple(words[2 : words.index("--proposer")]) for words in commands}
    assert others == {("--seed", "0", "--experiments", "12"), ("--seed", "100", "--experiments", "12")}


def started(out: Path, *words: str) -> subprocess.Popen[str]:
    options = ("--quick", "--name", "x", "--folder", str(out), *words)
    command = [sys.executable, str(BENCHMARKS / "real_nights.py"), *options]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow  # a dozen runs
@pytest.mark.usefixtures("own_cache")
def test_real_nights_are_cut_off_and_reported(tmp_path):
    out = tmp_path / "out"
    process = started(out, "--arms", "search")
    journal = out / "work" / "x-search-0" / "experiments" / "nights" / "x-search-0" / "journal.sqlite"

    def has_a_result() -> bool:
        if not journal.exists():
            return False
        with Journal.read(journal) as night:
            return any(attempt.decision for attempt in night.attempts())

    wait_until(has_a_result, 120)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output

    process = started(out, "--report", "--json", str(tmp_path / "flat.json"))
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    flat = json.loads((tmp_path / "flat.json").read_text())
    assert flat["search_nights"] == 1

    process = started(out, "--arms", "mix", "--json", str(tmp_path / "flat.json"))
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    flat = json.loads((tmp_path / "flat.json").read_text())
    assert (flat["search_nights"], flat["mix_attempts"]) == (1, 2)
