"""The queue: what people drop in is tried in their order, each entry once, whatever happens in between."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nights import PROJECT
from queued import NOW, SCRIPT, aside, brief, patch, put
from samples import NIGHT

from agent.errors import NoIdea, ScriptError
from agent.experiment import Proposal
from agent.proposers.queue import MAX_ENTRY_BYTES, Queue, waiting
from agent.records.journal import Journal


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
        proposal = queue.proposals(brief(*history))[0]
        facts = f"depth {depth}", "It may help.", f"queue: 000{depth - 4}"
        assert (proposal.title, proposal.hypothesis, proposal.proposer) == facts
        history.append(proposal)
    with pytest.raises(NoIdea, match="the queue is empty"):
        queue.proposals(brief(*history))
    assert aside(folder, "done") == {f"000{n}": f"attempt {n} of night {NIGHT.tag}" for n in (1, 2, 3)}


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
    texts = [path.read_text().rpartition("\n")[2] for path in waiting(folder)]
    for name in "abc":
        assert [text for text in texts if name in text] == [f"A = '{name}{k}'" for k in range(15)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def main(:", "train_mlx.py line 1 does not parse"),
        ("x = 1", "breaks the contract: define main"),
        (patch(SCRIPT, SCRIPT.replace("4", "5"), "other.py"), "may edit train_mlx.py and nothing else"),
        (patch(SCRIPT, SCRIPT.replace("4", "5")) + patch("a\n", "b\n", "other.py"), "nothing else .*other.py"),
        ("diff --git a/t.py b/t.py\nold mode 100644\nnew mode 120000\n" + patch("4", "5"), "makes, removes or renames"),
    ],
)
def test_what_can_never_be_tried_is_refused_at_once(folder, text, words):
    with pytest.raises(ScriptError, match=words):
        put(folder, text)
    assert waiting(folder) == []


# ---- taking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_recorded", [False, True])
def test_an_entry_of_a_night_that_was_killed_is_tried_in_the_next_one_unless_it_was_tried(folder, queue, is_recorded):
    for depth in (5, 6):
        put(folder, SCRIPT.replace("DEPTH = 4", f"DEPTH = {depth}"), f"depth {depth}")
    proposal = queue.proposals(brief(SCRIPT))[0]
    if is_recorded:
        with Journal.create(folder.parent / "nights" / NIGHT.tag / "journal.sqlite", NIGHT) as journal:
            journal.add_attempt(0, None, Proposal.of(SCRIPT, "baseline", "", "you"), NOW)
            journal.add_attempt(1, 0, proposal, NOW)
    next_night = replace(brief(SCRIPT), night=replace(NIGHT, tag="another"))
    assert queue.proposals(next_night)[0].title == ("depth 6" if is_recorded else "depth 5")


def test_links_pipes_and_other_names_are_left_alone(tmp_path, folder, queue):
    put(folder, SCRIPT.replace("4", "5")).rename(tmp_path / "elsewhere.patch")
    (folder / "0001.patch").symlink_to(tmp_path / "elsewhere.patch")
    os.mkfifo(folder / "0002.patch")
    (folder / "..0003.patch").write_text("{}")
    with pytest.raises(NoIdea, match="the queue is empty"):
        queue.proposals(brief(SCRIPT))
    assert not (folder / "refused").exists()
    assert put(folder, SCRIPT.replace("4", "6")).name == "0003.patch"


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
    assert queue.proposals(brief(SCRIPT))[0].title == "an idea"
    assert "put it there with: nightshift try --queue" in aside(folder, "refused")["0001"]


def test_a_basis_that_the_night_does_not_have_does_not_hold_the_queue_up(folder, queue):
    folder.mkdir(parents=True)
    edit = SCRIPT.replace("DEPTH = 4", "DEPTH = 5")
    (folder / "0001.patch").write_text(f"Title: t\nBasis: 9\nFor: {NIGHT.tag}\n\n{edit}")
    put(folder, SCRIPT.replace("DEPTH = 4", "DEPTH = 6"))
    kept = SCRIPT.replace("LR = 0.04", "LR = 0.02")
    assert "DEPTH = 6" in queue.proposals(brief(SCRIPT, kept, best=1))[0].script
    assert "which night t does not have" in aside(folder, "refused")["0001"]


def test_an_idea_of_the_catalogue_is_an_entry_as_it_stands(folder, queue):
    folder.mkdir(parents=True)
    edit = patch(SCRIPT, SCRIPT.replace("LR = 0.04", "LR = 0.02"))
    (folder / "0001.patch").write_text(f"Title: a smaller step\nWhy: It overshoots.\n  By far.\n\n{edit}")
    proposal = queue.proposals(brief(SCRIPT))[0]
    assert (proposal.title, proposal.hypothesis) == ("a smaller step", "It overshoots.\nBy far.")
    assert proposal.script == SCRIPT.replace("LR = 0.04", "LR = 0.02")


@pytest.mark.parametrize("first", ['Title: str = "mine"\n', '\n\nOptions: str = "x"\n'])
def test_a_script_and_a_message_that_look_like_headers_are_tried_to_the_letter(folder, queue, first):
    script, why = first + SCRIPT.replace("LR = 0.04", "LR = 0.03"), "Why: because\n\nTitle: of it"
    put(folder, script, f"an idea\n{why}")
    proposal = queue.proposals(brief(SCRIPT))[0]
    assert (proposal.title, proposal.hypothesis, proposal.script) == ("an idea", why, script)
