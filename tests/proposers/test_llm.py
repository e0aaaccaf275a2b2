"""A language model's answers become proposals or sentences, and their costs are recorded and limited."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from asking import BRIEFING, EDIT, PROVIDERS, QUICK, SCRIPT, WANTED, Model
from llm_servers import KEY, TOKENS_IN, TOKENS_OUT, Server, hangs, says

from agent.errors import MachineError, NightError, NoIdea
from agent.experiment import Ask, Options, Proposal
from agent.proposers.llm import LLM, most_spent_usd
from agent.proposers.llm.chat import Endpoint, question
from agent.proposers.prompts import Conversation
from agent.proposers.proposer import Messages


@PROVIDERS
def test_an_answer_becomes_a_proposal_and_its_tokens_are_recorded(provider):
    with Server(says(EDIT)) as server:
        model = Model(server, provider, price=(3.0, 15.0))
        proposal = model.proposals()[0]
    assert proposal == Proposal.of(WANTED, "less smoothing", "Counts are large.", "llm:toy")
    (ask,) = model.asks
    assert (ask.attempt, ask.proposer, ask.model, ask.failure) == (1, "llm:toy", "toy", None)
    assert (ask.tokens_in, ask.tokens_out) == (TOKENS_IN, TOKENS_OUT)
    assert ask.usd == pytest.approx((1200 * 3 + 340 * 15) / 1e6)
    assert 0 < ask.wall_s < QUICK.ask_s
    (request,) = server.requests
    assert KEY in str(request.headers)  # the header's name differs between SDKs
    assert request.body["max_tokens"] == QUICK.max_tokens
    assert SCRIPT.rstrip() in request.text


@pytest.mark.parametrize(
    ("provider", "usage", "tokens_in", "usd"),
    [
        ("openai", {"prompt_tokens_details": {"cached_tokens": 1000}}, 1200, 200 + 1000 / 10),
        ("anthropic", {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 0}, 2200, 1200 + 1000 / 10),
        ("anthropic", {"cache_creation_input_tokens": 400}, 1600, 1200 + 2 * 400),  # writing into the cache costs twice
    ],
)
def test_tokens_of_a_cache_are_recorded_and_cost_their_own_price(provider, usage, tokens_in, usd):
    with Server(says(EDIT, usage=usage)) as server:
        model = Model(server, provider, price=(1e6, 0.0, 1e5))
        model.proposals()
    assert (model.asks[0].tokens_in, model.asks[0].usd) == (tokens_in, pytest.approx(usd))


def test_the_stable_beginning_of_a_question_is_marked_for_anthropics_cache():
    home = Endpoint.parse("anthropic:claude", {"ANTHROPIC_API_KEY": KEY})
    stable, rest = question(Conversation("", ("stable and new",), 6), home, 1000)["messages"][0]["content"]
    assert (stable["text"], stable["cache_control"]["ttl"]) == ("stable", "1h")
    assert rest == {"type": "text", "text": " and new"}


# ---- answers that cannot be used -------------------------------------------------------------------------------------


UNUSABLE = {
    "empty": ("openai", says(""), "the reply has no SEARCH/REPLACE block"),
    "cut off": ("anthropic", says(EDIT, finish="max_tokens"), "was cut off"),
    "declined": ("openai", says(EDIT, finish="content_filter"), "was declined"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_answer_is_sent_back_once_with_what_is_wrong(name):
    provider, behaviour, why = UNUSABLE[name]
    with Server(behaviour, says(EDIT)) as server:
        model = Model(server, provider)
        assert model.proposals()[0].script == WANTED
    assert why in server.requests[1].text
    assert [why in (ask.failure or "") for ask in model.asks] == [True, False]


def test_after_two_unusable_answers_there_is_no_idea_and_a_short_context_is_noticed():
    program = "Lower val_bpb. " * 800  # more than TOKENS_IN tokens, together with the script
    with Server(says("What do you mean?")) as server:
        model = Model(server)
        assert "the last because the reply has no SEARCH/REPLACE block" in model.refusal(
            replace(BRIEFING, program=program)
        )
    assert len(model.asks) == 2
    assert "it read 1,200 tokens: give it a longer context" in model.asks[0].failure


# ---- what it costs ---------------------------------------------------------------------------------------------------


def test_the_cost_cap_counts_the_whole_night_and_both_tries():
    paid, agent = Ask(1, "llm:another", "now", 1.0, usd=0.9), Ask(1, "command:claude", "now", 1.0, usd=7.0)
    with Server(says("nothing")) as server:
        model = Model(server, price=(100.0, 100.0), max_cost=1.0)
        assert "$1.05 of --max-cost 1 are spent" in model.refusal(replace(BRIEFING, asks=(paid, agent)))
        assert "--max-cost" in model.refusal(replace(BRIEFING, asks=(paid, agent, *model.asks)))
        assert len(server.requests) == 1


def test_a_call_without_counts_is_charged_at_its_most_also_when_the_night_is_resumed():
    with Server(hangs()) as server:
        options = {"price": (0.0, 1000.0), "max_cost": 1.0, "patience": replace(QUICK, ask_s=0.2)}
        model = Model(server, **options)
        assert "no answer" in model.refusal()
        (ask,) = model.asks
        assert (ask.usd, ask.usd_most) == (None, pytest.approx(1.0))
        for going_on in (model, Model(server, **options)):
            assert "$1.00 of --max-cost 1 are spent" in going_on.refusal(replace(BRIEFING, asks=(ask,)))
    assert len(server.requests) == 1


def test_calls_in_flight_count_as_the_most_that_they_may_cost():
    with Server(says(EDIT)) as server:
        model = Model(server, price=(10.0, 100.0), max_cost=0.5)  # 0.046 a call, and more than 0.1 at most

        def ask(number: int) -> None:
            with suppress(NoIdea):
                model.llm.proposals(replace(BRIEFING, asked_for=number))

        with ThreadPoolExecutor(12) as threads:
            list(threads.map(ask, range(1, 41)))
    assert most_spent_usd(model.asks) < 0.5 + 0.05
    assert len(model.asks) >= 3


# ---- the setup -------------------------------------------------------------------------------------------------------


def test_a_cap_without_a_price_is_refused():
    with pytest.raises(NightError, match=r"--max-cost 5 .*--price IN,OUT"):
        LLM(Options(llm="openai:toy@http://localhost:1/v1", max_cost=5.0), Messages())


@PROVIDERS
def test_a_missing_sdk_is_told_before_the_night(provider, monkeypatch):
    monkeypatch.setitem(sys.modules, provider, None)  # Python marks a module like this that cannot be imported
    with pytest.raises(MachineError, match=rf"SDK is not installed; run: .*pip install .*\[{provider}\]'"):
        LLM(Options(llm=f"{provider}:m@http://localhost:1"), Messages())
