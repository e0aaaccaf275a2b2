"""The mix asks a source the more often, the more it gains for the time that it takes."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from sources import Source, attempt, brief, mixed
from test_mix import EMPTY, ROLES, asked

from agent.experiment import Decision, Kind, Status
from agent.proposers.mix import rests_until
from agent.proposers.registry import SOURCES


def run_bandit(rates: dict[str, float], attempts: int, gain_bpb: float = 0.01, spent_s: dict | None = None) -> Counter:
    """A night in which the k-th attempt of a source is kept where its rate has summed up to a whole number."""
    mix, history, count = mixed({name: Source(name) for name in rates}, seed=0, **ROLES), [attempt(0, "you")], Counter()
    for number in range(1, attempts + 1):
        name = mix.ideas(brief(history))[0].source
        count[name] += 1
        kept = int(count[name] * rates[name]) > int((count[name] - 1) * rates[name])
        history.append(attempt(number, name, gain_bpb if kept else 0.0, (spent_s or {}).get(name, 300.0)))
    return count


def test_every_source_is_tried_before_a_night_is_old():
    count = run_bandit({"search": 0.1, "llm": 0.1, "command": 0.1}, 12)
    assert set(count) == {"search", "llm", "command"}


NEW_NIGHT = {source.name: source.prior for source in SOURCES if source.need is None}


@pytest.mark.parametrize("kept", [False, True], ids=["nothing is kept", "all of the catalogue's are kept"])
def test_a_new_night_tries_catalogue_and_search_early_and_more_of_the_catalogue(kept):
    count = Counter()
    for seed in range(100):
        sources = {name: Source(name) for name in ("queue", "catalogue", "search")}
        sources["queue"].error = EMPTY
        mix, history = mixed(sources, seed, **ROLES, priors=NEW_NIGHT), [attempt(0, "you")]
        for number in range(1, 6):
            name = mix.ideas(brief(history))[0].source
            history.append(attempt(number, name, 0.01 if kept and name == "catalogue" else 0.0))
        names = [one.proposal.source for one in history[1:]]
        assert set(names) == {"catalogue", "search"}
        count.update(names)
    assert count["catalogue"] > count["search"] > 100


def test_a_catalogue_that_brings_nothing_leaves_the_night_to_a_search_that_does():
    assert run_bandit({"catalogue": 0.0, "search": 0.3}, 60)["search"] > 40


def test_a_source_whose_ideas_all_crash_rests_longer_each_time():
    sources = {"catalogue": Source("catalogue"), "search": Source("search")}
    names, history = [], [attempt(0, "you")]
    mix = mixed(sources, 0, **ROLES, priors=NEW_NIGHT)
    for number in range(1, 31):
        names.append(mix.ideas(brief(history))[0].source)
        crashed = names[-1] == "catalogue"
        how = {"status": Status.CRASH, "spent_s": 1.0} if crashed else {}
        history.append(attempt(number, names[-1], **how))
    tried = [at for at, name in enumerate(names) if name == "catalogue"]
    rests = [later - before - 1 for before, later in pairwise(tried)]
    assert 2 <= len(tried) <= 7
    assert all(rest >= 2 ** max(0, at - 1) for at, rest in enumerate(rests) if at > 0)


def test_what_people_submit_does_not_wait_because_two_of_it_crashed():
    history = [attempt(0, "you"), *(attempt(number, "queue: 0001", status=Status.CRASH) for number in range(1, 5))]
    sources = {"queue": Source("queue"), "search": Source("search")}
    assert mixed(sources, 0, **ROLES).ideas(brief(history))[0].source == "queue"


def test_one_that_can_repair_what_crashed_does_not_rest_for_it():
    history = [attempt(0, "you"), *(attempt(number, "llm", status=Status.CRASH) for number in range(1, 5))]
    assert rests_until("llm", brief(history)) is None
    assert rests_until("llm", brief(history), counts_crashes=True) == 4 + 1 + 4
    repaired = [*history, attempt(5, "llm")]
    assert rests_until("llm", brief(repaired), counts_crashes=True) is None


def test_a_source_that_gains_gets_the_larger_share_and_the_other_is_not_forgotten():
    count = run_bandit({"search": 0.02, "llm": 0.4}, 80)
    assert count["llm"] > 3 * count["search"]
    assert count["search"] >= 2


def test_what_costs_hours_has_to_bring_more():
    count = run_bandit({"search": 0.2, "llm": 0.2}, 80, spent_s={"search": 300.0, "llm": 1500.0})
    assert count["search"] > 2 * count["llm"]


def test_a_source_is_not_to_blame_that_its_gains_were_overtaken():
    def chosen(*, overtaken: bool) -> Counter:
        """Each of llm's gains was measured twice: before it was merged, and after."""
        history = [attempt(0, "you")]
        for number in range(1, 21):
            history.append(attempt(number, "search" if number % 2 else "llm", 0.01))
        for number in range(21, 31):
            lost = attempt(number, "llm", spent_s=900.0)
            kind = Kind.OVERTAKEN if overtaken else Kind.WORSE
            history.append(replace(lost, decision=Decision(kind, "", 0.01, 0.9)))
        mixes = (mixed({"search": Source("search"), "llm": Source("llm")}, seed, **ROLES) for seed in range(60))
        return Counter(mix.ideas(brief(history))[0].source for mix in mixes)

    assert chosen(overtaken=False)["llm"] < 15
    assert 20 < chosen(overtaken=True)["llm"] < 40


def test_time_spent_on_asking_counts_as_well():
    history = [attempt(0, "you")] + [attempt(n, "search" if n % 2 else "llm", 0.01) for n in range(1, 21)]
    slow = tuple(asked(number, "llm:large", wall_s=3000.0) for number in range(2, 21, 2))
    chosen = Counter(
        mixed({"search": Source("search"), "llm": Source("llm")}, seed, **ROLES).ideas(brief(history, slow))[0].source
        for seed in range(40)
    )
    assert chosen["search"] > 35


def test_equal_seeds_and_histories_choose_alike():
    history = [attempt(0, "you"), attempt(1, "search", 0.01), attempt(2, "llm")]
    sources = {"search": Source("search"), "llm": Source("llm")}
    for asks in ((), (asked(2, "llm"),)):
        for seed in range(10):
            first, again = (mixed(sources, seed, **ROLES).ideas(brief(history, asks))[0].source for _ in range(2))
            assert first == again
