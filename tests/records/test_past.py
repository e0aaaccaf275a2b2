"""What earlier nights tell a later one: read from journals and from shipped records, which say the same."""

import dataclasses
import json
import shutil
import subprocess

import pytest
from commands import refused
from judged import scored_attempt, scored_run
from nights import Grounds, git, make_repository, unigram
from samples import NIGHT, enter

from agent.experiment import (
    Attempt,
    Dawn,
    Decision,
    Ending,
    Findings,
    Kind,
    Noise,
    Proposal,
    Run,
    Score,
    Status,
    Summary,
)
from agent.records import shipped
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.shipped import PastNight, likeness, past_nights
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


def test_a_night_with_journal_and_record_counts_once_and_another_of_its_name_beside_it(place):
    night_of(place, "t")
    assert nightshift(place, "export", "record").returncode == 0
    assert len(past_nights(place, "")) == 1
    shutil.rmtree(place.nights)
    night_of(place, "t", "2026-02-01T00:00:00Z")
    assert len(past_nights(place, "")) == 2


@pytest.mark.parametrize("file", ["night.json", "attempts.jsonl"])
@pytest.mark.parametrize("text", ["", "[]", "\0\xff", "[" * 100_000])
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
        *((("night.json", "night"), {"budget_s": value}) for value in (NAN, 0, "300")),
        *((("night.json", "noise"), {"sigma_bpb": value}) for value in (INF, -1.0)),
        *((SCORE, {"val_bpb": value}) for value in (NAN, 0.0, 1e300)),
        *((SCORE, {"wall_s": value}) for value in (NAN, 10**400)),
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


@pytest.mark.usefixtures("own_cache")
def test_a_real_night_is_shipped_with_its_champion_and_findings(place):
    place.script_path.write_text(unigram(SHARPNESS=0.5))
    git(place.repo.root, "commit", "-qam", "a script")
    grounds = Grounds(place.repo.root)
    grounds.try_scripts("t", [unigram(SHARPNESS=0.7)])
    with Journal.resume(place.journal("t")) as journal:
        found = Findings(1, 1, 8, 0.1, 0.1, None, None, (), (), None, None)
        journal.put_dawn(Dawn(1, 1, 4, "2026-01-02T03:04:05Z", None, found))
    told = nightshift(place, "export", "record", "--out", str(place.repo.root / "record"))
    assert told.returncode == 0, told.stderr
    files = {path.name: path.read_text() for path in (place.repo.root / "record").iterdir()}
    assert sorted(files) == ["attempts.jsonl", "champion.diff", "findings.json", "night.json"]
    facts = json.loads(files["night.json"])
    assert (facts["incumbent"], facts["confirmed"]) == (1, 1)
    row = json.loads(files["attempts.jsonl"].splitlines()[1])
    assert row["dials"]["SHARPNESS"] == 0.7
    git(place.repo.root, "apply", "record/champion.diff")  # of attempt 0's script, which stands in the working tree
    assert place.script_path.read_text() == grounds.attempts("t")[1].proposal.script


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
