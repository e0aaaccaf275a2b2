"""A row of results.tsv: what every tool of this family reads, fit for each of them."""

import dataclasses
import io
from typing import Any

import pytest
from samples import HISTORY, NIGHT, UPSTREAM, attempt, cells, render

from agent.experiment import Attempt, Decision, Kind, Score, Status, Summary, Weights
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


def test_parameters_are_those_that_the_harness_counted():
    said = attempt(1, 1.25, Status.KEEP)
    runs = tuple(dataclasses.replace(run, weights=Weights(2_345_678, 4_691_356)) for run in said.runs)
    counted = dataclasses.replace(said, runs=runs)
    assert [cells(lines_of(NIGHT, [one])[0])["params_M"] for one in (said, counted)] == ["0.500", "2.346"]


def test_the_parent_of_attempt_0_is_where_the_user_stood():
    assert cells(lines_of(NIGHT, HISTORY)[0])["parent"] == "bbbbbbb"


def test_a_crash_has_an_empty_score():
    assert cells(lines_of(NIGHT, HISTORY)[2])["val_bpb"] == ""


def test_tabs_newlines_and_quotes_in_a_title_stay_one_cell():
    assert cells(lines_of(NIGHT, HISTORY)[2])["description"] == "a 'quoted' title of two lines"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", " \r\n=", "＝", "＋", "－", "＠", "\u00a0-"])
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
    assert render(text, [(NIGHT, (HISTORY[0], odd))]) == text
    write_plain(tmp_path / "results.tsv", text)
    assert read_rows(tmp_path / "results.tsv")[1]["description"] == meant  # as it is shown
    read = pd.read_csv(io.StringIO(text), sep="\t")
    assert (read["description"][1], read["gain_bpb"][1]) == (f"'{meant}", -0.0012)


def test_an_apostrophe_of_the_title_itself_stays(tmp_path):
    write_plain(tmp_path / "results.tsv", render("", [(NIGHT, (attempt(0, 1.5, Status.KEEP, "'quoted' x"),))]))
    assert read_rows(tmp_path / "results.tsv")[0]["description"] == "'quoted' x"


@pytest.mark.parametrize(
    ("peak_mb", "shown"), [(0.0, ""), (1.0, "0.001"), (45.0, "0.044"), (60.0, "0.1"), (1536.0, "1.5")]
)
def test_memory_of_a_small_script_is_not_nothing(peak_mb, shown):
    small = attempt(0, 1.5, Status.KEEP)
    summary = dataclasses.replace(small.runs[0].summary, peak_vram_mb=peak_mb)
    small = dataclasses.replace(small, runs=(dataclasses.replace(small.runs[0], summary=summary),))
    assert cells(lines_of(NIGHT, [small])[0])["memory_gb"] == shown


def test_no_cell_holds_commands_to_a_terminal_or_absurd_numbers():
    boast = Summary(training_seconds=-1e299, peak_vram_mb=1e299, total_tokens_M=1e299, num_params_M=1e299)
    odd = attempt(1, 1.25, Status.KEEP, "wiped\x1b[2K\u202e\x00\udc80")
    row = cells(lines_of(NIGHT, [dataclasses.replace(odd, runs=(dataclasses.replace(odd.runs[0], summary=boast),))])[0])
    assert row["description"] == r"wiped\x1b[2K\u202e\x00\udc80"
    assert [row[name] for name in ("memory_gb", "tokens_M", "params_M", "train_s")] == [""] * 4


def at_dawn(one: Attempt, *scores: tuple[float, float]) -> Attempt:
    """With such scores on both texts."""
    runs = [
        dataclasses.replace(one.runs[0], seed=1000 + k, dawn=1, score=Score(bpb, 1.0), holdout=Score(held, 1.0))
        for k, (bpb, held) in enumerate(scores)
    ]
    return dataclasses.replace(one, runs=(*one.runs, *runs))


def a_question() -> Attempt:
    asked = at_dawn(attempt(4, 1.0, Status.DISCARD), (1.26, 1.36))
    return dataclasses.replace(asked, runs=asked.runs[1:], proposal=dataclasses.replace(asked.proposal, without=(1,)))


def test_dawn_has_columns_of_its_own_and_changes_no_other():
    before = lines_of(NIGHT, HISTORY)
    after = lines_of(NIGHT, [HISTORY[0], at_dawn(HISTORY[1], (1.3, 1.4), (1.4, 1.6))])
    row = cells(after[1])
    assert (row["dawn_bpb"], row["dawn_seeds"], row["holdout_bpb"]) == ("1.350000", "2", "1.500000")
    assert {name for name, cell in cells(before[1]).items() if row[name] != cell} == {
        *("dawn_bpb", "dawn_seeds", "holdout_bpb", "wall_s")
    }
    assert cells(after[0])["dawn_seeds"] == ""


def test_a_question_of_dawn_has_no_score_but_dawns(pd):
    text = render("", [(NIGHT, (*HISTORY, a_question()))])
    row = cells(text.splitlines()[-1])
    assert (row["val_bpb"], row["seeds"], row["dawn_bpb"], row["holdout_bpb"]) == ("", "0", "1.260000", "1.360000")
    rows = pd.read_csv(io.StringIO(text), sep="\t")
    assert rows["val_bpb"].isna().tolist() == [False, False, True, False, True]
    best = rows[rows["status"] == "keep"].groupby("tag")["val_bpb"].cummin()
    assert best.tolist() == [1.5, 1.25]


def test_without_an_account_of_its_own_the_memory_is_what_the_harness_saw_but_for_a_gpus():
    seen = dataclasses.replace(HISTORY[1].runs[0], peak_bytes=3 << 30)
    for said_mb, device_kind, memory_gb in (
        (1536.0, "cpu", "1.5"), (None, "cpu", "3.0"), (-1.0, "metal", "3.0"), (1e299, "cpu", "3.0"), (None, "cuda", ""),
    ):  # fmt: skip
        run = dataclasses.replace(seen, summary=Summary(peak_vram_mb=said_mb))
        night = dataclasses.replace(NIGHT, device_kind=device_kind)
        row = cells(lines_of(night, [dataclasses.replace(HISTORY[1], parent=None, runs=(run,))])[0])
        assert row["memory_gb"] == memory_gb


def test_an_attempt_still_at_work_has_no_row():
    at_work = dataclasses.replace(attempt(4, 1.0, Status.KEEP), decision=None)
    assert len(lines_of(NIGHT, (*HISTORY, at_work))) == 4


def test_the_analysis_code_of_the_ancestor_reads_it(pd):
    df = pd.read_csv(io.StringIO(render(f"{HEADER}\n{UPSTREAM}\n", [(NIGHT, HISTORY)])), sep="\t")
    df["val_bpb"] = pd.to_numeric(df["val_bpb"], errors="coerce")
    df["memory_gb"] = pd.to_numeric(df["memory_gb"], errors="coerce")
    df["status"] = df["status"].str.strip().str.upper()
    counts = df["status"].value_counts()
    assert (counts["KEEP"], counts["DISCARD"], counts["CRASH"]) == (3, 1, 1)
    valid = df[df["status"] != "CRASH"].copy().reset_index(drop=True)
    baseline_bpb = valid.loc[0, "val_bpb"]
    assert baseline_bpb == 0.9979
    kept = valid[valid["status"] == "KEEP"]
    assert kept["val_bpb"].iloc[1:].cummin().tolist() == [1.5, 1.25]
    hits = kept.assign(delta=kept["val_bpb"].shift(1) - kept["val_bpb"]).iloc[1:].sort_values("delta", ascending=False)
    assert hits.iloc[0]["description"] == "LR 0.1 → 0.2"


def test_a_row_of_another_tool_may_have_a_cell_of_any_length(tmp_path):
    long = "x" * 200_000
    (tmp_path / "results.tsv").write_bytes(f"commit\tdescription\r\na1b2c3d\t{long}\x0b\r\n\r\n".encode())
    assert read_rows(tmp_path / "results.tsv") == [{"commit": "a1b2c3d", "description": f"{long}\x0b"}]
