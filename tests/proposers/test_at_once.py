"""Several workers ask at once: no two get one proposal, a model is asked within its limits, and the cap holds."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from asking import BASELINE, BRIEFING, SCRIPT, Model, attempt, edit
from llm_servers import KEY, TOKENS_IN, TOKENS_OUT, Handler, Request, Server, says
from nights import Grounds
from samples import NIGHT

from agent.errors import NightError, NoIdea
from agent.experiment import Idea, Proposal, Terms
from agent.proposers.author.pages import AskMode, compose
from agent.proposers.briefing import Briefing
from agent.proposers.llm.llm import Price, most_spent_usd
from agent.proposers.mix import USUAL, Prior, by_promise
from agent.proposers.outbox import TRIES, Outbox
from agent.proposers.queue import Queue, submit, waiting
from agent.proposers.registry import CALLS_AT_ONCE, Surroundings, proposer_of
from agent.records.journal import Journal
from agent.records.place import Place
from agent.script.dials import fingerprint, set_dials

ASKED = 8
MOST_S = 30.0  # what is waited for comes much earlier, or the test fails


def at_once(propose: Callable[[Briefing], Proposal], briefings: Sequence[Briefing]) -> list[Proposal | NoIdea]:
    def answer(briefing: Briefing) -> Proposal | NoIdea:
        try:
            return propose(briefing)
        except NoIdea as error:
            return error

    with ThreadPoolExecutor(len(briefings)) as threads:
        return list(threads.map(answer, briefings))


class Slow:
    """Holds each question until as many are open as may be; knows how many were at most."""

    def __init__(self, together: int, answer: Callable[[int, Request], str]) -> None:
        self.barrier, self.answer = threading.Semaphore(0), answer
        self.lock, self.open, self.most, self.asked, self.together = threading.Lock(), 0, 0, 0, together

    def __call__(self, request: Request, handler: Handler) -> None:
        with self.lock:
            self.open, self.asked = self.open + 1, self.asked + 1
            number, self.most = self.asked, max(self.most, self.open)
            if number == self.together:
                self.barrier.release(self.together)
        if number <= self.together:
            assert self.barrier.acquire(timeout=MOST_S)
        with self.lock:
            self.open -= 1
        says(self.answer(number, request))(request, handler)


def equal_pairs(number: int, request: Request) -> str:
    """One edit, or the two that it is asked for; each second answer is the one before."""
    values = (number // 2, 100 + number // 2)
    ideas = [edit(f"SMOOTHING = {value}").replace("less smoothing", f"to {value}") for value in values]
    return "".join(ideas) if "answer with three edits" in request.text else ideas[0]


@pytest.mark.parametrize("terms", ["llm", "mix"])
def test_no_two_of_eight_who_ask_at_once_get_one_proposal(grounds: Grounds, monkeypatch, terms):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    slow, place = Slow(CALLS_AT_ONCE if terms == "llm" else 1, equal_pairs), Place.of(grounds.root / "train_mlx.py")
    place.folder(NIGHT.tag).mkdir(parents=True)
    with Server(slow) as server:
        around = Surroundings(place, NIGHT, Terms(proposer=terms, llm=server.spec("openai")), Outbox(lambda: False))
        briefings = [replace(BRIEFING, asked_for=number) for number in range(1, ASKED + 1)]
        mix = proposer_of(around)
        found = at_once(lambda briefing: mix.ideas(briefing)[0], briefings)
    proposals = [one for one in found if isinstance(one, Proposal)]
    assert len({fingerprint(one.script) for one in proposals}) == len(proposals) == ASKED
    assert slow.most == CALLS_AT_ONCE or terms == "mix"
    assert len({one.source for one in proposals}) > 1 or terms == "llm"


def test_calls_in_flight_count_as_the_most_that_they_may_cost():
    price, slow = Price(10.0, 100.0), Slow(3, lambda number, request: edit(f"SMOOTHING = {number}"))
    each_usd, cap_usd = price.of(TOKENS_IN, TOKENS_OUT), 0.25
    with Server(slow) as server:
        model = Model(server, price=price, max_usd=cap_usd)
        most_usd = model.llm._most_usd(compose(BRIEFING, None, AskMode.EDIT)) or 0.0
        found = at_once(
            lambda briefing: model.ideas(briefing)[0], [replace(BRIEFING, asked_for=number) for number in range(1, 13)]
        )
    refusals = [str(one) for one in found if isinstance(one, NoIdea)]
    assert all("of --max-cost 0.25 are spent; raise it to ask on" in one for one in refusals)
    assert cap_usd <= most_spent_usd(model.asks) < cap_usd + each_usd
    assert 3 <= slow.most <= 1 + cap_usd / most_usd


# ---- chosen ideas ----------------------------------------------------------------------------------------------------


def turned(value: float, source: str = "toy") -> Proposal:
    return Proposal.of(set_dials(SCRIPT, "cpu", {"SMOOTHING": value}), f"to {value}", "", source)


class Stubborn:
    """Proposes the next of its ideas; remembers what it was told."""

    def __init__(self, *ideas: Proposal) -> None:
        self.proposals, self.told = list(ideas), []

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.told.append(briefing)
        return [self.proposals.pop(0)]


def test_a_proposal_that_another_worker_has_just_got_is_asked_for_again_and_not_for_ever():
    outbox, equal = Outbox(lambda: False), turned(0.5).script.replace("SMOOTHING = 0.5", "SMOOTHING = 0.5  # the same")
    assert outbox.ask(Stubborn(turned(0.5)), BRIEFING).proposal.title == "to 0.5"
    late = Stubborn(replace(turned(0.5), script=equal), turned(0.7))
    assert outbox.ask(late, BRIEFING).proposal.title == "to 0.7"
    assert [one.proposal.title for one in late.told[0].history[1:]] == ["to 0.5"]
    assert "the script of attempt 1 again" in late.told[1].refused[0].why
    with pytest.raises(NoIdea, match=f"{TRIES} proposals were refused"):
        outbox.ask(Stubborn(*[turned(0.7)] * TRIES), BRIEFING)


def test_a_source_that_waited_for_its_turn_is_told_of_the_attempts_that_were_entered_meanwhile(tmp_path: Path):
    outbox, entered = Outbox(lambda: False), attempt(1, turned(0.5).script)
    with Journal.create(tmp_path / "journal.sqlite", NIGHT) as journal:
        outbox.follow(journal, lambda: (BASELINE, entered), resumes=True)
        told = outbox.told(BRIEFING)
        assert told.history == (BASELINE, entered)
        assert told.number == 1
        with pytest.raises(NightError, match="the script of attempt 1 again"):
            outbox.keep([turned(0.5)], BRIEFING)


def test_of_equal_proposals_at_the_same_moment_one_is_chosen():
    outbox = Outbox(lambda: False)

    def choose(_: int) -> Idea | None:
        with suppress(NightError):
            return outbox.keep([turned(0.5)], BRIEFING)
        return None

    with ThreadPoolExecutor(ASKED) as threads:
        (chosen,) = filter(None, threads.map(choose, range(ASKED)))
    outbox.drop(chosen, "it conflicts")
    assert choose(0)


# ---- which source ----------------------------------------------------------------------------------------------------


def test_a_first_turn_that_a_question_in_flight_takes_is_not_given_twice():
    priors = {"a": USUAL, "b": Prior(first_turn=0)}
    assert by_promise(priors, BRIEFING, 1, asked={})[0] == "b"
    firsts = {by_promise(priors, BRIEFING, seed, asked={"a": 1, "b": 1})[0] for seed in range(20)}
    assert firsts == {"a", "b"}


def test_what_is_in_flight_counts_as_tried_with_the_outcome_that_is_expected():
    """Far in flight, a source's rate is drawn near its mean: it comes first where the other's draw is below that."""
    late = Prior(first_turn=1_000_000)
    priors = {"a": late, "b": late}
    seeds = range(400)
    share = sum(by_promise(priors, BRIEFING, seed, asked={"a": 10_000})[0] == "a" for seed in seeds) / 400
    assert 0.63 - 0.08 < share < 0.63 + 0.08  # one minus 1/e, of an exponential draw


def test_a_submission_that_a_worker_has_got_is_no_other_workers_and_stays_until_it_is_tried(tmp_path: Path):
    outbox, queue = Outbox(lambda: False), Queue(tmp_path / "queue", tmp_path)
    for value in (0.5, 0.7):
        submit(tmp_path / "queue", turned(value).script, f"to {value}", script="train_mlx.py", now="now")
    first, second = outbox.ask(queue, BRIEFING), outbox.ask(queue, BRIEFING)
    assert [first.proposal.title, second.proposal.title] == ["to 0.5", "to 0.7"]
    with pytest.raises(NoIdea, match="the queue is empty"):
        outbox.ask(queue, BRIEFING)
    assert len(waiting(tmp_path / "queue")) == 2
    outbox.forget(first)  # the night was killed before it began
    assert outbox.ask(queue, BRIEFING).proposal.title == "to 0.5"
