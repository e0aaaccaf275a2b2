"""The queue: what people drop in is tried in their order, each entry once, whatever happens in between."""

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nights import PROJECT
from queued import NOW, SCRIPT, aside, brief, patch, put, tried
from samples import NIGHT

from agent.errors import NoIdea, ScriptError
from agent.experiment import Proposal, Status
from agent.proposers.queue import MAX_ENTRY_BYTES, Queue, waiting
from agent.proposers.source import Briefing
from agent.records.journal import Journal

ANOTHER_NIGHT = replace(NIGHT, tag="another")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "experiments" / "queue"


@pytest.fixture
def queue(folder: Path) -> Queue:
    return Queue(folder, folder.parent / "nights")


# ---- submitting ------------------------------------------------------------------------------------------------------


def test_entries_are_tried_in_their_order(folder, queue):
    history = [SCRIPT]
    for depth in (5, 6, 7):
        put(folder, SCRIPT.replace("DEPTH = 4", f"DEPTH = {depth}"), f"depth {depth}\nIt may help.")
    for depth in (5, 6, 7):
        proposal = queue.ideas(brief(*history))[0]
        assert (proposal.title, proposal.hypothesis, proposal.source) == (
            *(f"depth {depth}", "It may help."),
            f"queue: 000{depth - 4}",
        )
        history.append(proposal)
    with pytest.raises(NoIdea, match="the queue is empty"):
        queue.ideas(brief(*history))
    assert aside(folder, "done") == {f"000{n}": f"attempt {n} of night {NIGHT.tag}" for n in (1, 2, 3)}


def test_a_number_is_never_given_twice(folder, queue):
    first = put(folder, SCRIPT.replace("4", "5"))
    with pytest.raises(NoIdea):
        queue.ideas(brief(SCRIPT, queue.ideas(brief(SCRIPT))[0]))
    assert not first.exists()
    assert put(folder, SCRIPT.replace("4", "6")).name == "0002.patch"


def test_many_who_submit_at_once_get_a_number_each(folder):
    code = f"""
import sys; sys.path.insert(0, {str(PROJECT)!r})
from pathlib import Path
from agent.proposers.queue import submit
for k in range(15):
    submit(Path({str(folder)!r}), {SCRIPT!r} + f"A = '{{sys.argv[1]}}{{k}}'", "an idea", script="t.py", now="")
"""
    crowd = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "abc"]
    assert [process.wait() for process in crowd] == [0, 0, 0]
    assert [path.stem for path in waiting(folder)] == [f"{n:04d}" for n in range(1, 46)]
    texts = [path.read_text().rpartition("\n")[2] for path in waiting(folder)]
    assert len(set(texts)) == 45
    for name in "abc":
        theirs = [text for text in texts if name in text]
        assert theirs == [f"A = '{name}{k}'" for k in range(15)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def main(:", "train_mlx.py line 1 does not parse"),
        ("x = 1", "breaks the contract: define main"),
        ("x = '\udc80'", "does not parse"),
        (patch(SCRIPT, SCRIPT.replace("4", "5"), "prepare.py"), "may edit train_mlx.py and nothing else .*prepare.py"),
        (patch(SCRIPT, SCRIPT.replace("4", "5"), "../train_mlx.py"), "may edit train_mlx.py and nothing else"),
        (patch(SCRIPT, SCRIPT.replace("4", "5")) + patch("a\n", "b\n", "other.py"), "nothing else .*other.py"),
        (
            "diff --git a/train_mlx.py b/train_mlx.py\nold mode 100644\nnew mode 120000\n"
            + patch(SCRIPT, SCRIPT.replace("4", "5")),
            "makes, removes or renames files",
        ),
    ],
)
def test_what_can_never_be_tried_is_refused_at_once(folder, text, words):
    with pytest.raises(ScriptError, match=words):
        put(folder, text)
    assert waiting(folder) == []


# ---- taking ----------------------------------------------------------------------------------------------------------


@dataclass
class Nights:
    """Nights that take from one queue, are killed anywhere, and are followed by others."""

    folder: Path
    tag: str = ""
    taken: Proposal | None = None  # and not in a journal yet

    def begin(self, count: int) -> None:
        self.tag, self.taken = f"n{count:02d}", None
        with Journal.create(self.path(self.tag), replace(NIGHT, tag=self.tag)) as journal:
            journal.add_attempt(0, None, Proposal(SCRIPT, "baseline", "", "you"), NOW)

    def take(self) -> None:
        with Journal.read(self.path(self.tag)) as journal:
            history = journal.attempts()
        briefing = Briefing(replace(NIGHT, tag=self.tag), history, history[0])
        self.taken = Queue(self.folder / "queue", self.folder / "nights").ideas(briefing)[0]

    def enter(self) -> None:
        if self.taken is not None:
            with Journal.resume(self.path(self.tag)) as journal:
                journal.add_attempt(len(journal.attempts()), 0, self.taken, NOW)
            self.taken = None

    def tried(self) -> list[str]:
        titles = []
        for path in sorted((self.folder / "nights").glob("*/journal.sqlite")):
            with Journal.read(path) as journal:
                titles += [attempt.proposal.title for attempt in journal.attempts()[1:]]
        return titles

    def path(self, tag: str) -> Path:
        return self.folder / "nights" / tag / "journal.sqlite"


@given(st.lists(st.sampled_from(["submit", "take", "enter", "kill", "another night"]), min_size=12, max_size=24))
@settings(max_examples=10, deadline=None)
def test_every_entry_is_tried_once_and_in_order_wherever_nights_are_killed(tmp_path_factory, deeds):
    nights, submitted = Nights(tmp_path_factory.mktemp("nights")), 0
    nights.begin(0)
    for count, deed in enumerate([*deeds, *["take", "enter"] * (deeds.count("submit") + 1)], 1):
        match deed:
            case "submit":
                submitted += 1
                put(nights.folder / "queue", f"{SCRIPT}A = {submitted}\n", f"idea {submitted}")
            case "take":
                with suppress(NoIdea):
                    nights.take()
            case "enter":
                nights.enter()
            case "kill":
                nights.taken = None
            case "another night":
                nights.begin(count)
    assert nights.tried() == [f"idea {number}" for number in range(1, submitted + 1)]


def test_an_entry_of_a_night_whose_journal_is_gone_is_not_lost(folder, queue):
    put(folder, SCRIPT.replace("DEPTH = 4", "DEPTH = 5"))
    proposal = queue.ideas(brief(SCRIPT))[0]
    elsewhere = Briefing(ANOTHER_NIGHT, [tried(0, SCRIPT, "you", Status.KEEP)], tried(0, SCRIPT, "you"))
    assert queue.ideas(elsewhere)[0] == proposal


def test_links_pipes_and_other_names_are_left_alone(tmp_path, folder, queue):
    put(folder, SCRIPT.replace("4", "5")).rename(tmp_path / "elsewhere.patch")
    (folder / "0001.patch").symlink_to(tmp_path / "elsewhere.patch")
    os.mkfifo(folder / "0002.patch")
    (folder / "0003.patch").mkdir()
    (folder / "0004 .patch").write_text("{}")
    (folder / "..0005.patch").write_text("{}")
    with pytest.raises(NoIdea, match="the queue is empty"):
        queue.ideas(brief(SCRIPT))
    assert not (folder / "refused").exists()
    assert put(folder, SCRIPT.replace("4", "6")).name == "0004.patch"


@pytest.mark.parametrize(
    "content",
    [
        "",
        SCRIPT,
        f"Title: a tag that is none\nNight: ../../x\n\n{SCRIPT}",
        f"Title: half a quote\nOptions: --llm 'a\n\n{SCRIPT}",
        " " * (MAX_ENTRY_BYTES + 1),
    ],
)
def test_files_that_are_no_entries_are_put_aside(folder, queue, content):
    folder.mkdir(parents=True)
    (folder / "0001.patch").write_text(content)
    put(folder, SCRIPT.replace("DEPTH = 4", "DEPTH = 5"))
    assert queue.ideas(brief(SCRIPT))[0].title == "an idea"
    assert "put it there with: nightshift try --queue" in aside(folder, "refused")["0001"]


@pytest.mark.parametrize("basis", ["9", "9" * 5000])
def test_a_basis_that_the_night_does_not_have_does_not_hold_the_queue_up(folder, queue, basis):
    folder.mkdir(parents=True)
    edit = SCRIPT.replace("DEPTH = 4", "DEPTH = 5")
    (folder / "0001.patch").write_text(f"Title: t\nBasis: {basis}\nFor: {NIGHT.tag}\n\n{edit}")
    put(folder, SCRIPT.replace("DEPTH = 4", "DEPTH = 6"))
    kept = SCRIPT.replace("LR = 0.04", "LR = 0.02")
    assert "DEPTH" in queue.ideas(brief(SCRIPT, kept, best=1))[0].script
    refused = aside(folder, "refused").get("0001", "which night t does not have")
    assert "which night t does not have" in refused


def test_an_idea_of_the_catalogue_is_an_entry_as_it_stands(folder, queue):
    folder.mkdir(parents=True)
    edit = patch(SCRIPT, SCRIPT.replace("LR = 0.04", "LR = 0.02"))
    (folder / "0001.patch").write_text(f"Title: a smaller step\nWhy: It overshoots.\n  By far.\n\n{edit}")
    proposal = queue.ideas(brief(SCRIPT))[0]
    assert (proposal.title, proposal.hypothesis) == ("a smaller step", "It overshoots.\nBy far.")
    assert proposal.script == SCRIPT.replace("LR = 0.04", "LR = 0.02")


@pytest.mark.parametrize("first", ['Title: str = "mine"\n', '\n\nOptions: str = "x"\n', "\n"])
@pytest.mark.parametrize("message", ["an idea", "an idea\nWhy: because\n\nTitle: of it"])
def test_a_script_that_begins_like_a_header_is_tried_to_the_letter(folder, queue, first, message):
    put(folder, first + SCRIPT.replace("LR = 0.04", "LR = 0.03"), message)
    proposal = queue.ideas(brief(SCRIPT))[0]
    assert (proposal.title, proposal.script) == ("an idea", first + SCRIPT.replace("LR = 0.04", "LR = 0.03"))
    assert proposal.hypothesis == message.partition("\n")[2]
