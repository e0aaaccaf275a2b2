"""results.tsv: the rows of all nights here, fit for every tool that reads them; rows of others stay as they are."""

import dataclasses
import io
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import refused
from judged import decided, scored_attempt
from samples import NIGHT, enter

from agent.errors import NightError
from agent.experiment import Attempt, Decision, Ending, History, Kind, Night, Proposal, Run, Score, Status, Summary
from agent.files import read_plain, write_plain
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import COLUMNS, HEADER, arranged, lines_of, read_rows, write_ledger

FOREIGN = "0000000\t1.000000\t1.0\tkeep\tfrom a clone\t0\told-night" + "\t" * 13
UPSTREAM = "a1b2c3d\t0.997900\t44.0\tkeep\tbaseline"  # five columns


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
    """Return a ledger's text after these nights were written to it."""
    return arranged(before, {night.tag: lines_of(night, history) for night, history in nights})


def put(path: Path, *nights: tuple[Night, History]) -> None:
    """Write these nights into a ledger."""
    write_plain(path, render(read_plain(path), nights))


def cells(line: str) -> dict[str, str]:
    return dict(zip(COLUMNS, line.split("\t"), strict=True))


def test_a_row_has_the_formats_that_tools_expect():
    row = cells(lines_of(NIGHT, HISTORY)[1])
    assert (row["commit"], row["val_bpb"], row["memory_gb"], row["status"]) == ("1111111", "1.250000", "1.5", "keep")
    assert (row["parent"], row["branch"], row["seeds"]) == ("0000000", "experiments/30s-t", "1")
    assert cells(lines_of(NIGHT, HISTORY)[2])["description"] == "a 'quoted' title of two lines"


@pytest.mark.parametrize("begin", ["@", " \r\n=", "＝"])
def test_no_cell_is_a_formula_to_a_spreadsheet(begin, tmp_path):
    title = begin + 'cmd|" /C calc"!A0'
    odd = attempt(1, 1.25, Status.KEEP, title)
    odd = dataclasses.replace(
        odd,
        proposal=dataclasses.replace(odd.proposal, source=title),
        decisions=(Decision(Kind.KEPT, title, gain_bpb=-0.0012, sure=0.5),),
    )
    text = render("", [(NIGHT, (HISTORY[0], odd))])
    row = cells(text.splitlines()[2])
    meant = begin.strip() + "cmd|' /C calc'!A0"
    assert [row[name] for name in ("description", "reason", "source")] == [f"'{meant}"] * 3
    assert row["gain_bpb"] == "-0.001200"  # a number is none
    write_plain(tmp_path / "results.tsv", text)
    assert read_rows(tmp_path / "results.tsv")[1]["description"] == meant  # as it is shown


def test_no_cell_holds_commands_to_a_terminal_or_absurd_numbers():
    boast = Summary(training_seconds=-1e299, peak_vram_mb=1e299, total_tokens_M=1e299, num_params_M=1e299)
    odd = attempt(1, 1.25, Status.KEEP, "wiped\x1b[2K\u202e\x00\udc80")
    row = cells(lines_of(NIGHT, [dataclasses.replace(odd, runs=(dataclasses.replace(odd.runs[0], summary=boast),))])[0])
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
    mine = lines_of(NIGHT, HISTORY)
    before = "\n".join([f"\ufeff{HEADER}", UPSTREAM, FOREIGN, *mine[:2], odd])  # no newline at the end
    after = render(before, [(NIGHT, HISTORY)]).split("\n")
    assert after == [HEADER, UPSTREAM, FOREIGN, *mine, odd, ""]
    assert render("\n".join(after), [(NIGHT, HISTORY)]) == "\n".join(after)


def test_bytes_that_are_no_utf8_survive(tmp_path):
    path = tmp_path / "results.tsv"
    path.write_bytes(UPSTREAM.encode() + b" \xff\r\n")
    put(path, (NIGHT, HISTORY))
    assert UPSTREAM.encode() + b" \xff\r\n" in path.read_bytes()


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "results.tsv")
    for use in (read_plain, read_rows, lambda path: write_plain(path, "text\n")):
        with pytest.raises(NightError, match=r"results\.tsv is no plain file; move it away"):
            use(tmp_path / "results.tsv")


def scored(number: int, parent: int | None = None) -> Attempt:
    return scored_attempt(number, 1.5, parent=parent, status=Status.KEEP, script=f"A = {number}")


def test_what_has_changed_in_any_journal_is_in_the_ledger_when_it_is_written_again(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    running = (dataclasses.replace(NIGHT, tag="u"), HISTORY[:2])

    def written_again(live: tuple[Night, History] | None = None) -> list[str]:
        write_ledger(place, live)
        return [f"{row['tag']} {row['attempt']}" for row in read_rows(place.ledger)]

    with Journal.create(place.journal("t"), NIGHT) as journal:
        enter(journal, scored(0))
        assert written_again() == ["t 0"]
        assert written_again(running) == ["t 0", "u 0", "u 1"]
        enter(journal, scored(1, parent=0))
        assert written_again() == ["t 0", "t 1", "u 0", "u 1"]
        stamp = place.ledger.stat().st_mtime_ns
        assert written_again() == ["t 0", "t 1", "u 0", "u 1"]
        assert place.ledger.stat().st_mtime_ns == stamp
    place.ledger.unlink()
    assert written_again(running) == ["t 0", "t 1", "u 0", "u 1"]
    place.journal("t").write_text("no journal any more")
    assert written_again((running[0], HISTORY[:1])) == ["t 0", "t 1", "u 0"]


def test_a_link_that_came_with_a_clone_leads_no_row_to_another_file(grounds, tmp_path):
    users, link = tmp_path / "profile", grounds.root / "results.tsv"
    grounds.try_scripts("t", [])
    users.write_text("alias ll='ls -l'\n")
    link.unlink()
    link.symlink_to(users)
    grounds.git("add", "-f", "results.tsv")
    for words in (("results",), ("run", "--tag", "t", "--sandbox", "off")):
        refusal = refused(grounds.nightshift(*words))
        assert refusal.endswith(
            "results.tsv as a link, so somebody else may have chosen what it would overwrite; "
            "remove the link with: git rm results.tsv"
        )
    assert users.read_text() == "alias ll='ls -l'\n"
    grounds.git("rm", "-q", "--cached", "results.tsv")
    assert grounds.nightshift("results").returncode == 0  # the user's own link
    assert len(read_rows(link)) == 2
    assert link.is_symlink()
