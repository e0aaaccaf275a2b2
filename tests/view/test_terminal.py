"""Tables, verdict lines and one attempt in full, as a terminal and a pipe get them."""

import dataclasses
import io
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from judged import decided, scored_attempt
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from samples import HISTORY, NIGHT, UPSTREAM, put, status_lines

from agent.experiment import Attempt, Decision, Ending, Entry, Kind, Status
from agent.judging.judges import Greedy
from agent.records.results import Row, read_rows
from agent.records.summary import Share
from agent.view import terminal as report
from agent.view.terminal import verdict


@pytest.fixture
def rows(tmp_path):
    other = dataclasses.replace(NIGHT, tag="u", protocol="another")
    path, nights = tmp_path / "results.tsv", [(NIGHT, HISTORY), (other, HISTORY[:1])]
    path.write_text(f"{UPSTREAM}\n")
    put(path, *nights)
    return read_rows(path)


def plain(lines: Iterable[Text]) -> list[str]:
    return [line.plain for line in lines]


def said(attempt: Attempt, before: Attempt | None) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(verdict(attempt, before))
    return console.export_text().strip()


def judged() -> tuple[Attempt, ...]:
    """Return a night of the balanced judge, with long words, a small script and an attempt without any run."""
    told = dataclasses.replace(HISTORY[1].decision, gain_bpb=0.24, sure=1.4e-198, reason=REASON)
    proposal = dataclasses.replace(
        HISTORY[1].proposal, title="MLP_RATIO 4 → 3, BATCH_ROWS 16 → 32, SOFTCAP 15.0 → 22.21"
    )
    summary = dataclasses.replace(HISTORY[1].runs[0].summary, peak_vram_mb=45.0)
    run = dataclasses.replace(HISTORY[1].runs[0], summary=summary)
    return (HISTORY[0], dataclasses.replace(HISTORY[1], decision=told, proposal=proposal, runs=(run,)), HISTORY[2])


REASON = "provisional: an estimated 0.240000 below its parent, 96% sure"
FOLDER = Path("/home/someone/a folder/experiments/nights/t/runs/0001") / ("long" * 30)


def test_a_table_has_a_line_for_every_row_also_for_shorter_ones(rows):
    assert len(plain(report.results_lines(rows))) == 1 + 6


def test_results_show_the_gain_certainty_seeds_and_reason(tmp_path):
    put(tmp_path / "results.tsv", (NIGHT, judged()))
    header, _, first, crash = plain(report.results_lines(read_rows(tmp_path / "results.tsv")))
    assert header.replace(" ", "") == "#val_bpbgain(+good)sureseedsstatusdescriptionreasonmemorywallscommit"
    assert [cell.strip() for cell in re.split(" {2,}", first)] == [
        *("1", "1.250000", "+0.240000", "<1%", "1", "keep"),
        *("MLP_RATIO 4 → 3, BATCH_ROWS 16 → 32, SOFTCAP 15.0 → 22.21", REASON, "45 MB", "32", "1111111"),
    ]
    assert "a reason" in crash
    assert " 1  crash " in crash


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
def test_a_narrow_terminal_gets_fewer_columns_and_no_word_is_broken(tmp_path, width):
    put(tmp_path / "results.tsv", (NIGHT, judged()))
    rows = read_rows(tmp_path / "results.tsv")
    whole, lines = plain(report.results_lines(rows)), plain(report.results_lines(rows, width))
    assert max(map(cell_len, lines)) <= max(width, 59)
    words = {word for line in whole for word in line.replace(",", " ").split()}
    assert {word.rstrip("…") for line in lines for word in line.replace(",", " ").split()} <= {*words, ""}
    assert all(name in lines[0] for name in ("#", "val_bpb", "status", "description"))
    assert ("reason" in lines[0]) == (width >= 120)


def test_a_pipe_gets_every_line_whole(tmp_path):
    for lines in (
        report.attempt_lines(NIGHT, judged()[1], FOLDER),
        report.results_lines([Row(description="w " * 500)]),
    ):
        assert not any("…" in line for line in plain(lines))
    said = plain(report.attempt_lines(NIGHT, judged()[1], FOLDER))
    assert f"folder      {FOLDER}" in said
    assert f"decision    keep: {REASON}" in said
    assert "memory      45 MB" in said


def test_a_terminal_gets_an_attempt_wrapped_between_words_and_paths_that_can_be_copied():
    proposal = dataclasses.replace(judged()[1].proposal, hypothesis="It overshoots late in training. " * 9 + "x" * 99)
    attempt = dataclasses.replace(judged()[1], proposal=proposal)
    lines = plain(report.attempt_lines(NIGHT, attempt, FOLDER, 60))
    assert f"folder      {FOLDER}" in lines
    assert all(cell_len(line) <= 60 for line in lines if "long" not in line and "xxx" not in line)
    hypothesis = lines[lines.index(next(line for line in lines if line.startswith("hypothesis"))) :]
    assert [line[:12].strip() for line in hypothesis[:5]] == ["hypothesis", "", "", "", ""]
    assert " ".join(" ".join(hypothesis[:9]).split()).startswith("hypothesis It overshoots late in training. It")


def test_a_difference_is_that_of_the_scores_as_they_are_shown(tmp_path):
    before = scored_attempt(0, 1.2345676, status=Status.KEEP)  # 1.234568, and 1.234560 for the next: 0.0000072 less
    after = dataclasses.replace(scored_attempt(1, 1.2345604, parent=0, status=Status.KEEP), commit="d")
    assert " · gain +0.000008 · " in said(after, before)
    assert Greedy().judge(after, [before]).reason == "0.000008 below the incumbent"
    status = "\n".join(status_lines(NIGHT, [before, after]))
    assert "0.000008 below the baseline's 1.234568" in status
    put(tmp_path / "results.tsv", (NIGHT, [before, after]))
    assert " +0.000008 " in plain(report.results_lines(read_rows(tmp_path / "results.tsv")))[2]


def test_a_verdict_names_score_difference_and_decision():
    assert said(HISTORY[0], None) == "#0 · baseline · val_bpb 1.500000 · keep"
    assert said(HISTORY[1], HISTORY[0]) == "#1 · LR 0.1 → 0.2 · val_bpb 1.250000 · gain +0.250000 · keep"
    assert said(HISTORY[3], HISTORY[1]) == "#3 · title · val_bpb 1.750000 · gain -0.500000 · discard"


def test_a_crash_says_why():
    assert said(HISTORY[2], HISTORY[1]).endswith("crash (a reason)")


def test_a_verdict_that_the_difference_would_not_give_says_why():
    for status, before in ((Status.DISCARD, HISTORY[3]), (Status.KEEP, HISTORY[1])):
        told = dataclasses.replace(HISTORY[0], decision=decided(status, "by the whole night"))
        assert said(told, before).endswith(f"{status} (by the whole night)")


def test_a_keep_on_approval_says_so():
    reason = "provisional: 0.25 below its parent, 70% sure"
    provisional = dataclasses.replace(HISTORY[1], decision=Decision(Kind.PROVISIONAL, reason))
    assert said(provisional, HISTORY[0]).endswith(f"keep ({reason})")


def test_an_attempt_shows_what_was_decided_before_and_when():
    kept, revoked = Decision(Kind.PROVISIONAL, "provisional: lower"), Decision(Kind.REVOKED, "revoked: it was luck")
    entries = Entry(2, "2026-01-02T03:04:05.678Z", kept), Entry(5, "2026-01-02T04:04:05.678Z", revoked)
    attempt = dataclasses.replace(HISTORY[1], decision=revoked, decisions=entries)
    lines = plain(report.attempt_lines(NIGHT, attempt, FOLDER))
    assert "decision    discard: revoked: it was luck" in lines
    assert "before      2026-01-02 03:04:05 UTC keep: provisional: lower" in lines
    void = dataclasses.replace(
        attempt,
        decision=None,
        decisions=(*entries, Entry(6, "2026-01-02T05:04:05.678Z", Decision(Kind.VOID, "no GPU"))),
    )
    lines = plain(report.attempt_lines(NIGHT, void, FOLDER))
    at = lines.index("before      2026-01-02 03:04:05 UTC keep: provisional: lower")
    assert lines[at + 1 : at + 3] == [
        "            2026-01-02 04:04:05 UTC discard: revoked: it was luck",
        "            2026-01-02 05:04:05 UTC void: no GPU",
    ]
    assert not any(line.startswith("before") for line in plain(report.attempt_lines(NIGHT, HISTORY[1], FOLDER)))


def test_brackets_in_a_title_are_no_markup():
    proposal = dataclasses.replace(HISTORY[3].proposal, title="[red]WINDOW[/] [L]")
    assert "[red]WINDOW[/] [L]" in said(dataclasses.replace(HISTORY[3], proposal=proposal), None)


def test_status_counts_and_names_the_best():
    lines = "\n".join(status_lines(NIGHT, HISTORY))
    assert "4 attempts, 3 of them ideas: 1 kept, 1 discarded, 1 crashed" in lines
    assert "best val_bpb 1.250000 (#1), 0.250000 below the baseline's 1.500000" in lines


def test_a_keep_that_fresh_seeds_put_above_the_baseline_is_told_as_such():
    history = (dataclasses.replace(HISTORY[1], number=0), dataclasses.replace(HISTORY[0], number=1))
    lines = status_lines(NIGHT, history)
    assert "best val_bpb 1.500000 (#1), 0.250000 above the baseline's 1.250000" in lines


def test_a_run_that_goes_on_is_not_called_lost():
    lost = dataclasses.replace(HISTORY[3].runs[0], ending=Ending.LOST, score=None)
    going_on = dataclasses.replace(lost, ending=Ending.RUNNING)
    at_work = dataclasses.replace(HISTORY[3], runs=(lost, going_on), decision=None, settled=False)
    there = plain(report.attempt_lines(NIGHT, at_work, Path("runs"), running=True))
    gone = plain(report.attempt_lines(NIGHT, at_work, Path("runs")))
    assert [line for line in there if "run with" in line] == [
        "run with seed 0: lost, exit code 0, 31.5 s",
        "run with seed 0: going on",
    ]
    assert sum("lost" in line for line in gone) == 2
    kept = dataclasses.replace(HISTORY[1], runs=(*HISTORY[1].runs, dataclasses.replace(going_on, dawn=1)))
    again = plain(report.attempt_lines(NIGHT, kept, Path("runs"), running=True))
    assert "run with seed 0: going on" in again
    assert not any("lost" in line for line in again)


def test_a_run_names_its_worker_where_there_are_several_and_two_may_go_on():
    first, second = (
        dataclasses.replace(HISTORY[3].runs[0], seed=seed, worker=f"gpu {seed}", ending=Ending.RUNNING)
        for seed in (1, 2)
    )
    runs = dataclasses.replace(HISTORY[3].runs[0], worker="gpu 0"), first, second
    lines = plain(report.attempt_lines(NIGHT, dataclasses.replace(HISTORY[3], runs=runs), FOLDER, running=True))
    assert [line for line in lines if line.startswith("run with")] == [
        "run with seed 0 on gpu 0: finished, exit code 0, 31.5 s, val_bpb 1.750000",
        "run with seed 1 on gpu 1: going on",
        "run with seed 2 on gpu 2: going on",
    ]


def test_an_edit_that_was_overtaken_and_its_merge_name_each_other():
    told = plain(report.attempt_lines(NIGHT, HISTORY[3], FOLDER, merged_as=12))
    assert "merged as   #12" in told
    merge = dataclasses.replace(HISTORY[3], proposal=dataclasses.replace(HISTORY[3].proposal, merges=9))
    assert "merges      #9, which was overtaken" in plain(report.attempt_lines(NIGHT, merge, FOLDER))
    assert not any(line.startswith("merge") for line in plain(report.attempt_lines(NIGHT, HISTORY[3], FOLDER)))


def test_attempts_that_were_made_void_are_unfinished_each():
    void = [dataclasses.replace(one, decision=None, settled=False) for one in HISTORY[1:3]]
    lines = status_lines(NIGHT, [HISTORY[0], *void, HISTORY[3]])
    assert lines[2] == "4 attempts, 3 of them ideas: 0 kept, 1 discarded, 0 crashed, 2 unfinished"
    assert lines[-1] == "unfinished, goes on when the night does: #1 LR 0.1 → 0.2"


def test_an_attempt_shows_the_memory_that_its_row_has():
    silent = dataclasses.replace(HISTORY[1].runs[0].summary, peak_vram_mb=None)
    run = dataclasses.replace(HISTORY[1].runs[0], summary=silent, peak_bytes=45 << 20)
    told = "\n".join(plain(report.attempt_lines(NIGHT, dataclasses.replace(HISTORY[1], runs=(run,)), Path("runs"))))
    assert "memory      45 MB" in told


def test_a_night_that_was_interrupted_says_what_is_unfinished():
    history = [HISTORY[0], dataclasses.replace(HISTORY[1], decision=None, settled=False)]
    lines = status_lines(NIGHT, history)
    assert lines[2:] == [
        "2 attempts, 1 of them ideas: 0 kept, 0 discarded, 0 crashed, 1 unfinished",
        "best val_bpb 1.500000 (#0), the baseline",
        "spent: 1 min training, 2 s scoring",
        "unfinished, goes on when the night does: #1 LR 0.1 → 0.2",
    ]
    assert status_lines(NIGHT, history, pid=7)[-1] == "at work: #1 LR 0.1 → 0.2"


def test_a_source_whose_calls_fail_says_why_in_a_harmless_line():
    failed = Share("llm", 0, 0, 0.0, 0.1, 3, 2, 9, 9, 0.1, last_failure="no line there is\n\x1b[2J")
    fine = Share("search", 4, 1, 0.1, 0.1, 0, 0, None, None, None)
    assert report.failure_lines([failed, fine]) == [
        r"llm: 2 of 3 calls failed, the last because no line there is \x1b[2J"
    ]
