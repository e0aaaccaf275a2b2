"""results.tsv: the rows of all nights here, fit for every tool that reads them; rows of others stay as they are."""

import csv
import dataclasses
import io
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import refused
from judged import decided, scored_attempt
from nights import PROJECT
from samples import NIGHT, enter

from agent.errors import NightError
from agent.experiment import Attempt, Decision, Ending, History, Kind, Night, Proposal, Run, Score, Status, Summary
from agent.files import read_plain, write_plain
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import (
    COLUMNS,
    Table,
    number_of,
    read_results,
    rows_in,
    rows_of,
    tags_in,
    write_results,
)
from agent.text import saved_like

HEADER = "\t".join(COLUMNS)
FOREIGN = "0000000\t1.000000\t1.0\tkeep\tfrom a clone\t0\told-night" + "\t" * 13
UPSTREAM = "a1b2c3d\t0.997900\t44.0\tkeep\tbaseline"  # five columns


def read_rows(path: Path) -> list[dict[str, str]]:
    return rows_in(read_results(path))


def attempt(number: int, bpb: float | None, status: Status, title: str = "title") -> Attempt:
    summary = Summary(training_seconds=30.0, peak_vram_mb=1536.0, total_tokens_M=1.25, num_params_M=0.5)
    ending = Ending.CRASHED if bpb is None else Ending.FINISHED
    run = Run(0, ending, 0, 31.5, summary, "", Score(bpb, 1.0))
    proposal = Proposal(title, "why", "search")
    decisions = (decided(status, "a reason"),)
    return Attempt(number, 0 if number else None, proposal, NIGHT.started, f"{number}" * 40, (run,), decisions, True)


HISTORY = (
    attempt(0, 1.5, Status.KEEP, "baseline"),
    attempt(1, 1.25, Status.KEEP, "LR 0.1 → 0.2"),
    attempt(2, None, Status.CRASH, 'a "quoted"\ttitle\nof two lines'),
    attempt(3, 1.75, Status.DISCARD),
)


def render(before: str, nights: Sequence[tuple[Night, History]]) -> str:
    """Return the text of a results file after these nights were written to it."""
    after = Table.of(before).arranged(nights)
    return saved_like(after, before.removeprefix("\ufeff"))


def put(path: Path, *nights: tuple[Night, History]) -> None:
    """Write these nights into a results file."""
    write_plain(path, render(read_plain(path), nights))


def cells(line: str) -> dict[str, str]:
    return dict(zip(COLUMNS, line.split("\t"), strict=True))


def test_a_row_has_the_formats_that_tools_expect():
    row = rows_of(NIGHT, HISTORY)[1]
    assert (row["commit"], row["val_bpb"], row["memory_gb"], row["status"]) == ("1111111", "1.250000", "1.5", "keep")
    assert (row["parent"], row["branch"], row["seeds"]) == ("0000000", "experiments/30s-t", "1")
    assert rows_of(NIGHT, HISTORY)[2]["description"] == "a 'quoted' title of two lines"


def test_a_row_has_the_steps_of_a_run_and_its_speed_beside_the_parents():
    def trained(number: int, steps: int, tokens_M: float) -> Attempt:
        before = HISTORY[number]
        summary = Summary(training_seconds=10.0, total_tokens_M=tokens_M, num_steps=steps)
        return dataclasses.replace(before, runs=(dataclasses.replace(before.runs[0], summary=summary),))

    first, edit = rows_of(NIGHT, (trained(0, 100, 0.2), trained(1, 93, 0.15)))
    assert (first["steps"], first["speed"]) == ("100", "")
    assert (edit["steps"], edit["speed"]) == ("93", "0.75")


@pytest.mark.parametrize("begin", ["@", " \r\n=", "＝"])
def test_no_cell_is_a_formula_to_a_spreadsheet(begin, tmp_path):
    title = begin + 'cmd|" /C calc"!A0'
    odd = attempt(1, 1.25, Status.KEEP, title)
    odd = dataclasses.replace(
        odd,
        proposal=dataclasses.replace(odd.proposal, proposer=title),
        decisions=(Decision(Kind.KEPT, title, gain_bpb=-0.0012, sure=0.5),),
    )
    text = render("", [(NIGHT, (HISTORY[0], odd))])
    row = cells(text.splitlines()[2])
    meant = begin.strip() + "cmd|' /C calc'!A0"
    assert [row[name] for name in ("description", "reason", "proposer")] == [f"'{meant}"] * 3
    assert row["gain_bpb"] == "-0.001200"  # a number is none
    write_plain(tmp_path / "results.tsv", text)
    assert read_rows(tmp_path / "results.tsv")[1]["description"] == meant  # the cell is read as it is shown


def test_no_cell_holds_commands_to_a_terminal_or_absurd_numbers():
    boast = Summary(training_seconds=-1e299, peak_vram_mb=1e299, total_tokens_M=1e299, num_params_M=1e299)
    odd = attempt(1, 1.25, Status.KEEP, "wiped\x1b[2K\u202e\x00\udc80")
    row = rows_of(NIGHT, [dataclasses.replace(odd, runs=(dataclasses.replace(odd.runs[0], summary=boast),))])[0]
    assert row["description"] == r"wiped\x1b[2K\u202e\x00\udc80"
    assert [row[name] for name in ("memory_gb", "tokens_M", "params_M", "train_s")] == [""] * 4


def test_the_analysis_code_of_the_ancestor_reads_it():
    import pandas as pd  # takes half a second

    df = pd.read_csv(io.StringIO(render(f"{HEADER}\n{UPSTREAM}\n", [(NIGHT, HISTORY)])), sep="\t")
    df["val_bpb"] = pd.to_numeric(df["val_bpb"], errors="coerce")
    df["memory_gb"] = pd.to_numeric(df["memory_gb"], errors="coerce")
    df["status"] = df["status"].str.strip().str.upper()
    counts = df["status"].value_counts()
    assert (counts["KEEP"], counts["DISCARD"], counts["CRASH"]) == (3, 1, 1)


# ---- the file --------------------------------------------------------------------------------------------------------


def test_rows_of_other_nights_stay_verbatim_and_in_place():
    odd = "ffffff0\tnot a number\t\tKEEP\tan odd \u2028 row \x1c of twenty cells" + "\t" * 15
    mine = ["\t".join(row.values()) for row in rows_of(NIGHT, HISTORY)]
    before = "\n".join([f"\ufeff{HEADER}", UPSTREAM, FOREIGN, *mine[:2], odd])  # no newline at the end
    after = render(before, [(NIGHT, HISTORY)]).split("\n")
    assert after == [HEADER, UPSTREAM, FOREIGN, *mine, odd, ""]
    assert render("\n".join(after), [(NIGHT, HISTORY)]) == "\n".join(after)


def test_rows_of_a_colleagues_night_of_the_same_day_stay_and_none_doubles(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    with Journal.create(place.journal("t"), NIGHT) as journal:
        for number in range(2):
            enter(journal, scored(number, parent=0 if number else None))
            journal.record_commit(number, f"{number}" * 40)
        assert grounds.nightshift("results").returncode == 0
        theirs = [
            row | {"commit": commit, "started": "2026-01-02T09:00:00Z", "description": "theirs", "my note": "odd"}
            for row, commit in zip(read_rows(place.results), ("a1b2c3d", ""), strict=True)
        ]
        with place.results.open("a") as file:
            file.writelines("\t".join(row.values()) + "\n" for row in theirs)
        place.results.write_text(place.results.read_text().replace("\tspeed\n", "\tspeed\tmy note\n"))
        for _ in range(2):
            assert grounds.nightshift("results").returncode == 0
            titles = [(row["attempt"], row["description"], row["my note"]) for row in read_rows(place.results)]
            assert titles == [("0", "", ""), ("1", "", ""), ("0", "theirs", "odd"), ("1", "theirs", "odd")]
        journal.invalidate([1], "the machine slept")  # it is undecided again, and its row of before is no other night's
        assert grounds.nightshift("results").returncode == 0
        assert [row["description"] for row in read_rows(place.results)] == ["", "theirs", "theirs"]


def test_where_no_night_has_run_the_results_are_only_read(grounds):
    assert grounds.nightshift("results", "five").returncode == 2
    assert grounds.git("status", "--porcelain") == ""  # no file of a header alone
    committed = (PROJECT / "results.tsv").read_text()
    assert Table.of(committed).arranged(()) == committed  # the first night in a clone adds its rows and nothing else
    (grounds.root / "results.tsv").write_text(f"commit\tval_bpb\tmemory_gb\tstatus\tdescription\n{UPSTREAM}\n")
    before = (grounds.root / "results.tsv").stat().st_mtime_ns
    assert "a1b2c3d" in grounds.nightshift("results", "--all").stdout
    assert (grounds.root / "results.tsv").stat().st_mtime_ns == before


def test_bytes_that_are_no_utf8_survive(tmp_path):
    path = tmp_path / "results.tsv"
    path.write_bytes(UPSTREAM.encode() + b" \xff\r\n")
    put(path, (NIGHT, HISTORY))
    assert UPSTREAM.encode() + b" \xff\r\n" in path.read_bytes()


# ---- as spreadsheets save it -----------------------------------------------------------------------------------------


def table() -> list[list[str]]:
    """Return the cells of a results file with rows of a night that is here, and of another tool and another night."""
    return [line.split("\t") for line in render(f"{HEADER}\n{UPSTREAM}\n{FOREIGN}\n", [(NIGHT, HISTORY)]).splitlines()]


def by(separator: str, rows: Sequence[Sequence[str]], quoting: int = csv.QUOTE_ALL, line_end: str = "\r\n") -> bytes:
    csv.writer(text := io.StringIO(), delimiter=separator, quoting=quoting, lineterminator=line_end).writerows(rows)
    return text.getvalue().encode()


def padded() -> list[list[str]]:
    """Return the table as a rectangle, with three empty columns and an empty row."""
    return [[*row, *[""] * (len(COLUMNS) + 3 - len(row))] for row in [*table(), []]]


SAVED = {
    "by carriage returns alone": lambda: by("\t", table(), csv.QUOTE_MINIMAL, "\r"),
    "with quotes around all cells": lambda: by("\t", table()),
    "in UTF-16": lambda: by("\t", table(), csv.QUOTE_MINIMAL).decode().encode("utf-16"),
    "in UTF-16 without a mark": lambda: by("\t", table()).decode().encode("utf-16-be"),
    "with a mark and quotes": lambda: b"\xef\xbb\xbf" + by("\t", table()),
    "by commas": lambda: by(",", table(), csv.QUOTE_MINIMAL),
    "by semicolons, with decimal commas": lambda: by(
        ";", [[cell.replace(".", ",") if number_of(cell) else cell for cell in row] for row in table()]
    ),
    "with the columns backwards": lambda: by("\t", [row[::-1] for row in padded()]),
    "padded": lambda: by("\t", padded(), csv.QUOTE_MINIMAL),
    "with blanks around the cells": lambda: by("\t", [[f" {cell} " for cell in row] for row in padded()]),
    "sorted": lambda: by("\t", sorted(table()), csv.QUOTE_MINIMAL),
    "with the header in capitals": lambda: by("\t", [[cell.upper() for cell in table()[0]], *table()[1:]]),
    "with blank lines": lambda: by("\t", [row for line in table() for row in (line, [])], csv.QUOTE_MINIMAL),
    "twice in a row": lambda: by("\t", [*table(), *table()[:1], *table()[2:]]),
    "with the tag as a date, and whole numbers as others": lambda: by(
        "\t", [["20. Nov" if cell == "t" else "1.00" if cell == "1" else cell for cell in row] for row in table()]
    ),
}


@pytest.mark.parametrize("saved", SAVED)
def test_a_results_file_that_a_spreadsheet_saved_holds_the_same_rows(saved, tmp_path):
    path = tmp_path / "results.tsv"
    path.write_bytes(SAVED[saved]())
    assert tags_in(path) == {"t", "old-night"}
    after = render(read_results(path), [(NIGHT, HISTORY)])
    rows = [line.split("\t") for line in after.splitlines()]
    assert rows[0] == list(COLUMNS)
    assert sorted(row[0].strip() for row in rows) == sorted(row[0] for row in table())
    assert all(row in rows for row in table()[3:])
    write_plain(path, after)
    shown = {(row["tag"], row["attempt"][:1]): row for row in read_rows(path)}
    assert len(shown) == 6
    assert number_of(shown["old-night", "0"]["val_bpb"]) == 1.0
    assert shown["", ""]["description"] == "baseline"
    assert render(read_results(path), [(NIGHT, HISTORY)]) == after


def test_what_a_person_wrote_beside_a_row_stays_beside_it(tmp_path):
    path = tmp_path / "results.tsv"
    header, upstream, foreign, *mine = table()
    notes = ["my note", "theirs", "old", 'a "quoted"\nsecond; line', "", "'=1+1", "last"]
    rows = [[*row[:2], note, *row[2:]] for row, note in zip([header, upstream, foreign, *mine], notes, strict=True)]
    path.write_bytes(by(",", [[*row, "unnamed"] if row is rows[-1] else row for row in rows]))
    better = (HISTORY[0], attempt(1, 1.0, Status.KEEP), *HISTORY[2:])
    put(path, (NIGHT, better))
    put(path, (NIGHT, better))
    read = read_rows(path)
    assert [row["my note"] for row in read] == ["theirs", "old", notes[3], "", "=1+1", "last"]
    assert read[3]["val_bpb"] == "1.000000"
    assert read[-1][f"column_{len(COLUMNS) + 2}"] == "unnamed"
    with path.open(encoding="utf-8", newline="") as file:
        assert {len(cells) for cells in csv.reader(file, delimiter="\t")} == {len(COLUMNS) + 2}
    put(path, (NIGHT, HISTORY[:1]))  # a repair would lose the other rows
    assert [row["my note"] for row in read_rows(path)] == ["theirs", "old", notes[3], "=1+1", "last"]


def test_a_single_quote_of_another_tool_hides_no_row(tmp_path):
    path = tmp_path / "results.tsv"
    cells = ['"half a quote', 'a 5" wheel', '"quoted" and not', 'the other half"']
    path.write_text(f"{HEADER}\n" + "".join(f"a1b2c3d\t1.0\t1.0\tkeep\t{cell}\n" for cell in cells))
    put(path, (NIGHT, HISTORY))
    put(path, (NIGHT, HISTORY))
    assert [row["description"] for row in read_rows(path)][:4] == cells
    assert f"\tkeep\t{cells[1]}\n" in path.read_text()


@pytest.mark.parametrize(
    ("content", "stay"),
    [
        (b"PK\x03\x04\x14\x00\x06\x00\x08\x00\xff\xfe\tkeep\r\n\x00\x00", 0),
        (b'[{"commit": "a1b2c3d", "val_bpb": 1.0}]', 0),
        (f"{HEADER}\n{UPSTREAM}\n{FOREIGN}\n".encode() + bytes(4096), 2),  # a power cut may leave zeros
        (f"my notes\n{UPSTREAM}\n".encode(), 1),
    ],
)
def test_a_file_that_cannot_be_read_whole_is_kept_beside_the_new_one(content, stay, grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    with Journal.create(place.journal("t"), NIGHT) as journal:
        enter(journal, scored(0))
    place.results.write_bytes(content)
    said: list[str] = []
    for _ in range(2):
        write_results(place, say=said.append)
    aside = place.results.with_name("results.tsv.before-rewrite")
    assert aside.read_bytes() == content
    assert len(read_rows(place.results)) == stay + 1
    assert str(aside) in "".join(said)
    assert len(said) == 1


def test_a_results_file_in_utf16_is_written_in_utf8(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    place.results.write_text(f"{HEADER}\n{UPSTREAM}\n", encoding="utf-16")
    write_results(place)
    assert place.results.read_text(encoding="utf-8") == f"{HEADER}\n{UPSTREAM}\n"


def test_line_ends_of_the_file_stay(tmp_path):
    path = tmp_path / "results.tsv"
    path.write_bytes(by("\t", table(), csv.QUOTE_MINIMAL))
    before = path.read_bytes()
    put(path, (NIGHT, HISTORY))
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["", "\n\n", f"{HEADER}\n", f"\ufeff{HEADER}"])
def test_a_file_without_rows_gets_the_rows_of_all_nights(content, grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    with Journal.create(place.journal("t"), NIGHT) as journal:
        enter(journal, scored(0))
    place.results.write_text(content, encoding="utf-8")
    write_results(place, (dataclasses.replace(NIGHT, tag="u"), HISTORY[:1]))
    assert [row["tag"] for row in read_rows(place.results)] == ["t", "u"]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_a_pipe_or_a_folder_is_refused_and_not_waited_for(make, tmp_path):
    make(tmp_path / "results.tsv")
    for use in (read_plain, read_rows, lambda path: write_plain(path, "text\n")):
        with pytest.raises(NightError, match=r"results\.tsv is no plain file; move it away"):
            use(tmp_path / "results.tsv")


def scored(number: int, parent: int | None = None) -> Attempt:
    return scored_attempt(number, 1.5, parent=parent, status=Status.KEEP, script=f"A = {number}")


def test_what_has_changed_in_any_journal_is_in_the_results_when_it_is_written_again(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    running = (dataclasses.replace(NIGHT, tag="u"), HISTORY[:2])

    def written_again(live: tuple[Night, History] | None = None) -> list[str]:
        write_results(place, live)
        return [f"{row['tag']} {row['attempt']}" for row in read_rows(place.results)]

    with Journal.create(place.journal("t"), NIGHT) as journal:
        enter(journal, scored(0))
        assert written_again() == ["t 0"]
        assert written_again(running) == ["t 0", "u 0", "u 1"]
        enter(journal, scored(1, parent=0))
        assert written_again() == ["t 0", "t 1", "u 0", "u 1"]
        stamp = place.results.stat().st_mtime_ns
        assert written_again() == ["t 0", "t 1", "u 0", "u 1"]
        assert place.results.stat().st_mtime_ns == stamp
    place.results.unlink()
    assert written_again(running) == ["t 0", "t 1", "u 0", "u 1"]
    place.journal("t").write_text("no journal any more")
    assert written_again((running[0], HISTORY[:1])) == ["t 0", "t 1", "u 0"]


def test_a_link_that_came_with_a_clone_leads_no_row_to_another_file(trained, tmp_path):
    users, link = tmp_path / "profile", trained.root / "results.tsv"
    users.write_text("alias ll='ls -l'\n")
    link.unlink()
    link.symlink_to(users)
    trained.git("add", "-f", "results.tsv")
    for words in (("results",), ("run", "--tag", "t", "--sandbox", "off")):
        refusal = refused(trained.nightshift(*words))
        assert refusal.endswith(
            "results.tsv as a link, so somebody else may have chosen what it would overwrite; "
            "remove the link with: git rm results.tsv"
        )
    assert users.read_text() == "alias ll='ls -l'\n"
    trained.git("rm", "-q", "--cached", "results.tsv")
    assert trained.nightshift("results").returncode == 0  # the user's own link
    assert len(read_rows(link)) == 4
    assert link.is_symlink()
    assert (trained.root / "results.tsv.before-rewrite").read_text() == "alias ll='ls -l'\n"
