"""The shipped record of a night: it says what its journal says, and nothing in one from elsewhere is trusted."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from judged import scored_attempt, scored_run
from nights import PROJECT, git, make_repository
from samples import FOUND, NIGHT, enter

from agent.errors import NightError
from agent.experiment import (
    UNREAD,
    Attempt,
    Decision,
    Ending,
    Kind,
    Noise,
    Proposal,
    Run,
    Score,
    Status,
    Summary,
    packed,
)
from agent.findings import Confirmation
from agent.records import shipped
from agent.records.journal import Journal
from agent.records.place import Place, known_tags, past_nights, read_night
from agent.records.record import likeness
from agent.records.shipped import ship
from agent.script.contract import MAX_DEPTH
from agent.view.answer import plain

SCRIPT = "DEPTH = 4\nWIDTHS = (1, (2.5, None))\nODD = {1}\nNAME = 'a'\n"


def night_of(place: Place, tag: str, started: str = NIGHT.started) -> None:
    """A night with a kept edit, a crash, an edit that drops a dial, an unreadable script, and a confirmation."""
    with Journal.create(place.journal(tag), dataclasses.replace(NIGHT, tag=tag, started=started)) as journal:
        enter(journal, scored_attempt(0, 1.5, 1.52, status=Status.KEEP, script=SCRIPT))
        summary = Summary(training_seconds=2.0, total_tokens_M=3.0)
        fast = Run(0, Ending.FINISHED, 0, 2.0, summary, "", Score(1.4, 1.0), peak_bytes=10**9)
        kept = Proposal("DEPTH 4 → 6", "Deeper.\u2028", "catalogue: deeper", packed=packed(SCRIPT.replace("4", "6")))
        enter(journal, Attempt(1, 0, kept, "", runs=(fast, scored_run(1, 1.43))), Decision(Kind.KEPT, "", 0.09, 0.98))
        crash = Run(0, Ending.CRASHED, 1, 1.0, None, "boom")
        dropped = Proposal.of("DEPTH = 4\nNEW = '\\ud800'\n", "without names", "", "search")
        enter(journal, Attempt(2, 1, dropped, "", runs=(crash,)), Decision(Kind.CRASHED, "boom"))
        enter(journal, scored_attempt(3, 1.6, parent=1, script="if", without=(1,)))
        journal.add_attempt(4, 1, Proposal.of(SCRIPT.replace("4", "8"), "in flight", "", "search"), "")
        journal.put_confirmation(
            Confirmation(1, 1, 4, "2026-01-02T05:00:00Z", None, dataclasses.replace(FOUND, best=1, edits=()))
        )
        journal.record_facts(noise=Noise(0.02, 3, 0.06))


@pytest.fixture
def place(tmp_path):
    return Place.of(make_repository(tmp_path / "repository", SCRIPT) / "train_mlx.py")


def shipped_alone(place: Place, *tags: str) -> Path:
    """Ship nights and remove their journals; return the folder of the first record."""
    for tag in tags:
        night_of(place, tag)
        ship(place.repo, read_night(place, tag), place.shipped / tag)
    shutil.rmtree(place.nights)
    return place.shipped / tags[0]


def past_tags(place: Place) -> list[str]:
    return [past.tag for past in past_nights(place, "")]


# ---- a record and its journal ----------------------------------------------------------------------------------------


def test_a_record_says_what_its_journal_says(place):
    night_of(place, "t")
    (here,) = past_nights(place, "")
    outlines = [attempt.outline for attempt in here.attempts]
    assert outlines[0].dials == {"DEPTH": 4, "WIDTHS": (1, (2.5, None)), "NAME": "a"}  # no set: JSON has none
    assert outlines[2].dials == {"DEPTH": 4}  # half a surrogate pair is no text
    assert outlines[3] == UNREAD
    assert outlines[0].differs_in_dials_only(outlines[1])
    assert here.turned[1] == {"DEPTH": (4, 6)}
    shipped_alone(place, "u")
    (there,) = past_nights(place, "t")
    for mine, theirs in zip(here.attempts, there.attempts, strict=True):
        runs = tuple(dataclasses.replace(run, last_lines="") for run in mine.runs)
        outline = dataclasses.replace(mine.outline, fingerprint="", code_size=0)
        proposal = dataclasses.replace(mine.proposal, packed=b"")
        assert theirs == dataclasses.replace(mine, runs=runs, outline=outline, proposal=proposal)
    for field in ("turned", "noise", "best_number", "findings"):
        assert getattr(there, field) == getattr(here, field), field
    assert plain(read_night(place, "u"))["attempts"] == plain(there)["attempts"]


def test_a_night_with_journal_and_record_counts_once_and_another_of_its_name_beside_it(place):
    night_of(place, "t")
    ship(place.repo, read_night(place, "t"), place.shipped / "t")
    assert past_tags(place) == ["t"]
    shutil.rmtree(place.nights)
    night_of(place, "t", "2026-02-01T00:00:00Z")
    assert past_tags(place) == ["t", "t"]
    assert past_nights(place, "t") == ()


def test_a_record_is_written_again_and_replaces_no_other(place):
    for tag in ("t", "u"):
        night_of(place, tag)
    record = place.shipped / "t"
    for _ in range(2):
        ship(place.repo, read_night(place, "t"), record)
        assert sorted(path.name for path in record.iterdir()) == ["attempts.jsonl", "night.json"]
        (record / "best.diff").write_text("an earlier one")
    with pytest.raises(NightError, match="something other than the record of night u"):
        ship(place.repo, read_night(place, "u"), record)


def test_a_night_is_shipped_with_what_its_confirmed_script_has_changed(trained):
    with Journal.resume(trained.folder("t") / "journal.sqlite") as journal:
        best = dataclasses.replace(FOUND, best=2, script=1, edits=())
        journal.put_confirmation(Confirmation(1, 2, 4, "2026-01-02T03:04:05Z", None, best))
    done = trained.nightshift("export", "record", "--out", str(trained.root / "record"))
    assert done.returncode == 0, done.stderr
    history = trained.attempts("t")
    (trained.root / "train_mlx.py").write_text(history[0].proposal.script)
    git(trained.root, "apply", "record/best.diff")
    assert (trained.root / "train_mlx.py").read_text() == history[1].proposal.script


def test_every_night_that_came_with_the_project_is_read():
    project = Place.of(PROJECT / "train_mlx.py")
    tags = {folder.name for folder in project.shipped.glob("*/")}
    assert tags
    assert tags <= set(known_tags(project))
    for tag in tags:
        assert json.dumps(plain(read_night(project, tag)), allow_nan=False)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, 1.0),
        ({"device_kind": "cuda"}, 0.0),
        ({"protocol": "q", "budget_s": 3.0, "device": "another CPU"}, 0.025),
    ],
)
def test_a_night_tells_less_the_more_it_differs(facts, expected):
    assert likeness(dataclasses.replace(NIGHT, **facts), NIGHT) == pytest.approx(expected)


# ---- one from elsewhere ----------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
RUN_0 = "attempt", "runs", 0
MARKUP = '<meta http-equiv="refresh" content="0; url=https://example.org">'
FINDINGS = "confirmations", 0, "findings"
WRONG = [
    *(("night.json", ("night",), {"budget_s": value}) for value in (NAN, 0, "300")),
    ("night.json", ("night",), {"script": "\ud800.py"}),
    ("night.json", ("noise",), {"sigma_bpb": -1.0}),
    *(("night.json", FINDINGS, facts) for facts in ({"best": MARKUP}, {"script": -1}, {"best": 99})),
    *(
        ("attempts.jsonl", (*RUN_0, "score"), facts)
        for facts in ({"val_bpb": 0.0}, {"val_bpb": 1e300}, {"wall_s": INF})
    ),
    ("attempts.jsonl", ("attempt", "decisions", 0), {"sure": NAN}),
    *(("attempts.jsonl", ("attempt",), facts) for facts in ({"number": 1}, {"commit": "--output=x"})),
]


@pytest.mark.parametrize(("file", "keys", "changed"), WRONG)
def test_a_record_of_what_no_night_has_is_damaged(place, file, keys, changed):
    damaged(place, lambda record: change(record / file, keys, changed))


def change(path: Path, keys: tuple[str | int, ...], changed: dict) -> None:
    """Change facts in a record's file, of attempts in the first line."""
    lines = path.read_text().split("\n") if path.name == "attempts.jsonl" else [path.read_text()]
    facts = record = json.loads(lines[0])
    for key in keys:
        facts = facts[key]
    facts |= changed
    path.write_text("\n".join([json.dumps(record), *lines[1:]]))


def damaged(place: Place, damage: Callable[[Path], object]) -> None:
    """A damaged record is skipped by those who learn from nights, and refused to those who name it."""
    damage(shipped_alone(place, "t", "u"))
    assert past_tags(place) == ["u"]
    with pytest.raises(NightError, match="t is damaged"):
        read_night(place, "t")


@pytest.mark.parametrize(
    ("file", "text"), [("night.json", "[]"), ("night.json", "\0\xff"), ("attempts.jsonl", "[" * 100_000)]
)
def test_a_file_that_is_no_record_is_damaged(place, file, text):
    damaged(place, lambda record: (record / file).write_text(text, encoding="latin-1"))


def test_a_record_of_another_night_is_damaged(place):
    damaged(place, lambda record: (shutil.rmtree(record), shutil.copytree(place.shipped / "u", record)))


def test_a_record_that_is_a_device_or_has_no_end_is_damaged(place, monkeypatch):
    facts = shipped_alone(place, "t", "u") / "night.json"
    facts.unlink()
    facts.symlink_to("/dev/zero")
    assert past_tags(place) == ["u"]
    monkeypatch.setattr(shipped, "MOST_BYTES", 100)
    assert past_tags(place) == []


def test_of_a_records_dials_what_is_no_value_of_a_dial_tells_nothing(place):
    far: list[object] = []
    for _ in range(400):  # shown or compared, it would be too deep
        far = [far]
    odd = {"A": [{}], "FAR": far, "C": {"deep": 1}, "D": [1, [{}]], "E": [1, [2]], "\x1b[2J": 1, "small": 1}
    change(shipped_alone(place, "t") / "attempts.jsonl", (), {"dials": odd})
    (past,) = past_nights(place, "")
    dials = dict(past.attempts[0].outline.dials)
    assert repr(dials.pop("FAR")).count("(") == MAX_DEPTH
    assert dials == {"A": (None,), "C": None, "D": (1, (None,)), "E": (1, (2,))}
