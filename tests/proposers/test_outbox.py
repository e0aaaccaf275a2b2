"""What was paid for waits in the journal before anything else happens: under its own source, and before any call."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from asking import BRIEFING, SCRIPT, attempt
from judged import decided
from samples import NIGHT

from agent.errors import NoIdea
from agent.experiment import Attempt, Proposal, Status
from agent.proposers import outbox as outboxes
from agent.proposers.briefing import Briefing
from agent.proposers.outbox import Outbox
from agent.records.journal import Journal
from agent.script.dials import set_dials, values_of

SOURCE = "explore:toy"


def idea(title: str, **dials: object) -> Proposal:
    return Proposal.of(set_dials(SCRIPT, "cpu", dials), title, f"why {title}", SOURCE)


SMOOTH, SHARE, SHARP = idea("smooth", SMOOTHING=0.5), idea("share", SHARE=0.5), idea("sharp", SHARPNESS=0.9)


class Asked:
    """Answers with these ideas, each list once."""

    def __init__(self, *answers: Sequence[Proposal]) -> None:
        self.answers, self.briefings = answers, []

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.briefings.append(briefing)
        return list(self.answers[len(self.briefings) - 1])


class Lives:
    """One night after another with the same journal, each of which was killed."""

    def __init__(self, folder: Path, *answers: Sequence[Proposal]) -> None:
        self.journal, self.asked, self.said = folder / "journal.sqlite", Asked(*answers), list[str]()
        with Journal.create(self.journal, NIGHT):
            pass

    @contextmanager
    def life(self, briefing: Briefing = BRIEFING) -> Iterator[Outbox]:
        with Journal.resume(self.journal) as journal:
            outbox = Outbox(lambda: False)
            self.chosen = outbox.follow(journal, lambda: briefing.history, resumes=True)
            yield outbox
        self.said += outbox.take_sentences()

    def next(self, briefing: Briefing = BRIEFING) -> Proposal:
        """Ask for an idea, which becomes an attempt."""
        with self.life(briefing) as outbox:
            found = outbox.ask(self.asked, briefing, ("explore",))
            outbox._journal.add_attempt(len(briefing.history), found.parent, found.proposal, "now", found.id)
        return found.proposal

    @property
    def waiting(self) -> list[str]:
        with Journal.read(self.journal) as journal:
            return [one.proposal.title for one in journal.waiting_ideas()]


def entered(briefing: Briefing, proposal: Proposal, status: Status | None = Status.DISCARD) -> Briefing:
    """The night after this proposal became its next attempt; None: it is in flight."""
    one = replace(attempt(len(briefing.history), ""), proposal=proposal, parent=briefing.parent.number)
    one = replace(one, decision=decided(status) if status is not None else None)
    history = (*briefing.history, one)
    return replace(briefing, history=history, parent=one if status is Status.KEEP else briefing.parent)


def test_three_ideas_are_three_attempts_of_one_question(tmp_path):
    lives, briefing, titles = Lives(tmp_path, [SMOOTH, SHARE, SHARP], [idea("more", SMOOTHING=9.0)]), BRIEFING, []
    for _ in range(4):
        proposal = lives.next(briefing)
        assert (proposal.source, proposal.hypothesis) == (SOURCE, f"why {proposal.title}")
        titles.append(proposal.title)
        briefing = entered(briefing, proposal)
        assert len(lives.asked.briefings) == (2 if titles[3:] else 1)
    assert titles == ["smooth", "share", "sharp", "more"]
    assert lives.waiting == []
    assert lives.said == ["explore:toy had 3 ideas; they are tried one after the other"]


def test_an_idea_that_was_chosen_when_its_night_was_killed_is_still_chosen(tmp_path):
    lives = Lives(tmp_path, [SMOOTH, SHARE])
    with lives.life() as outbox:
        assert outbox.ask(lives.asked, BRIEFING).proposal == SMOOTH
    with lives.life() as outbox:
        assert [(one.proposal, one.asked_for) for one in lives.chosen] == [(SMOOTH, 1)]
        assert outbox.ask(lives.asked, BRIEFING, ("explore",)).proposal == SHARE
    assert len(lives.asked.briefings) == 1


def test_what_waits_is_carried_over_to_the_best_script(tmp_path):
    lives = Lives(tmp_path, [SMOOTH, SHARE, SHARP])
    lives.next()
    values = values_of(lives.next(entered(BRIEFING, SMOOTH, Status.KEEP)).script, "cpu")
    assert (values["SMOOTHING"], values["SHARE"]) == (0.5, 0.5)
    assert len(lives.asked.briefings) == 1


def test_what_conflicts_or_was_tried_is_dropped_with_a_reason(tmp_path):
    lives = Lives(tmp_path, [SMOOTH, idea("smoother", SMOOTHING=0.1), SHARE, SHARP])
    lives.next()
    kept = entered(BRIEFING, SMOOTH, Status.KEEP)
    both = set_dials(SMOOTH.script, "cpu", {"SHARE": 0.5})
    tried = entered(kept, replace(SHARE, script=both, title="by another", source="search"))
    assert lives.next(tried).title == "sharp"
    _, smoother, share = lives.said
    assert smoother.startswith("an idea of explore:toy is dropped, 'smoother': it conflicts with what was kept since")
    assert share == (
        "an idea of explore:toy is dropped, 'share': explore:toy proposed the script of attempt 2 again; "
        "it has to be a new one"
    )
    with Journal.read(lives.journal) as journal:
        dropped = journal.query("SELECT title, dropped FROM ideas WHERE dropped IS NOT NULL")
    assert [row["title"] for row in dropped] == ["smoother", "share"]
    assert share.endswith(dropped[1]["dropped"])


def test_an_answer_of_known_ideas_alone_is_no_idea(tmp_path):
    known = entered(entered(BRIEFING, replace(SMOOTH, source="you")), replace(SHARE, source="you"))
    lives = Lives(tmp_path, *[[SMOOTH, SHARE]] * outboxes.TRIES)
    with pytest.raises(NoIdea, match="the script of attempt 2 again"):
        lives.next(known)
    assert lives.waiting == []


def test_a_repair_is_asked_for_before_what_waits_and_has_the_name_of_what_it_repairs(tmp_path):
    long = replace(SMOOTH, title="w" * 200)
    lives = Lives(tmp_path, [long, SHARE], [replace(idea("mended", SMOOTHING=0.6), repairs=1)])
    lives.next()
    night = entered(BRIEFING, long, Status.CRASH)
    broken: Attempt = night.history[-1]
    repair = lives.next(replace(night, broken=broken))
    assert (repair.title, repair.hypothesis) == (f"{'w' * 189}…, repaired", "why smooth")


def test_of_eight_who_ask_at_once_each_gets_another_of_the_ideas_that_wait(tmp_path):
    lives = Lives(tmp_path, [idea(f"to {value}", SMOOTHING=value) for value in range(2, 11)])
    with lives.life() as outbox:
        outbox.ask(lives.asked, BRIEFING)
        with ThreadPoolExecutor(8) as threads:
            asked = threads.map(lambda number: outbox.ask(lives.asked, BRIEFING, ("explore",)), range(8))
            found = [one.proposal.title for one in asked]
    assert sorted(found) == sorted(f"to {value}" for value in range(3, 11))


def test_an_answer_is_in_the_journal_before_anything_looks_at_it(tmp_path, monkeypatch):
    lives = Lives(tmp_path, [SMOOTH, SHARE])
    if (dying := os.fork()) == 0:
        monkeypatch.setattr(outboxes, "carried_to", lambda *_: os.kill(os.getpid(), 9))
        with lives.life() as outbox:
            outbox.ask(lives.asked, BRIEFING)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(dying, 0)[1]) == -9
    assert lives.waiting == ["smooth", "share"]
    assert lives.next() == SMOOTH
    assert lives.asked.briefings == []
