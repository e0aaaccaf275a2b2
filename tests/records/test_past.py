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

from agent.experiment import Attempt, Dawn, Decision, Ending, Kind, Proposal, Run, Score, Status, Summary
from agent.records import past
from agent.records.journal import Journal
from agent.records.past import PastNight, likeness, of_journal, past_nights
from agent.records.place import Place
from agent.script.dials import skeleton_of

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


def the_past(place: Place, except_tag: str = "") -> dict[str, PastNight]:
    return {past.tag: past for past in past_nights(place, except_tag)}


@pytest.fixture
def place(tmp_path):
    return Place.of(make_repository(tmp_path / "repository", SCRIPT) / "train_mlx.py")


def test_a_past_night_tells_what_was_measured(place):
    night_of(place, "t")
    past = the_past(place)["t"]
    assert (past.device, past.device_kind, past.protocol, past.budget_s) == ("a CPU", "cpu", "p" * 12, 30.0)
    assert past.sigma_bpb is not None
    assert 0.001 < past.sigma_bpb < 0.1
    first, kept, crashed, question, in_flight = past.attempts
    assert first.dials == {"DEPTH": 4, "WIDTHS": (1, (2.5, None)), "NAME": "a"}  # no set: JSON has none
    assert (first.parent, first.runs, first.kind) == (None, 2, "kept")
    assert (kept.title, kept.source, kept.parent) == ("DEPTH 4 → 6", "catalogue: deeper", 0)
    assert (kept.gain_bpb, kept.sure, kept.kind, kept.crashed) == (0.09, 0.98, "kept", False)
    assert (kept.peak_gb, kept.tokens_s, kept.val_bpb) == (1.0, 1.5e6, pytest.approx(1.415))
    assert kept.skeleton == first.skeleton == skeleton_of(SCRIPT, "cpu")
    assert crashed.crashed
    assert (crashed.val_bpb, crashed.dials) == (None, {"DEPTH": 4, "NEW": "\ud800"})
    assert (question.without, question.skeleton, question.dials) == ((1,), "", {})
    assert (in_flight.kind, in_flight.runs, in_flight.dials["DEPTH"]) == (None, 0, 8)


def test_nights_come_the_oldest_first_without_the_one_that_goes_on(place):
    for tag, day in (("b", 3), ("a", 2), ("c", 1)):
        night_of(place, tag, f"2026-01-0{day}T00:00:00Z")
    assert [past.tag for past in past_nights(place, "a")] == ["c", "b"]


def test_of_a_long_night_the_latest_attempts_and_the_first_are_read(place):
    with Journal.create(place.journal("long"), dataclasses.replace(NIGHT, tag="long")) as journal:
        journal._db.execute("PRAGMA synchronous = OFF")
        enter(journal, scored_attempt(0, 1.5, 1.51, status=Status.KEEP, script="A = 0"))
        for number in range(1, 700):
            enter(journal, scored_attempt(number, 1.6, parent=0, script=f"A = {number}"))
        past = of_journal(journal)
    assert [one.number for one in past.attempts] == [0, *range(200, 700)]
    assert past.sigma_bpb is not None


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
    past = PastNight("t", NIGHT.device, NIGHT.device_kind, NIGHT.protocol, NIGHT.budget_s, None, ())
    assert likeness(dataclasses.replace(past, **facts), NIGHT) == pytest.approx(expected)


# ---- shipped records -------------------------------------------------------------------------------------------------


def nightshift(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return Grounds(place.repo.root).nightshift(*words)


def test_a_shipped_night_tells_what_its_journal_does(place, tmp_path):
    night_of(place, "t")
    before = the_past(place)["t"]
    assert nightshift(place, "ship", "--tag", "t").returncode == 0
    assert "DEPTH 4 → 6" in (place.shipped / "t" / "attempts.jsonl").read_text()
    shutil.rmtree(place.nights)
    assert the_past(place)["t"] == before
    assert past_nights(place, "t") == ()


def test_a_night_with_journal_and_record_counts_once_and_another_of_its_name_beside_it(place):
    night_of(place, "t")
    assert nightshift(place, "ship").returncode == 0
    assert len(past_nights(place, "")) == 1
    shutil.rmtree(place.nights)
    night_of(place, "t", "2026-02-01T00:00:00Z")
    assert len(past_nights(place, "")) == 2


def test_a_record_that_was_killed_half_made_is_not_read(place):
    night_of(place, "t")
    assert nightshift(place, "ship").returncode == 0
    shutil.rmtree(place.nights)
    (place.shipped / "t").rename(place.shipped / ".t.nightshift-new")
    assert past_nights(place, "") == ()


@pytest.mark.parametrize("file", ["night.json", "attempts.jsonl"])
@pytest.mark.parametrize("text", ["", "[]", "{", '{"tag": "t"}\n', "\0\xff", "[" * 100_000])
def test_a_damaged_record_is_skipped(place, file, text):
    night_of(place, "t")
    night_of(place, "u")
    for tag in ("t", "u"):
        assert nightshift(place, "ship", "--tag", tag).returncode == 0
    shutil.rmtree(place.nights)
    (place.shipped / "t" / file).write_text(text, encoding="latin-1")
    assert list(the_past(place)) == ["u"]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        *(("night.json", {"budget_s": value}) for value in (NAN, INF, 0, 1e-320, "300")),
        *(("night.json", {"sigma_bpb": value}) for value in (NAN, INF, -1.0, 1e-300)),
        *(("attempts.jsonl", {"val_bpb": value}) for value in (NAN, INF, -1.0, 0.0, 1e300, 1e-300)),
        *(("attempts.jsonl", {"runs": value}) for value in (NAN, -1, 10**400)),
        *(("attempts.jsonl", {name: NAN}) for name in ("gain_bpb", "sure", "peak_gb", "tokens_s")),
    ],
)
def test_a_record_of_numbers_that_no_night_measures_is_skipped(place, file, changed):
    night_of(place, "t")
    assert nightshift(place, "ship", "--tag", "t").returncode == 0
    shutil.rmtree(place.nights)
    path = place.shipped / "t" / file
    first, *others = path.read_text().split("\n") if file == "attempts.jsonl" else [path.read_text()]
    path.write_text("\n".join([json.dumps(json.loads(first) | changed), *others]))
    assert list(the_past(place)) == []


def test_of_a_records_dials_what_is_no_value_of_a_dial_tells_nothing(place):
    night_of(place, "t")
    assert nightshift(place, "ship", "--tag", "t").returncode == 0
    shutil.rmtree(place.nights)
    path = place.shipped / "t" / "attempts.jsonl"
    first, *others = path.read_text().split("\n")
    odd = {"A": [{}], "B": 10**400, "C": {"deep": 1}, "D": [1, [{}]], "E": [1, [2]]}
    path.write_text("\n".join([json.dumps(json.loads(first) | {"dials": odd}), *others]))
    assert the_past(place)["t"].attempts[0].dials == {
        "A": (None,), "B": None, "C": None, "D": (1, (None,)), "E": (1, (2,))
    }  # fmt: skip


def test_of_a_scripts_dials_a_number_that_no_table_has_room_for_tells_nothing():
    script = f"A = {10**30}\nB = 2\nC = (1, -{10**30})\nD = True\n"
    assert past.dials_in(script, "cpu") == {"B": 2, "D": True}


def test_a_record_that_is_a_device_or_has_no_end_is_skipped(place, monkeypatch):
    for tag in ("t", "u"):
        night_of(place, tag)
        assert nightshift(place, "ship", "--tag", tag).returncode == 0
    shutil.rmtree(place.nights)
    (place.shipped / "t" / "night.json").unlink()
    (place.shipped / "t" / "night.json").symlink_to("/dev/zero")
    assert list(the_past(place)) == ["u"]
    monkeypatch.setattr(past, "MOST_BYTES", 100)
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
    told = nightshift(place, "ship", "--to", str(place.repo.root / "record"))
    assert told.returncode == 0, told.stderr
    files = {path.name: path.read_text() for path in (place.repo.root / "record").iterdir()}
    assert sorted(files) == ["attempts.jsonl", "champion.diff", "findings.json", "night.json"]
    assert all(f"record/{name}" in told.stdout for name in files)
    assert json.loads(files["findings.json"])["findings"]["script"] == 1
    facts = json.loads(files["night.json"])
    assert (facts["incumbent"], facts["confirmed"], facts["attempts"]) == (1, 1, 2)
    row = json.loads(files["attempts.jsonl"].splitlines()[1])
    with Journal.read(place.journal("t")) as journal:
        attempt = journal.attempt(1)
    assert row["dials"] == {"SHARPNESS": 0.7}
    assert row["scores"][0]["val_bpb"] == attempt.scores_bpb[0]
    assert row["commit"] == attempt.commit
    git(place.repo.root, "apply", "record/champion.diff")  # of attempt 0's script, which stands in the working tree
    assert place.script_path.read_text() == attempt.proposal.script


def test_a_record_is_written_again_and_replaces_no_other(place):
    night_of(place, "t")
    night_of(place, "u")
    record = place.shipped / "t"
    assert nightshift(place, "ship", "--tag", "t").returncode == 0
    (record / "champion.diff").write_text("an earlier one")
    assert nightshift(place, "ship", "--tag", "t").returncode == 0
    assert sorted(path.name for path in place.shipped.iterdir()) == ["t"]
    assert "something other than the record of night u" in refused(
        nightshift(place, "ship", "--tag", "u", "--to", str(record))
    )
    readme = Path(place.repo.root, "docs", "page.md")
    readme.parent.mkdir()
    readme.write_text("mine")
    assert "something other" in refused(nightshift(place, "ship", "--tag", "u", "--to", str(readme.parent)))
    assert readme.read_text() == "mine"


def test_a_night_without_a_result_is_not_shipped(place):
    with Journal.create(place.journal("t"), NIGHT):
        pass
    assert "no result yet" in nothing_yet(nightshift(place, "ship"))
    assert not place.shipped.exists()
