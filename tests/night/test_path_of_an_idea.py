"""The path of an idea, from the wish for it to an attempt: what was paid for is in the journal before all else."""

import os
import threading
import time
from dataclasses import replace

import pytest
from proposing import LATE_S, Desk, Proposer, attempt, brief, turned

from agent.errors import Exhausted, NoIdea, RepoError
from agent.experiment import Ask, Proposal, Status, packed
from agent.night import proposals as module
from agent.night.proposals import ANSWERS, NextProposal, proposals_of
from agent.proposers.proposer import Briefing

KEEP, DISCARD, CRASH = Status.KEEP, Status.DISCARD, Status.CRASH
SMOOTH, SHARP, SHARE = turned(0.5), turned(1.0, SHARPNESS=0.9), turned(1.0, SHARE=0.5)
SMOOTH, SHARP, SHARE = (replace(one, title=title) for one, title in ((SMOOTH, "a"), (SHARP, "b"), (SHARE, "c")))


# ---- what waits ------------------------------------------------------------------------------------------------------


def test_all_ideas_of_an_answer_are_tried_before_another_question_each_as_an_edit_of_the_best_script(grounds):
    proposer = Proposer("llm", [SMOOTH, SHARE, SHARP], [turned(9.0)])
    desk = Desk(grounds, proposer)
    with desk.life():
        assert desk.entered(KEEP, DISCARD, DISCARD) == ["a", "c", "b"]
        assert len(proposer.briefings) == 1
        assert "SMOOTHING = 0.5" in desk.state.attempts[2].proposal.script
        assert desk.state.attempts[2].parent == 1
        assert desk.entered(DISCARD) == ["to 9"]
    assert desk.waiting == []


def test_what_waited_when_its_night_was_killed_is_tried_whoever_is_asked_now_but_not_in_place_of_a_try(grounds):
    desk = Desk(grounds, Proposer("llm", [SMOOTH, SHARE]))
    with desk.life():
        desk.entered(DISCARD)
    desk.submit(turned(7.0), "a person's")
    desk.proposers = [desk.queue]
    with desk.life():
        assert desk.entered(DISCARD) == ["a person's"]
        assert desk.enter() is NextProposal.OVER
    desk.proposers = [Proposer("search", NoIdea("none"))]
    with desk.life():
        assert desk.entered(DISCARD) == ["c"]
    assert desk.proposers[0].briefings == []


def test_an_answer_is_in_the_journal_before_anything_looks_at_it(grounds, monkeypatch):
    proposer = Proposer("llm", [SMOOTH, SHARE], NoIdea("it was paid for once"))
    desk = Desk(grounds, proposer)
    if (dying := os.fork()) == 0:
        monkeypatch.setattr(module, "carried", lambda *_: os.kill(os.getpid(), 9))
        with desk.life():
            desk.enter()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(dying, 0)[1]) == -9
    assert desk.waiting == ["a", "c"]
    with desk.life():
        assert desk.entered(DISCARD, DISCARD) == ["a", "c"]
    assert proposer.briefings == []


def test_what_conflicts_or_was_tried_meanwhile_is_dropped_with_a_reason(grounds):
    tried = replace(SHARE, packed=turned(0.5, SHARE=0.5).packed, proposer="queue: 1")
    llm = Proposer("llm", [SMOOTH, replace(turned(0.1), title="smoother"), SHARE, SHARP])
    desk = Desk(grounds, llm)
    with desk.life():
        desk.entered(KEEP)
        desk.submit(tried, "by a person")
        desk.proposals._people.append(desk.queue)
        assert desk.entered(DISCARD, DISCARD) == ["by a person", "b"]
    smoother, share = desk.watcher.sentences
    assert smoother.startswith("an idea of llm:toy is dropped, 'smoother': it conflicts with what was kept since")
    assert share.endswith("'c': llm:toy proposed the script of attempt 2 again; it has to be a new one")


# ---- who is asked ----------------------------------------------------------------------------------------------------


def test_an_answer_that_cannot_be_tried_is_asked_for_again_and_not_for_ever(grounds):
    known = turned(1.0)
    llm = Proposer("llm", [known], [known], [SMOOTH], [known])
    desk = Desk(grounds, llm, Proposer("search", [SHARE], stands_in=True))
    with desk.life():
        assert desk.entered(DISCARD) == ["a"]
        assert [len(briefing.refused) for briefing in llm.briefings] == [0, 1, 2]
        assert "the script of attempt 0 again" in llm.briefings[1].refused[0].why
        assert desk.entered(DISCARD) == ["c"]
    assert len(llm.briefings) == 3 + ANSWERS
    (sentence,) = desk.watcher.sentences
    assert sentence.startswith(
        "llm has no idea: 3 proposals were refused, the last because llm:toy proposed the script of"
    )


def test_a_proposer_without_an_idea_about_this_script_is_asked_again_about_another(grounds):
    search = Proposer("search", Exhausted("all settings tried"), [SHARE], Exhausted("all settings tried"))
    desk = Desk(grounds, search)
    desk.proposers = [search, desk.queue]
    with desk.life():
        assert desk.enter() is desk.enter() is NextProposal.OVER
        assert len(search.briefings) == 1
        desk.submit(SMOOTH, "a person's")
        assert desk.entered(KEEP, DISCARD) == ["a person's", "c"]
        assert desk.enter() is NextProposal.OVER


def test_a_crash_goes_back_once_to_its_proposer_and_its_repair_has_the_name_of_what_it_repairs(grounds):
    repair = replace(turned(0.6), title="fix the crash", repairs=1)
    long = replace(SMOOTH, title="w" * 200)
    llm, search = Proposer("llm", [long], [repair], Exhausted("no more")), Proposer("search", [SHARE])
    desk = Desk(grounds, llm)
    with desk.life():
        desk.entered(CRASH)
        desk.proposals._proposers.append(search)
        assert desk.entered(CRASH) == [f"{'w' * 189}…, repaired"]
        assert desk.state.attempts[2].proposal.hypothesis == "why 0.5"
        assert desk.entered(DISCARD) == ["c"]
    assert [briefing.broken and briefing.broken.number for briefing in llm.briefings[:2]] == [None, 1]
    assert not any(briefing.broken for briefing in (*llm.briefings[2:], *search.briefings))


# ---- several workers -------------------------------------------------------------------------------------------------


class Together(Proposer):
    """Answers once four questions are open at once; has each third idea twice."""

    barrier, lock, open, most = threading.Barrier(4), threading.Lock(), 0, 0

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        with self.lock:
            self.briefings.append(briefing)
            count, self.open = len(self.briefings), self.open + 1
            self.most = max(self.most, self.open)
        if count <= 4:
            self.barrier.wait(LATE_S)
        with self.lock:
            self.open -= 1
            return [turned(10.0 + count - (count % 3 == 0))]


def test_of_many_workers_each_gets_another_idea_and_a_proposer_no_more_questions_than_it_takes(grounds):
    proposer = Together("llm", at_once=4)
    desk = Desk(grounds, proposer)
    with desk.life(workers=8):
        for done in range(8):
            assert desk.enter(wanted=8 - done) is NextProposal.ENTERED
    assert len(set(desk.titles)) == len(desk.titles) == 9
    assert proposer.most == 4
    assert sorted(briefing.number for briefing in proposer.briefings[:4]) == [1, 2, 3, 4]


def test_ideas_are_made_ahead_by_a_proposer_that_costs_and_it_is_told_of_those_that_wait(grounds):
    llm, search = Proposer("llm", [SMOOTH], [SHARE], [SHARP]), Proposer("search", stands_in=True)
    desk = Desk(grounds, llm)
    with desk.life(workers=2):
        desk.entered(None)
        desk.proposals._proposers.append(search)
        for _ in range(3):
            desk.proposals.ask_ahead()
            time.sleep(0.2)
            desk.proposals.note_news()
        assert search.briefings == []
    assert "a" in [attempt.proposal.title for attempt in llm.briefings[1].history]
    assert len(desk.waiting) <= 2


def test_an_idea_equal_to_one_that_waits_is_refused_as_it_comes_and_its_proposer_asked_again(grounds):
    same = replace(SHARE, title="the same", packed=packed(f"{SHARE.script}# in other words\n"))
    llm = Proposer("llm", [SMOOTH, SHARE, same], [same], [SHARP])
    desk = Desk(grounds, llm)
    with desk.life(workers=2):
        assert desk.entered(None) == ["a"]
        assert desk.waiting == ["c"]
        desk.proposals.ask_ahead()
        assert desk.entered(None, None) == ["c", "b"]
        (refusal,) = llm.briefings[2].refused
        assert "proposed the script of attempt 2 again" in refusal.why
        assert llm.briefings[1].history[2].outline.dials["SHARE"] == 0.5
    assert desk.watcher.sentences == []


def test_the_end_of_a_night_is_told_to_a_proposer_whose_call_is_recorded(grounds):
    class Endless(Proposer):
        def proposals(self, briefing: Briefing) -> list[Proposal]:
            asked.set()
            while not self.messages.stopped():
                self.messages.closed.wait(LATE_S)
            self.messages.record(Ask(1, "llm:toy", "", 1.0, failure="stopped"))
            raise NoIdea("stopped")

    proposer, asked = Endless("llm"), threading.Event()
    desk = Desk(grounds, proposer)
    with desk.life():
        proposer.messages = desk.proposals._messages
        desk.proposals.enter_next(1)
        assert asked.wait(LATE_S)
    with desk.life():
        assert [ask.failure for ask in desk.journal.asks()] == ["stopped"]


@pytest.mark.parametrize("error", [RepoError("git is gone"), ValueError("\x1b[2J"), PermissionError("no /tmp")])
def test_a_proposer_that_breaks_is_one_without_an_idea(error):
    with pytest.raises(NoIdea, match=r"git is gone|not foreseen \((ValueError: \\x1b\[2J|PermissionError: no /tmp)\)"):
        proposals_of(Proposer("llm", error), brief([attempt(0, "you")]))
