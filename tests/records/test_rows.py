"""A row of results.tsv: what every tool of this family reads, fit for each of them."""

import dataclasses
import io
from typing import Any

import pytest
from samples import HISTORY, NIGHT, UPSTREAM, attempt, cells, render

from agent.experiment import Decision, Kind, Status, Summary
from agent.files import write_plain
from agent.records.results import HEADER, lines_of, read_rows


@pytest.fixture(scope="module")
def pd() -> Any:
    """Pandas, which takes half a second to import."""
    import pandas

    return pandas


def test_a_row_has_the_formats_that_tools_expect():
    row = cells(lines_of(NIGHT, HISTORY)[1])
    assert (row["commit"], row["val_bpb"], row["memory_gb"], row["status"]) == ("1111111", "1.250000", "1.5", "keep")
    assert (row["parent"], row["branch"], row["seeds"]) == ("0000000", "experiments/30s-t", "1")


def test_tabs_newlines_and_quotes_in_a_title_stay_one_cell():
    assert cells(lines_of(NIGHT, HISTORY)[2])["description"] == "a 'quoted' title of two lines"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", " \r\n=", "＝", "\u00a0-"])
def test_no_cell_is_a_formula_to_a_spreadsheet(begin, tmp_path, pd):
    title = begin + 'cmd|" /C calc"!A0'
    odd = attempt(1, 1.25, Status.KEEP, title)
    odd = dataclasses.replace(
        odd,
        proposal=dataclasses.replace(odd.proposal, source=title),
        decision=Decision(Kind.KEPT, title, gain_bpb=-0.0012, sure=0.5),
    )
    text = render("", [(NIGHT, (HISTORY[0], odd))])
    row = cells(text.splitlines()[2])
    meant = begin.strip() + "cmd|' /C calc'!A0"
    assert [row[name] for name in ("description", "reason", "source")] == [f"'{meant}"] * 3
    assert row["gain_bpb"] == "-0.001200"  # a number is none
    write_plain(tmp_path / "results.tsv", text)
    assert read_rows(tmp_path / "results.tsv")[1]["description"] == meant  # as it is shown
    read = pd.read_csv(io.StringIO(text), sep="\t")
    assert (read["description"][1], read["gain_bpb"][1]) == (f"'{meant}", -0.0012)


def test_no_cell_holds_commands_to_a_terminal_or_absurd_numbers():
    boast = Summary(training_seconds=-1e299, peak_vram_mb=1e299, total_tokens_M=1e299, num_params_M=1e299)
    odd = attempt(1, 1.25, Status.KEEP, "wiped\x1b[2K\u202e\x00\udc80")
    row = cells(lines_of(NIGHT, [dataclasses.replace(odd, runs=(dataclasses.replace(odd.runs[0], summary=boast),))])[0])
    assert row["description"] == r"wiped\x1b[2K\u202e\x00\udc80"
    assert [row[name] for name in ("memory_gb", "tokens_M", "params_M", "train_s")] == [""] * 4


def test_the_analysis_code_of_the_ancestor_reads_it(pd):
    df = pd.read_csv(io.StringIO(render(f"{HEADER}\n{UPSTREAM}\n", [(NIGHT, HISTORY)])), sep="\t")
    df["val_bpb"] = pd.to_numeric(df["val_bpb"], errors="coerce")
    df["memory_gb"] = pd.to_numeric(df["memory_gb"], errors="coerce")
    df["status"] = df["status"].str.strip().str.upper()
    counts = df["status"].value_counts()
    assert (counts["KEEP"], counts["DISCARD"], counts["CRASH"]) == (3, 1, 1)
