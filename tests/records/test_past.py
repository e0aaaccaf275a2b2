"""What earlier nights tell a later one: read from journals and from shipped records, which say the same."""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import nothing_yet, refused
from judged import scored_attempt, scored_run
from nights import Grounds, git, make_repository, unigram
from samples import NIGHT, enter

from agent.experiment import Attempt, Dawn, Decision, Ending, Kind, Noise, Proposal, Run, Score, Status, Summary
from agent.records import shipped
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.shipped import PastNight, likeness, past_nights
from agent.script.dials import dials_in, skeleton_of, values_of

SCRIPT = "DEPTH = 4\nWIDTHS = (1, (2.5, None))\nODD = {1}\nNAME = 'a'\n"


def night_of(place: Place, tag: str, started: str = NIGHT.started, **facts: object) -> None:
    """A night with a kept edit, a crash, an edit that drops a dial, and an unreadable script."""
    night = dataclasses.replace(NIGHT, tag=tag, started=started, **facts)
    with Journal.create(place.journal(tag), night) as journal:
        enter(journal, scored_attempt(0, 1.5, 1.52, status=Status.KEEP, script=SCRIPT))
        fast = Run(0, Ending.FINISHED, 0, 2.0, Summary(total_tokens_M=3.0), "", Score(1.4, 1.0), peak_bytes=10**9)
        kept = Proposal(SCRIPT.replace("4", "6"), "DEPTH 4 → 6", "Deeper.\u2028", "catalogue: deeper")
        enter(journal, Attempt(1, 0, kept, "", runs=(fast, scored_run(1, 1.43))), Decision(Kind.KEPT, "", 0.09, 0.98))
        crash = Run(0, Ending.CRASHED, 1, 1.0, None, "boom")
        dropped = Proposal("DEPTH = 4\nNEW = '\\ud800'\n", "without names", "", "search")
        enter(journal, Attempt(2, 1, dropped, "", runs=(crash,)), Decision(Kind.CRASHED, "boom"))
        enter(journal, scored_attempt(3, 1.6, parent=1, script="if", without=(1,)))
        journal.add_attempt(4, 1, Proposal(SCRIPT.replace("4", "8"), "in flight", "", "search"), "")
        journal.record_facts(noise=Noise(0.02, 3, 0.06))


def the_past(place: Place, except_tag: str = "") -> dict[str, PastNight]:
    return {past.night.tag: past for past in past_nights(place, except_tag)}


@pytest.fixture
def place(tmp_path):
    return Place.of(make_repository(tmp_path / "repository", SCRIPT) / "train_mlx.py")


def test_a_past_night_tells_what_was_measured(place):
    night_of(place, "t")
    past = the_past(place)["t"]
    assert past.night == dataclasses.replace(NIGHT, tag="t")
    assert past.sigma_bpb is not None
    assert 0.001 < past.sigma_bpb < 0.1
    first, kept, crashed, question, in_flight = past.attempts
    with Journal.read(place.journal("t")) as journal:
        assert tuple(outline.attempt for outline in past.attempts) == journal.outlines()
    assert first.dials == {"DEPTH": 4, "WIDTHS": (1, (2.5, None)), "NAME": "a"}  # no set: JSON has none
    assert kept.skeleton == first.skeleton == skeleton_of(SCRIPT, "cpu")
    assert crashed.dials == {"DEPTH": 4, "NEW": "\ud800"}
    assert (question.skeleton, question.dials) == ("", {})
    assert in_flight.dials["DEPTH"] == 8


def test_nights_come_the_oldest_first_without_the_one_that_goes_on(place):
    for tag, day in (("b", 3), ("a", 2), ("c", 1)):
        night_of(place, tag, f"2026-01-0{day}T00:00:00Z")
    assert [past.night.tag for past in past_nights(place, "a")] == ["c", "b"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, 1.0),
        ({"device_kind": "cuda"}, 0.0),
        ({"device": "another CPU"}, 0.5),
        ({"protocol": "q"}, 0.5),
        ({"protocol": "q", "budget_s": 300.0}, 0.05),
        ({"protocol": "q", "budget_s": 3.0, "device": "another CPU"}, 0.025),
    ],
)
def test_a_night_tells_less_the_more_it_differs(facts, expected):
    assert likeness(dataclasses.replace(NIGHT, **facts), NIGHT) == pytest.approx(expected)


# ---- shipped records -------------------------------------------------------------------------------------------------


def nightshift(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return Grounds(place.repo.root).nightshift(*words)


def test_a_shipped_night_tells_what_its_journal_does(place, tmp_path):
    night_of(place, "t")
    before = the_past(place)["t"]
    assert nightshift(place, "export", "record", "t").returncode == 0
    assert "DEPTH 4 → 6" in (place.shipped / "t" / "attempts.jsonl").read_text()
    shutil.rmtree(place.nights)
    told = the_past(place)["t"]
    assert (told.sigma_bpb, told.night.device, told.night.protocol) == (
        before.sigma_bpb, before.night.device, before.night.protocol
    )  # fmt: skip
    for there, outline in zip(told.attempts, before.attempts, strict=True):
        runs = tuple(dataclasses.replace(run, last_lines="") for run in outline.attempt.runs)
        assert there.attempt == dataclasses.replace(outline.attempt, runs=runs)
        assert (there.dials, there.skeleton) == (outline.dials, outline.skeleton)
    assert past_nights(place, "t") == ()


def test_a_night_with_journal_and_record_counts_once_and_another_of_its_name_beside_it(place):
    night_of(place, "t")
    assert nightshift(place, "export", "record").returncode == 0
    assert len(past_nights(place, "")) == 1
    shutil.rmtree(place.nights)
    night_of(place, "t", "2026-02-01T00:00:00Z")
    assert len(past_nights(place, "")) == 2


def test_a_record_that_was_killed_half_made_is_not_read(place):
    night_of(place, "t")
    assert nightshift(place, "export", "record").returncode == 0
    shutil.rmtree(place.nights)
    (place.shipped / "t").rename(place.shipped / ".t.nightshift-new")
    assert past_nights(place, "") == ()


@pytest.mark.parametrize("file", ["night.json", "attempts.jsonl"])
@pytest.mark.parametrize("text", ["", "[]", "{", '{"tag": "t"}\n', "\0\xff", "[" * 100_000])
def test_a_damaged_record_is_skipped(place, file, text):
    night_of(place, "t")
    night_of(place, "u")
    for tag in ("t", "u"):
        assert nightshift(place, "export", "record", tag).returncode == 0
    shutil.rmtree(place.nights)
    (place.shipped / "t" / file).write_text(text, encoding="latin-1")
    assert list(the_past(place)) == ["u"]


NAN, INF = float("nan"), float("inf")
SCORE = "attempts.jsonl", "attempt", "runs", 0, "score"


@pytest.mark.parametrize(
    ("where", "changed"),
    [
        *((("night.json", "night"), {"budget_s": value}) for value in (NAN, INF, 0, 1e-320, "300")),
        *((("night.json", "noise"), {"sigma_bpb": value}) for value in (NAN, INF, -1.0, 1e-300)),
        *((SCORE, {"val_bpb": value}) for value in (NAN, INF, -1.0, 0.0, 1e300, 1e-300)),
        *((SCORE, {"wall_s": value}) for value in (NAN, 1e300, 10**400)),
        *((("attempts.jsonl", "attempt", "decision"), {name: NAN}) for name in ("gain_bpb", "sure")),
    ],
)
def test_a_record_of_numbers_that_no_night_measures_is_skipped(place, where, changed):
    night_of(place, "t")
    assert nightshift(place, "export", "record", "t").returncode == 0
    shutil.rmtree(place.nights)
    file, *keys = where
    path = place.shipped / "t" / file
    first, *others = path.read_text().split("\n") if file == "attempts.jsonl" else [path.read_text()]
    facts = record = json.loads(first)
    for key in keys:
        facts = facts[key]
    facts |= changed
    path.write_text("\n".join([json.dumps(record), *others]))
    assert list(the_past(place)) == []


def test_of_a_records_dials_what_is_no_value_of_a_dial_tells_nothing(place):
    night_of(place, "t")
    assert nightshift(place, "export", "record", "t").returncode == 0
    shutil.rmtree(place.nights)
    path = place.shipped / "t" / "attempts.jsonl"
    first, *others = path.read_text().split("\n")
    odd = {"A": [{}], "C": {"deep": 1}, "D": [1, [{}]], "E": [1, [2]]}
    path.write_text("\n".join([json.dumps(json.loads(first) | {"dials": odd}), *others]))
    assert the_past(place)["t"].attempts[0].dials == {
        "A": (None,), "C": None, "D": (1, (None,)), "E": (1, (2,))
    }  # fmt: skip


def test_of_a_scripts_dials_a_number_that_no_table_has_room_for_tells_nothing():
    script = f"A = {10**30}\nB = 2\nC = (1, -{10**30})\nD = True\n"
    assert dials_in(script, "cpu") == {"B": 2, "D": True}


def test_a_record_that_is_a_device_or_has_no_end_is_skipped(place, monkeypatch):
    for tag in ("t", "u"):
        night_of(place, tag)
        assert nightshift(place, "export", "record", tag).returncode == 0
    shutil.rmtree(place.nights)
    (place.shipped / "t" / "night.json").unlink()
    (place.shipped / "t" / "night.json").symlink_to("/dev/zero")
    assert list(the_past(place)) == ["u"]
    monkeypatch.setattr(shipped, "MOST_BYTES", 100)
    assert list(the_past(place)) == []


def test_a_damaged_journal_is_skipped(place):
    night_of(place, "t")
    night_of(place, "u")
    place.journal("t").write_bytes(b"no journal")
    assert list(the_past(place)) == ["u"]


@pytest.mark.usefixtures("own_cache")
def test_a_real_night_is_shipped_with_its_champion_and_findings(place):
    place.script_path.write_text(unigram(SHARPNESS=0.5))
    git(place.repo.root, "commit", "-qam", "a script")
    grounds = Grounds(place.repo.root)
    grounds.try_scripts("t", [unigram(SHARPNESS=0.7)])
    with Journal.resume(place.journal("t")) as journal:
        journal.put_dawn(Dawn(1, 1, 4, "2026-01-02T03:04:05Z", None, {"script": 1, "honest": None}))
    told = nightshift(place, "export", "record", "--out", str(place.repo.root / "record"))
    assert told.returncode == 0, told.stderr
    files = {path.name: path.read_text() for path in (place.repo.root / "record").iterdir()}
    assert sorted(files) == ["attempts.jsonl", "champion.diff", "findings.json", "night.json"]
    assert all(f"record/{name}" in told.stdout for name in files)
    assert json.loads(files["findings.json"])["findings"]["script"] == 1
    facts = json.loads(files["night.json"])
    assert (facts["incumbent"], facts["confirmed"]) == (1, 1)
    row = json.loads(files["attempts.jsonl"].splitlines()[1])
    with Journal.read(place.journal("t")) as journal:
        attempt = journal.attempt(1)
    assert row["dials"] == values_of(attempt.proposal.script, "cpu")
    assert row["dials"]["SHARPNESS"] == 0.7
    assert row["attempt"]["runs"][0]["score"]["val_bpb"] == attempt.scores_bpb[0]
    assert row["attempt"]["commit"] == attempt.commit
    git(place.repo.root, "apply", "record/champion.diff")  # of attempt 0's script, which stands in the working tree
    assert place.script_path.read_text() == attempt.proposal.script


def test_a_record_is_written_again_and_replaces_no_other(place):
    night_of(place, "t")
    night_of(place, "u")
    record = place.shipped / "t"
    assert nightshift(place, "export", "record", "t").returncode == 0
    (record / "champion.diff").write_text("an earlier one")
    assert nightshift(place, "export", "record", "t").returncode == 0
    assert sorted(path.name for path in place.shipped.iterdir()) == ["t"]
    assert "something other than the record of night u" in refused(
        nightshift(place, "export", "record", "u", "--out", str(record))
    )
    readme = Path(place.repo.root, "docs", "page.md")
    readme.parent.mkdir()
    readme.write_text("mine")
    assert "something other" in refused(nightshift(place, "export", "record", "u", "--out", str(readme.parent)))
    assert readme.read_text() == "mine"


def test_a_night_without_a_result_is_not_shipped(place):
    with Journal.create(place.journal("t"), NIGHT):
        pass
    assert "no result yet" in nothing_yet(nightshift(place, "export", "record"))
    assert not place.shipped.exists()
