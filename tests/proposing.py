"""Proposers, what they are told, and a journal that says so, for tests of what asks them."""

import time
from collections.abc import Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from judged import decided
from nights import Grounds, Quiet, unigram
from queued import put
from samples import NIGHT

from agent.experiment import Ask, Attempt, Ending, Proposal, Run, Score, Status
from agent.night.limits import Limits
from agent.night.proposals import NextProposal, Proposals
from agent.night.state import NightContext, State
from agent.proposers.proposer import Briefing, Messages
from agent.proposers.proposer import Proposer as AnyProposer
from agent.proposers.queue import Queue
from agent.records.journal import Journal
from agent.records.place import Place
from agent.script.dials import outline_of, set_dials

SCRIPT = "def main(): ...\ndef load_model(): ...\n"
LATE_S = 20.0  # s; the awaited event comes much earlier, or never


def attempt(number: int, proposer: str, gain_bpb: float = 0.0, spent_s: float = 300.0, **more: object) -> Attempt:
    status = Status.KEEP if gain_bpb or number == 0 else more.pop("status", Status.DISCARD)
    run = Run(0, Ending.FINISHED, 0, spent_s, None, "", Score(1.0 - 0.001 * number, 0.0))
    proposal = Proposal.of(f"{SCRIPT}LR = {number}\n", f"attempt {number}", "", proposer, **more)
    decision = decided(status, "", gain_bpb if number else None)
    outline = outline_of(proposal.script, "cpu")
    return Attempt(number, 0 if number else None, proposal, "", "c", (run,), (decision,), True, outline=outline)


def brief(history: list[Attempt], asks: tuple[Ask, ...] = (), **more: object) -> Briefing:
    best = next(attempt for attempt in reversed(history) if attempt.status is Status.KEEP)
    return Briefing(NIGHT, history, best, asks=asks, **more)


class Proposer(AnyProposer):
    """Proposes what it was given in turn, or raises it; without either, something new each time."""

    def __init__(self, name: str, *answers: Sequence[Proposal] | Exception, **facts: object) -> None:
        self.name, self.answers, self.briefings = name, answers, list[Briefing]()
        self.costs = name in ("llm", "command")
        vars(self).update(facts)

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        self.briefings.append(briefing)
        count = len(self.briefings)
        answer = self.answers[min(count, len(self.answers)) - 1] if self.answers else [turned(100.0 + count, self.name)]
        if isinstance(answer, Exception):
            raise answer
        return list(answer)


def turned(smoothing: float, proposer: str = "llm:toy", **more: object) -> Proposal:
    script = set_dials(unigram(), "cpu", {"SMOOTHING": smoothing} | more)
    return Proposal.of(script, f"to {smoothing:g}", f"why {smoothing:g}", proposer)


class Desk:
    """A night whose driver only enters ideas and decides what came of them; it can be killed and go on."""

    def __init__(self, grounds: Grounds, *proposers: AnyProposer) -> None:
        self.place, self.proposers, self.watcher = Place.of(grounds.root / "train_mlx.py"), proposers, Quiet()
        self.path = self.place.journal(NIGHT.tag)
        with Journal.create(self.path, NIGHT) as journal:
            journal.add_attempt(0, None, Proposal.of(unigram(), "baseline", "", "you"), "2026-11-21T00:00:00Z")
            decide(journal, 0, Status.KEEP)

    @contextmanager
    def life(self, workers: int = 1) -> Any:
        with Journal.resume(self.path) as journal:
            self.journal = journal
            night = SimpleNamespace(night=NIGHT), SimpleNamespace(workers=range(workers))
            parts = (self.place, journal, *night, self.proposers, None, self.watcher)
            messages = Messages(journal.record_ask)
            context = NightContext(*parts, SimpleNamespace(after_run=False), Limits(), messages=messages)  # type: ignore[arg-type]
            self.state = State(context)
            with Proposals(self.state) as self.proposals:
                yield self.proposals

    def enter(self, wanted: int = 1) -> NextProposal:
        """Go on until an idea was entered, or none will come."""
        until_s = time.monotonic() + LATE_S
        while time.monotonic() < until_s:
            self.proposals.note_news()
            next_proposal = self.proposals.enter_next(wanted)
            if next_proposal is not NextProposal.LATER:
                return next_proposal
            time.sleep(0.05)
        raise AssertionError("no idea came")

    def entered(self, *statuses: Status | None) -> list[str]:
        """Enter as many ideas, and decide on each; None: it stays in flight. Return their titles."""
        for status in statuses:
            assert self.enter() is NextProposal.ENTERED
            if status is not None:
                number = len(self.state.attempts) - 1
                decide(self.journal, number, status)
                self.state.read(number)
        return self.titles[-len(statuses) :]

    def submit(self, proposal: Proposal, title: str) -> None:
        put(self.place.queue, proposal.script, title)

    @property
    def queue(self) -> Queue:
        return Queue(self.place.queue, self.place.nights)

    @property
    def titles(self) -> list[str]:
        return [attempt.proposal.title for attempt in self.state.attempts]

    @property
    def waiting(self) -> list[str]:
        with Journal.read(self.path) as journal:
            return [idea.proposal.title for idea in journal.waiting_ideas()]


def decide(journal: Journal, number: int, status: Status) -> None:
    crashes = status is Status.CRASH
    ending, score = (Ending.CRASHED, None) if crashes else (Ending.FINISHED, Score(1.8 - 0.1 * number, 1.0))
    journal.end_run(journal.start_run(number, 0), Run(0, ending, 0, 300.0, None, "", score))
    journal.record_decision(number, decided(status, "", 0.1 if number and status is Status.KEEP else None))
    journal.settle(number)
