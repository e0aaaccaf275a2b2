"""A language model's answers become proposals or sentences, and their costs are recorded and limited."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from asking import BASELINE, BRIEFING, EDIT, PROVIDERS, QUICK, SCRIPT, WANTED, Model, attempt, edit
from llm_servers import KEY, TOKENS_IN, TOKENS_OUT, Server, hangs, says

from agent.errors import MachineError, NightError, NoIdea
from agent.experiment import Ask, Decision, Ending, Kind, Proposal, Run, Status
from agent.proposers.author.attempts import to_combine
from agent.proposers.author.pages import Conversation
from agent.proposers.llm.chat import question
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.llm import LLM, most_spent_usd
from agent.proposers.source import Messages


@PROVIDERS
def test_an_answer_becomes_a_proposal_and_its_tokens_are_recorded(provider):
    with Server(says(EDIT)) as server:
        model = Model(server, provider, price=(3.0, 15.0))
        proposal = model.ideas()[0]
    assert proposal == Proposal(WANTED, "less smoothing", "Counts are large.", "llm:toy")
    (ask,) = model.asks
    assert (ask.attempt, ask.source, ask.model, ask.failure) == (1, "llm:toy", "toy", None)
    assert (ask.tokens_in, ask.tokens_out) == (TOKENS_IN, TOKENS_OUT)
    assert ask.usd == pytest.approx((1200 * 3 + 340 * 15) / 1e6)
    assert 0 < ask.wall_s < QUICK.ask_s
    (request,) = server.requests
    assert KEY in str(request.headers)  # in one header or another: SDKs differ with their age
    assert request.body["max_tokens"] == QUICK.max_tokens
    assert SCRIPT.rstrip() in request.text
    assert "Lower val_bpb." in request.text


# ---- caches ----------------------------------------------------------------------------------------------------------


def priced(provider: str, usage: object, *price: float) -> Ask:
    """The record of one call to a server that says this of its tokens."""
    with Server(says(EDIT, usage=usage)) as server:
        model = Model(server, provider, price=price)
        model.ideas()
    return model.asks[0]


@pytest.mark.parametrize(
    ("provider", "usage", "read"),
    [
        ("openai", {"prompt_tokens_details": {"cached_tokens": 1000, "audio_tokens": 0}}, TOKENS_IN),
        ("anthropic", {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 0}, TOKENS_IN + 1000),
    ],
)
def test_cached_tokens_are_recorded_and_cost_their_own_price_where_it_is_known(provider, usage, read):
    for price, usd_cached in (((3.0, 15.0), 3.0), ((3.0, 15.0, 0.3), 0.3)):
        ask = priced(provider, usage, *price)
        assert (ask.tokens_in, ask.tokens_out, ask.tokens_cached) == (read, TOKENS_OUT, 1000)
        assert ask.usd == pytest.approx(((read - 1000) * 3 + 1000 * usd_cached + TOKENS_OUT * 15) / 1e6)


def test_what_a_server_keeps_in_its_cache_costs_up_to_twice_the_input():
    ask = priced("anthropic", {"cache_creation_input_tokens": 400}, 1e6, 0.0, 0.0)
    assert (ask.tokens_in, ask.usd) == (1600, pytest.approx(1200 + 2 * 400))


@pytest.mark.parametrize(
    ("provider", "usage", "cached", "usd"),
    [
        ("openai", False, None, None),
        ("openai", {"prompt_tokens_details": [1]}, None, TOKENS_IN),
        ("openai", {"prompt_tokens_details": {"cached_tokens": -5, "cache_write_tokens": "many"}}, None, TOKENS_IN),
        ("anthropic", {"cache_read_input_tokens": True, "cache_creation_input_tokens": 10**12}, None, TOKENS_IN),
        ("openai", {"prompt_tokens_details": {"cached_tokens": 10**8}}, TOKENS_IN, 0.0),
    ],
)
def test_nonsense_about_tokens_is_not_counted(provider, usage, cached, usd):
    ask = priced(provider, usage, 1e6, 0.0, 0.0)
    assert (ask.tokens_cached, ask.usd) == (cached, usd)
    assert (ask.usd_most is not None) is (usd is None)


def test_the_stable_beginning_of_a_question_is_marked_for_anthropics_cache():
    with Server(says("no edit"), says(EDIT)) as server:
        Model(server, "anthropic").ideas()
        Model(server).ideas()
    first, corrected, other = server.requests
    stable, rest = first.body["messages"][0]["content"]
    assert stable["cache_control"] == {"type": "ephemeral"}
    assert SCRIPT.rstrip() in stable["text"]
    assert "cache_control" not in rest
    assert corrected.body["messages"][0]["content"] == [stable, rest]  # so that the correction reads the cache
    assert stable["text"] + rest["text"] == other.messages[0]
    home = Endpoint.parse("anthropic:claude", None, {"ANTHROPIC_API_KEY": KEY})
    stable, rest = question(Conversation("", ("stable and new",), 6), home, 1000)["messages"][0]["content"]
    assert (stable["text"], stable["cache_control"]["ttl"], rest["text"]) == ("stable", "1h", " and new")


# ---- what it is asked for --------------------------------------------------------------------------------------------


def test_every_second_question_explores_or_combines_where_there_is_something_to_combine():
    luck = Decision(Kind.LUCK, "", 0.001, 0.6)
    near = [replace(attempt(k, SCRIPT.replace("SMOOTHING = 1.0", f"SMOOTHING = {k}.5")), decision=luck) for k in (1, 2)]
    briefing = replace(BRIEFING, history=(BASELINE, *near))
    with Server(says(EDIT)) as server:
        for number in range(1, 9):
            Model(server).ideas(replace(briefing if number > 4 else BRIEFING, asked_for=number))
    asked = [request.messages[0].partition("# Your task")[2] for request in server.requests]
    assert [number for number, text in enumerate(asked, 1) if "unlike all attempts" in text] == [2, 6]
    assert [number for number, text in enumerate(asked, 1) if "nearly kept" in text] == [8]
    told = server.requests[-1].text
    assert "train_mlx.py above lacks them: 1, 2." in told
    assert "\n+SMOOTHING = 1.5" in told.partition("# Edits to combine\n")[2]


def test_two_near_misses_can_be_combined_and_failures_cannot():
    def near(number: int, kind: Kind = Kind.LUCK, sure: float = 0.6):
        return replace(attempt(number, WANTED), decision=Decision(kind, "", 0.001, sure))

    history = [BASELINE, attempt(1, SCRIPT), near(2), near(3, Kind.FAILED_AUDIT), attempt(4, "", status=Status.CRASH)]
    assert to_combine(history) == []
    assert to_combine([*history, near(5), near(6, Kind.WORSE, sure=0.1)]) == [2, 5, 6]
    assert to_combine([*history[:4], *(near(number) for number in range(4, 41))]) == list(range(33, 41))


def test_the_author_of_a_crash_mends_its_own_script():
    crash = Run(0, Ending.CRASHED, 1, 3.0, None, "NameError: name 'SMOTHING' is not defined")
    script = SCRIPT.replace("counts + SMOOTHING", "counts + SMOTHING")
    one = attempt(1, script, crash, status=Status.CRASH, source="llm:toy")
    old = next(line for line in script.split("\n") if "SMOTHING" in line)
    with Server(says(edit(old.replace("SMOTHING", "0.1 * SMOOTHING"), old))) as server:
        proposal = Model(server).ideas(replace(BRIEFING, history=(BASELINE, one), broken=one))[0]
    assert proposal.repairs == 1
    assert proposal.script == SCRIPT.replace("counts + SMOOTHING", "counts + 0.1 * SMOOTHING")
    assert "SMOTHING" in server.requests[0].text


# ---- answers that cannot be used -------------------------------------------------------------------------------------

UNUSABLE = {
    "empty": ("openai", says(""), "the reply has no SEARCH/REPLACE block"),
    "a path out": ("anthropic", says(edit(file="../../.ssh/authorized_keys")), "authorized_keys"),
    "lines that are not there": ("openai", says(edit(old="MOMENTUM = 0.9")), '"MOMENTUM = 0.9"'),
    "cut off": ("openai", says(EDIT, finish="length"), "was cut off"),
    "cut off there": ("anthropic", says(EDIT, finish="max_tokens"), "was cut off"),
    "declined": ("openai", says(EDIT, finish="content_filter"), "was declined"),
    "declined there": ("anthropic", says(EDIT, finish="refusal"), "was declined"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_answer_is_sent_back_once_with_what_is_wrong(name):
    provider, behaviour, why = UNUSABLE[name]
    with Server(behaviour, says(EDIT)) as server:
        model = Model(server, provider)
        assert model.ideas()[0].script == WANTED
    assert why in server.requests[1].messages[-1]
    first, second = model.asks
    assert why in (first.failure or "")
    assert second.failure is None


def test_after_two_unusable_answers_there_is_no_idea_and_a_short_context_is_noticed():
    program = "Lower val_bpb. " * 800  # with the script, more than TOKENS_IN tokens can hold
    with Server(says("What do you mean?")) as server:
        model = Model(server)
        said = model.refusal(replace(BRIEFING, program=program))
    assert "the last because the reply has no SEARCH/REPLACE block" in said
    assert len(server.requests) == len(model.asks) == 2
    assert all(ask.tokens_out == TOKENS_OUT and ask.failure for ask in model.asks)
    assert "it read 1,200 tokens: give it a longer context" in model.asks[0].failure
    assert "context" not in server.requests[1].messages[-1]


# ---- what it costs ---------------------------------------------------------------------------------------------------


def test_the_cost_cap_counts_the_whole_night_and_both_tries():
    paid, agent = Ask(1, "llm:another", "now", 1.0, usd=0.9), Ask(1, "command:claude", "now", 1.0, usd=7.0)
    with Server(says("nothing")) as server:
        model = Model(server, price=(100.0, 100.0), max_usd=1.0)
        assert "$1.05 of --max-cost 1 are spent" in model.refusal(replace(BRIEFING, asks=(paid, agent)))
        assert "--max-cost" in model.refusal(replace(BRIEFING, asks=(paid, agent, *model.asks)))
        assert len(server.requests) == 1


def test_a_call_that_nobody_counted_is_charged_at_its_most_also_when_the_night_is_resumed():
    with Server(hangs()) as server:
        options = {"price": (0.0, 1000.0), "max_usd": 1.0, "patience": replace(QUICK, ask_s=0.2)}
        model = Model(server, **options)
        assert "no answer" in model.refusal()
        (ask,) = model.asks
        assert (ask.usd, ask.usd_most) == (None, pytest.approx(1.0))
        for going_on in (model, Model(server, **options)):
            assert "$1.00 of --max-cost 1 are spent" in going_on.refusal(replace(BRIEFING, asks=(ask,)))
    assert len(server.requests) == 1


def test_calls_in_flight_count_as_the_most_that_they_may_cost():
    with Server(says(EDIT)) as server:
        model = Model(server, price=(10.0, 100.0), max_usd=0.5)  # 0.046 a call, and more than 0.1 at most

        def ask(number: int) -> None:
            with suppress(NoIdea):
                model.llm.ideas(replace(BRIEFING, asked_for=number))

        with ThreadPoolExecutor(12) as threads:
            list(threads.map(ask, range(1, 41)))
    assert most_spent_usd(model.asks) < 0.5 + 0.05
    assert len(model.asks) >= 3


def test_a_model_of_ones_own_never_reaches_a_cap_and_a_cap_without_a_price_is_refused():
    with Server(says(EDIT)) as server:
        model = Model(server, price=(0.0, 0.0), max_usd=0.01)
        for _ in range(3):
            model.ideas(replace(BRIEFING, asks=tuple(model.asks)))
    assert [ask.usd for ask in model.asks] == [0.0, 0.0, 0.0]
    with pytest.raises(NightError, match=r"--max-cost 5 .*--price IN,OUT"):
        LLM("openai:toy@http://localhost:1/v1", Messages(), max_usd=5.0, environ={})


# ---- the setup -------------------------------------------------------------------------------------------------------


@PROVIDERS
def test_a_missing_sdk_is_told_before_the_night(provider, monkeypatch):
    monkeypatch.setitem(sys.modules, provider, None)  # as Python has it for what cannot be imported
    with pytest.raises(MachineError, match=rf"SDK is not installed; run: .*pip install .*\[{provider}\]'"):
        LLM(f"{provider}:m@http://localhost:1", Messages(), environ={})


def test_a_proxy_that_is_none_is_told_before_the_night(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", f"nonsense://{KEY}")
    with pytest.raises(MachineError, match="cannot be set up") as caught:
        LLM("openai:m@http://localhost:1", Messages(), environ={"OPENAI_API_KEY": KEY})
    assert KEY not in str(caught.value)


def test_a_source_is_a_short_plain_word():
    llm = LLM("openai:odd~model" + "x" * 100 + "@http://localhost:1", Messages(), environ={})
    assert llm.source.startswith("llm:odd_modelxxx")
    assert len(llm.source) == 80
