"""The replay of benchmarks/early_stop.py: of nights known by hand, of a real one, of simulated ones."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
from judged import finished
from nights import PROJECT
from samples import NIGHT, RUN

sys.path.insert(0, str(PROJECT / "benchmarks"))

import early_stop
from early_stop import Tried, replay

from agent.experiment import Decision, Kind, Proposal, Score
from agent.judging.early_stop import FRACTIONS, LEAST_RUNS, Finished
from agent.records.journal import Journal


def tried(number: int, first: Finished | None, *, good: bool = False) -> Tried:
    """Of a night whose attempt 0 stays the incumbent, with val_bpb 1.8; runs of 100 s that are scored in no time."""
    ahead_s = tuple(100 * (1 - mark) for mark in FRACTIONS)
    best, best_bpb = (0, 1.8) if number else (None, None)
    return Tried(number, best, best_bpb, first, good, 100.0, ahead_s)


def night_of(*last: Tried) -> list[Tried]:
    """The baseline, what is learnt from, and these."""
    return [*(tried(k, finished(1.8 + 0.01 * k, above=0.001 * (-1) ** k)) for k in range(LEAST_RUNS)), *last]


def test_a_bad_run_is_stopped_at_the_first_look_and_saves_the_rest():
    found = replay(night_of(tried(LEAST_RUNS, finished(2.0))), 0.998)
    assert [(one.number, one.fraction, one.good) for one in found.stopped] == [(LEAST_RUNS, FRACTIONS[0], False)]
    flat = found.flat()
    assert flat["saved_share"] == pytest.approx(60 / 700)
    assert (flat["stopped"], flat["false_kills"], flat["of"]) == (1, 0, LEAST_RUNS)
    assert flat["false_kill_rate_high"] == pytest.approx(0.975)  # of one, nobody knows better


def test_a_good_run_that_would_have_been_stopped_is_a_false_kill():
    flat = replay(night_of(tried(LEAST_RUNS, finished(1.79, above=1.0), good=True)), 0.998).flat()
    assert (flat["stopped"], flat["false_kills"], flat["better"], flat["lost_rate"]) == (1, 1, 1, 1.0)


def test_what_was_stopped_teaches_the_replay_nothing():
    """A second run like it is judged by the same few runs, so the same happens; without a score nothing does."""
    flat = replay(night_of(*(tried(LEAST_RUNS + k, finished(2.0)) for k in range(3)), tried(9, None)), 0.998).flat()
    assert (flat["stopped"], flat["of"]) == (3, LEAST_RUNS + 2)


def test_the_interval_is_clopper_and_pearsons():
    assert early_stop.most(0, 100) == pytest.approx(1 - 0.025 ** (1 / 100))
    assert early_stop.most(0, 0) is None


def record(journal: Journal, folder: Path, number: int, val_bpb: float, *, kept: bool = False) -> None:
    """An attempt that was run, scored, decided and settled, with its curve where its script would have left it."""
    parent = 0 if number else None
    journal.add_attempt(number, parent, Proposal(f"X = {number}\n", "an edit", "", "search"), "2026-01-02T03:04:05Z")
    out = folder / "runs" / f"{number:04d}" / f"seed{NIGHT.seed}" / "out"
    out.mkdir(parents=True)
    points = [{"progress": mark, "loss": loss} for mark, loss in finished(val_bpb).losses.items()]
    (out / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    run = dataclasses.replace(RUN, score=Score(val_bpb, wall_s=1.5))
    journal.end_run(journal.start_run(number, NIGHT.seed), run)
    journal.record_decision(number, Decision(Kind.KEPT if kept else Kind.WORSE, "as it happened"))
    journal.settle(number)


def test_a_night_is_replayed_from_its_journal_and_its_curves(tmp_path, capfd):
    folder = tmp_path / "work" / "search-0" / "experiments" / "nights" / "t"
    with Journal.create(folder / "journal.sqlite", NIGHT) as journal:
        for number in range(LEAST_RUNS):
            record(journal, folder, number, 1.8 + 0.01 * number, kept=number == 0)
        record(journal, folder, LEAST_RUNS, 2.0)
        record(journal, folder, LEAST_RUNS + 1, 1.75, kept=True)
        journal.start_run(0, NIGHT.seed + 1)  # later than all of them, and without a score: nobody may know of it
    out = tmp_path / "found.json"
    assert early_stop.main(["--nights", str(tmp_path), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert (found["nights"], found["of"], found["stopped"], found["false_kills"]) == (1, LEAST_RUNS + 1, 1, 0)
    assert found["better"] == 1
    saved_s = 0.6 * NIGHT.budget_s + 1.5
    assert found["saved_share"] == pytest.approx(saved_s / ((LEAST_RUNS + 2) * (RUN.wall_s + 1.5)), abs=1e-6)
    assert f"search-0/t #{LEAST_RUNS} at 40%" in capfd.readouterr().out


def test_a_folder_without_a_night_is_named(tmp_path, capfd):
    assert early_stop.main(["--nights", str(tmp_path)]) == 2
    assert f"{tmp_path} holds no night" in capfd.readouterr().err


def test_quick_replays_simulated_nights(tmp_path):
    out = tmp_path / "quick.json"
    assert early_stop.main(["--quick", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["telling_stopped"] > 0.5 * found["telling_of"]  # 7 of 10 edits harm, and losses say so
    assert found["vague_saved_share"] < found["telling_saved_share"]
    assert found["telling_false_kills"] <= 1
