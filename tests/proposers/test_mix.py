"""Several sources in one night: each gets the share that its gains have earned, and none can hold up the others."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from sources import SCRIPT, Source, attempt, brief, mixed

from agent.errors import Exhausted, NoIdea, NotYet, Unanswered
from agent.experiment import Ask, Attempt, Decision, Kind, Proposal, Status
from agent.proposers.briefing import Briefing
from agent.proposers.mix import MOST_RESTED, rests_until
from agent.proposers.outbox import Outbox
from agent.proposers.registry import SOURCES
from agent.records.summary import earned

EMPTY = NoIdea("nothing in it")
ROLES = {"first": ("queue",), "repairers": ("llm", "command")}


def asked(number: int, source: str, failure: str | None = None, wall_s: float = 10.0, **costs: float) -> Ask:
    return Ask(number, source, "2026-11-21T00:00:00Z", wall_s, failure=failure, **costs)


# ---- turns -----------------------------------------------------------------------------------------------------------


def test_the_queue_comes_first_while_it_holds_something():
    sources = {"search": Source("search"), "queue": Source("queue"), "llm": Source("llm")}
    assert [mixed(sources, seed, **ROLES).ideas(brief([attempt(0, "you")]))[0].source for seed in range(20)] == [
        "queue"
    ] * 20
    sources["queue"].error = EMPTY
    assert mixed(sources, 0, **ROLES).ideas(brief([attempt(0, "you")]))[0].source in ("search", "llm")


def test_when_nobody_has_an_idea_every_reason_is_told():
    sources = {"queue": Source("queue", EMPTY), "llm": Source("llm", NoIdea("the server is down"))}
    with pytest.raises(NoIdea, match=r"queue: nothing in it; llm: the server is down"):
        mixed(sources, 0, **ROLES).ideas(brief([attempt(0, "you")]))


def test_an_exhausted_source_is_not_asked_again_until_the_best_script_is_another():
    sources = {"search": Source("search", Exhausted("all settings tried")), "llm": Source("llm")}
    mix = mixed(sources, 0, **ROLES)
    fails = [attempt(number, "llm") for number in range(2, 20)]
    for count in range(len(fails)):
        mix.ideas(brief([attempt(0, "you"), *fails[:count]]))
    assert len(sources["search"].briefings) == 1
    sources["search"].error = None
    kept = [attempt(0, "you"), attempt(1, "llm", 0.01)]
    assert "search" in {mix.ideas(brief([*kept, *fails[:count]]))[0].source for count in range(len(fails))}


def test_a_mix_is_exhausted_when_all_of_it_is():
    sources = {"search": Source("search", Exhausted("all settings tried")), "llm": Source("llm", Exhausted("no money"))}
    mix = mixed(sources, 0, **ROLES)
    for _ in range(2):
        with pytest.raises(Exhausted, match=r"search: all settings tried"):
            mix.ideas(brief([attempt(0, "you")]))
    assert len(sources["llm"].briefings) == 1


def test_an_exhausted_search_does_not_end_a_night_whose_queue_is_open():
    mix = mixed({"search": Source("search", Exhausted("done")), "queue": Source("queue", EMPTY)}, 0, **ROLES)
    with pytest.raises(NoIdea):
        mix.ideas(brief([attempt(0, "you")]))


def test_what_broke_goes_back_to_its_maker_alone():
    sources = {"queue": Source("queue"), "search": Source("search"), "llm": Source("llm", EMPTY)}
    broken = attempt(1, "llm:some-model", status=Status.CRASH)
    assert mixed(sources, 0, **ROLES).ideas(brief([attempt(0, "you"), broken], broken=broken))[0].source == "queue"
    assert [one.broken for one in sources["llm"].briefings] == [broken]
    assert [one.broken for one in sources["queue"].briefings] == [None]


def test_a_broken_turn_of_a_dial_is_nobodys_to_mend():
    sources = {"search": Source("search"), "llm": Source("llm")}
    broken = attempt(1, "search", status=Status.CRASH)
    for seed in range(10):
        mixed(sources, seed, **ROLES).ideas(brief([attempt(0, "you"), broken], broken=broken))
    assert {one.broken for source in sources.values() for one in source.briefings} == {None}


def test_a_source_that_fails_again_and_again_rests_longer_each_time():
    down, until = [], []
    for number in (3, 4, 6, 9, 14):
        down.append(asked(number, "llm:some-model", "no answer"))
        history = [attempt(k, "search") for k in range(number + 1)]
        until.append(rests_until("llm", brief(history, tuple(down))))
    assert until == [None, 6, 9, 14, 23]
    assert rests_until("llm", brief([attempt(k, "search") for k in range(23)], tuple(down))) is None
    assert rests_until("search", brief([attempt(0, "you")], tuple(down))) is None


def test_no_rest_is_longer_than_the_most_and_an_answer_ends_it():
    down = tuple(asked(number, "llm", "no answer") for number in range(2000))
    history = [attempt(0, "you")]
    assert rests_until("llm", brief(history, down)) == 2000 + MOST_RESTED
    assert rests_until("llm", brief(history, (*down, asked(2000, "llm")))) is None


def test_a_resting_source_is_asked_when_all_others_have_nothing():
    sources = {"llm": Source("llm"), "search": Source("search", EMPTY)}
    down = tuple(asked(number, "llm", "no answer") for number in (1, 2, 3))
    history = [attempt(k, "search") for k in range(4)]
    assert mixed(sources, 0, **ROLES).ideas(brief(history, down))[0].source == "llm"
    sources["search"].error = None
    assert [mixed(sources, seed, **ROLES).ideas(brief(history, down))[0].source for seed in range(20)] == [
        "search"
    ] * 20


# ---- stand-ins -------------------------------------------------------------------------------------------------------

STANDS_IN = {"last": ("search",), "repairers": ()}


def test_search_stands_in_for_a_model_that_fails_and_it_is_said_once():
    outbox = Outbox(lambda: False)
    llm = Source("llm", NoIdea("the server is down"))
    both = mixed({"llm": llm, "search": Source("search")}, 0, **STANDS_IN, outbox=outbox)
    history = [attempt(0, "you")]
    assert [both.ideas(brief(history))[0].source for _ in range(3)] == ["search"] * 3
    llm.error = None
    assert [both.ideas(brief(history))[0].source for _ in range(2)] == ["llm"] * 2
    assert outbox.take_sentences() == [
        "llm: the server is down · ideas now come from search",
        "ideas now come from llm",
    ]


def test_a_resumed_night_says_why_search_stands_in():
    outbox = Outbox(lambda: False)
    down = tuple(asked(number, "llm", "no answer") for number in (1, 2, 3))
    both = mixed({"llm": Source("llm"), "search": Source("search")}, 0, **STANDS_IN, outbox=outbox)
    assert both.ideas(brief([attempt(k, "search") for k in range(4)], down))[0].source == "search"
    assert outbox.take_sentences() == [
        "llm failed again and again and rests until attempt 6 · ideas now come from search"
    ]


def test_a_night_whose_stand_in_has_no_idea_either_says_all_reasons():
    both = mixed({"llm": Source("llm", EMPTY), "search": Source("search", Exhausted("done"))}, 0, **STANDS_IN)
    with pytest.raises(NoIdea, match="llm: nothing in it; search: done"):
        both.ideas(brief([attempt(0, "you")]))


# ---- modes of one source ---------------------------------------------------------------------------------------------

MODES = next(source.priors for source in SOURCES if source.name == "llm")
ALIKE = {"alike": {name: tuple(MODES) for name in MODES}}


def test_a_model_explores_early_whatever_is_drawn_and_is_mostly_asked_for_single_edits():
    count, first = Counter(), []
    for seed in range(100):
        sources = {name: Source(name) for name in MODES}
        sources["combine"].error = NotYet("nothing to combine yet")
        mix, history = mixed(sources, seed, repairers=MODES, priors=MODES, **ALIKE), [attempt(0, "you")]
        for number in range(1, 7):
            history.append(attempt(number, mix.ideas(brief(history))[0].source))
        names = [one.proposal.source for one in history[1:]]
        first.append(names.index("explore"))
        count.update(names)
    assert max(first) <= 2
    assert count["llm"] > count["explore"] > 100
    assert set(count) == {"llm", "explore"}


def test_the_mode_that_gains_gets_the_larger_share():
    count = Counter()
    mix = mixed({name: Source(name) for name in MODES}, 0, repairers=MODES, priors=MODES, **ALIKE)
    history = [attempt(0, "you")]
    for number in range(1, 61):
        name = mix.ideas(brief(history))[0].source
        count[name] += 1
        history.append(attempt(number, name, 0.01 if name == "combine" and count[name] % 2 else 0.0))
    assert count["combine"] > 2 * max(count["llm"], count["explore"])
    assert min(count.values()) > 0


def test_a_call_that_failed_is_not_made_again_by_another_mode():
    sources = {name: Source(name, Unanswered("the server is down")) for name in MODES} | {"search": Source("search")}
    outbox = Outbox(lambda: False)
    for seed in range(10):
        mix = mixed(sources, seed, last=("search",), repairers=MODES, outbox=outbox, **ALIKE)
        assert mix.ideas(brief([attempt(0, "you")]))[0].source == "search"
    assert sum(len(sources[name].briefings) for name in MODES) == 10
    assert set(outbox.take_sentences()) <= {
        f"{name}: the server is down · ideas now come from search" for name in MODES
    }


def test_calls_without_a_reply_rest_every_mode_and_unusable_answers_their_own():
    history = [attempt(k, "search") for k in range(3)]
    down = (asked(1, "llm:toy", "no answer"), asked(2, "explore:toy", "no answer"))
    unusable = tuple(replace(ask, tokens_in=900) for ask in down)
    assert [rests_until("combine", brief(history, asks), alike=MODES) for asks in (down, unusable)] == [4, None]
    assert rests_until("combine", brief(history, down)) is None
    answered = (*down, asked(2, "llm:toy"))
    assert rests_until("combine", brief(history, answered), alike=MODES) is None
    worse = (*unusable, replace(unusable[1], attempt=1))
    assert rests_until("explore", brief(history, worse), alike=MODES) == 4
    assert rests_until("llm", brief(history, worse), alike=MODES) is None


def test_where_all_can_have_none_yet_it_is_said():
    with pytest.raises(NoIdea, match="no source can have an idea yet"):
        mixed({"combine": Source("combine", NotYet("nothing"))}, 0, repairers=()).ideas(brief([attempt(0, "you")]))[0]


# ---- the table -------------------------------------------------------------------------------------------------------


def test_shares_tell_what_each_source_brought_and_cost():
    history = [
        attempt(0, "you"),
        attempt(1, "search", 0.002),
        attempt(2, "llm:some-model", 0.01),
        attempt(3, "llm:other-model"),
        attempt(4, "dawn", without=(1,)),
    ]
    asks = (
        asked(2, "llm:some-model", wall_s=600.0, tokens_in=1000, tokens_out=200, usd=0.02, tokens_cached=900),
        asked(3, "llm:other-model", "garbage", wall_s=300.0, tokens_in=500),
        asked(3, "llm:other-model", wall_s=300.0, usd=0.01),
    )
    llm, search = earned(history, asks)
    assert (llm.source, llm.attempts, llm.kept, llm.gain_bpb, llm.calls, llm.failures) == ("llm", 2, 1, 0.01, 3, 1)
    assert llm.hours == pytest.approx((2 * 300 + 1200) / 3600)
    assert (llm.last_failure, earned(history, asks[:2])[0].last_failure) == (None, "garbage")
    assert (llm.tokens_in, llm.tokens_cached, llm.tokens_out, llm.usd) == (1500, 900, 200, pytest.approx(0.03))
    assert (search.source, search.attempts, search.calls, search.tokens_in, search.usd) == ("search", 1, 0, None, None)


def test_a_gain_without_an_estimate_is_read_from_the_scores():
    kept = attempt(1, "search", 0.002)
    greedy = Attempt(1, 0, kept.proposal, "", "c", kept.runs, Decision(Kind.KEPT, ""), True)
    (row,) = earned([attempt(0, "you"), greedy], ())
    assert row.gain_bpb == pytest.approx(0.001)


# ---- checked ---------------------------------------------------------------------------------------------------------


@dataclass
class Listed:
    scripts: list[str]
    briefings: list[Briefing] = field(default_factory=list)

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.briefings.append(briefing)
        return [Proposal(self.scripts[len(self.briefings) - 1], "", "", "llm:some-model")]


def test_a_refused_proposal_is_asked_for_again_with_the_reason():
    history = [attempt(0, "you")]
    listed = Listed(["def main(:", f"{SCRIPT}LR=0 # reworded\n", f"{SCRIPT}LR = 1\n"])
    assert Outbox(lambda: False).ask(listed, brief(history)).proposal.script == f"{SCRIPT}LR = 1\n"
    assert [len(one.refused) for one in listed.briefings] == [0, 1, 2]
    syntax, twice = (one.why for one in listed.briefings[-1].refused)
    assert syntax.startswith("llm:some-model proposed a script that cannot be run: train_mlx.py line 1 does not parse")
    assert twice == "llm:some-model proposed the script of attempt 0 again; it has to be a new one"
