"""Language models' replies become proposals or sentences, and their costs are recorded and limited."""

import sys
from dataclasses import replace

import pytest
from asking import BASELINE, BRIEFING, EDIT, MANNERS, PROVIDERS, QUICK, SCRIPT, TWO_WAYS, WANTED, Model, attempt, edit
from llm_servers import KEY, TOKENS_IN, TOKENS_OUT, Server, hangs, says

from agent.errors import MachineError, NightError
from agent.experiment import Ask, Attempt, Ending, Proposal, Run, Status
from agent.proposers.author.pages import AskMode, Conversation
from agent.proposers.llm.chat import question
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.llm import LLM, Price


@PROVIDERS
@MANNERS
def test_an_answer_becomes_a_proposal_and_its_tokens_are_recorded(provider, stream):
    with Server(says(EDIT)) as server:
        model = Model(server, provider, stream=stream, price=Price(3.0, 15.0))
        proposal = model.ideas()[0]
    assert proposal == Proposal(WANTED, "less smoothing", "Counts are large.", "llm:toy")
    (ask,) = model.asks
    assert (ask.attempt, ask.source, ask.model, ask.failure) == (1, "llm:toy", "toy", None)
    assert (ask.tokens_in, ask.tokens_out) == (TOKENS_IN, TOKENS_OUT)
    assert ask.usd == pytest.approx((1200 * 3 + 340 * 15) / 1e6)
    assert 0 < ask.wall_s < QUICK.ask_s
    (request,) = server.requests
    assert request.streams is stream
    assert KEY in str(request.headers)  # in one header or another: SDKs differ with their age
    assert request.body["max_tokens"] == QUICK.max_tokens
    assert SCRIPT.rstrip() in request.text
    assert "Lower val_bpb." in request.text


@PROVIDERS
@MANNERS
def test_a_server_that_counts_nothing_leaves_the_cost_unknown(provider, stream):
    with Server(says(EDIT, usage=False)) as server:
        model = Model(server, provider, stream=stream, price=Price(3.0, 15.0))
        model.ideas()
    assert (model.asks[0].tokens_in, model.asks[0].usd) == (None, None)
    assert model.asks[0].usd_most is not None


# ---- caches ----------------------------------------------------------------------------------------------------------

CACHED = {  # what a usage record says beside the rest
    "openai": {"prompt_tokens_details": {"cached_tokens": 1000, "audio_tokens": 0}},
    "anthropic": {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 0},
}
READ = {"openai": TOKENS_IN, "anthropic": TOKENS_IN + 1000}  # the second API counts them apart


@PROVIDERS
@MANNERS
@pytest.mark.parametrize(("third", "usd_cached"), [((), 3.0), ((0.3,), 0.3)])
def test_cached_tokens_are_recorded_and_cost_their_own_price_where_it_is_known(provider, stream, third, usd_cached):
    with Server(says(EDIT, usage=CACHED[provider])) as server:
        model = Model(server, provider, stream=stream, price=Price(3.0, 15.0, *third))
        model.ideas()
    (ask,) = model.asks
    assert (ask.tokens_in, ask.tokens_out, ask.tokens_cached) == (READ[provider], TOKENS_OUT, 1000)
    assert ask.usd == pytest.approx(((READ[provider] - 1000) * 3 + 1000 * usd_cached + TOKENS_OUT * 15) / 1e6)


WRITTEN = {
    "openai": {"prompt_tokens_details": {"cache_write_tokens": 400}},
    "anthropic": {"cache_creation_input_tokens": 400},
}


@PROVIDERS
def test_what_a_server_keeps_in_its_cache_costs_more(provider):
    with Server(says(EDIT, usage=WRITTEN[provider])) as server:
        model = Model(server, provider, price=Price(1e6, 0.0, 0.0))
        model.ideas()
    (ask,) = model.asks
    read = {"openai": 1200, "anthropic": 1600}[provider]
    assert (ask.tokens_in, ask.tokens_cached, ask.usd) == (read, None, pytest.approx(read + 0.25 * 400))


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("openai", {"prompt_tokens_details": [1]}),
        ("openai", {"prompt_tokens_details": {"cached_tokens": -5, "cache_write_tokens": "many"}}),
        ("anthropic", {"cache_read_input_tokens": True, "cache_creation_input_tokens": 10**12}),
    ],
)
def test_nonsense_about_a_cache_is_not_counted(provider, said):
    with Server(says(EDIT, usage=said)) as server:
        model = Model(server, provider, price=Price(1.0, 1.0, 0.0))
        model.ideas()
    (ask,) = model.asks
    assert (ask.tokens_in, ask.tokens_cached) == (TOKENS_IN, None)
    assert ask.usd == pytest.approx((TOKENS_IN + TOKENS_OUT) / 1e6)


def test_more_cached_tokens_than_were_read_cost_no_less_than_nothing():
    with Server(says(EDIT, usage={"prompt_tokens_details": {"cached_tokens": 10**8}})) as server:
        model = Model(server, price=Price(1.0, 0.0, 0.0))
        model.ideas()
    assert (model.asks[0].tokens_cached, model.asks[0].usd) == (TOKENS_IN, 0.0)


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


def test_anthropics_own_server_keeps_it_for_an_hour_which_is_longer_than_a_run():
    asked = Conversation("system", ("stable and new",), stable_chars=6)
    home = Endpoint.parse("anthropic:claude", None, {"ANTHROPIC_API_KEY": KEY})
    stable, rest = question(asked, home, 1000)["messages"][0]["content"]
    assert (stable["text"], rest["text"]) == ("stable", " and new")
    assert stable["cache_control"]["ttl"] == "1h"


# ---- answers that cannot be used -------------------------------------------------------------------------------------

UNUSABLE = {
    "empty": ("", "the reply has no SEARCH/REPLACE block"),
    "a path out": (edit(file="../../.ssh/authorized_keys"), "authorized_keys"),
    "lines that are not there": (edit(old="MOMENTUM = 0.9"), '"MOMENTUM = 0.9"'),
}


@TWO_WAYS
@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_answer_is_sent_back_once_with_what_is_wrong(name, provider, stream):
    text, why = UNUSABLE[name]
    with Server(says(text), says(EDIT)) as server:
        model = Model(server, provider, stream=stream)
        assert model.ideas()[0].script == WANTED
    assert why in server.requests[1].messages[-1]
    assert server.requests[1].messages[1:-1] == ([text] if text else [])
    first, second = model.asks
    assert why in (first.failure or "")
    assert second.failure is None


def test_after_two_unusable_answers_there_is_no_idea():
    with Server(says(edit(file="prepare.py")), says("")) as server:
        model = Model(server)
        assert "the last because the reply has no SEARCH/REPLACE block" in model.refusal()
    assert len(server.requests) == len(model.asks) == 2
    assert all(ask.tokens_out == TOKENS_OUT and ask.failure for ask in model.asks)


def test_a_question_that_was_cut_down_to_a_short_context_is_noticed():
    program = "Lower val_bpb. " * 800  # with the script, more than TOKENS_IN tokens can hold
    with Server(says("What do you mean?")) as server:
        model = Model(server)
        assert "it read 1,200 tokens: give it a longer context" in model.refusal(replace(BRIEFING, program=program))
    assert "context" not in server.requests[1].messages[-1]


@MANNERS
@pytest.mark.parametrize(
    ("provider", "finish", "why"),
    [
        ("openai", "length", "was cut off"),
        ("anthropic", "max_tokens", "was cut off"),
        ("openai", "content_filter", "was declined"),
        ("anthropic", "refusal", "was declined"),
    ],
)
def test_an_answer_that_was_cut_off_or_declined_is_not_read(provider, finish, why, stream):
    with Server(says(EDIT, finish=finish), says(EDIT)) as server:
        assert Model(server, provider, stream=stream).ideas()[0].script == WANTED
    assert why in server.requests[1].messages[-1]


# ---- what it costs ---------------------------------------------------------------------------------------------------


def test_the_cost_cap_counts_the_whole_night_and_both_tries():
    paid = [Ask(1, f"{mode}:another", "now", 1.0, usd=0.3) for mode in AskMode]
    agent = Ask(1, "command:claude", "now", 1.0, usd=7.0)
    with Server(says("nothing")) as server:
        model = Model(server, price=Price(100.0, 100.0), max_usd=1.0)
        assert "$1.05 of --max-cost 1 are spent" in model.refusal(replace(BRIEFING, asks=(*paid, agent)))
        assert len(server.requests) == 1
        assert "--max-cost" in model.refusal(replace(BRIEFING, asks=(*paid, agent, *model.asks)))
        assert len(server.requests) == 1


def test_a_call_that_nobody_counted_is_charged_at_its_most_also_when_the_night_is_resumed():
    with Server(hangs()) as server:
        options = {"price": Price(0.0, 1000.0), "max_usd": 1.0, "patience": replace(QUICK, ask_s=0.2)}
        model = Model(server, **options)
        assert "no answer" in model.refusal()
        (ask,) = model.asks
        assert (ask.usd, ask.usd_most) == (None, pytest.approx(1.0))
        briefing = replace(BRIEFING, asks=(ask,))
        for going_on in (model, Model(server, **options)):
            assert "$1.00 of --max-cost 1 are spent" in going_on.refusal(briefing)
    assert len(server.requests) == 1


def test_a_model_of_ones_own_never_reaches_a_cap():
    with Server(says(EDIT)) as server:
        model = Model(server, price=Price(0.0, 0.0), max_usd=0.01)
        for _ in range(3):
            model.ideas(replace(BRIEFING, asks=tuple(model.asks)))
    assert [ask.usd for ask in model.asks] == [0.0, 0.0, 0.0]


def test_a_cap_without_a_price_is_refused():
    with pytest.raises(NightError, match=r"--max-cost 5 .*--price IN,OUT"):
        LLM("openai:toy@http://localhost:1/v1", print, max_usd=5.0, environ={})


# ---- repairs, and the setup ------------------------------------------------------------------------------------------


def broken(source: str) -> Attempt:
    crash = Run(0, Ending.CRASHED, 1, 3.0, None, "NameError: name 'SMOTHING' is not defined")
    script = SCRIPT.replace("counts + SMOOTHING", "counts + SMOTHING")
    return attempt(1, script, crash, status=Status.CRASH, source=source)


def test_the_author_of_a_crash_mends_its_own_script():
    one = broken("llm:toy")
    old = next(line for line in one.proposal.script.split("\n") if "SMOTHING" in line)
    with Server(says(edit(old.replace("SMOTHING", "0.1 * SMOOTHING"), old))) as server:
        proposal = Model(server).ideas(replace(BRIEFING, history=(BASELINE, one), broken=one))[0]
    assert proposal.repairs == 1
    assert proposal.script == SCRIPT.replace("counts + SMOOTHING", "counts + 0.1 * SMOOTHING")
    assert "SMOTHING" in server.requests[0].text


def test_somebody_elses_crash_is_not_mended():
    one = broken("command:agent")
    with Server(says(EDIT)) as server:
        proposal = Model(server).ideas(replace(BRIEFING, history=(BASELINE, one), broken=one))[0]
    assert (proposal.repairs, proposal.script) == (None, WANTED)


@PROVIDERS
def test_a_missing_sdk_is_told_before_the_night(provider, monkeypatch):
    monkeypatch.setitem(sys.modules, provider, None)  # as Python has it for what cannot be imported
    with pytest.raises(MachineError, match=rf"SDK is not installed; run: .*pip install .*\[{provider}\]'"):
        LLM(f"{provider}:m@http://localhost:1", print, environ={})


def test_a_proxy_that_is_none_is_told_before_the_night(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", f"nonsense://{KEY}")
    with pytest.raises(MachineError, match="cannot be set up") as caught:
        LLM("openai:m@http://localhost:1", print, environ={"OPENAI_API_KEY": KEY})
    assert KEY not in str(caught.value)


def test_a_source_is_a_short_plain_word():
    llm = LLM("openai:odd~model" + "x" * 100 + "@http://localhost:1", print, environ={})
    assert llm.source_of(AskMode.EDIT).startswith("llm:odd_modelxxx")
    assert len(llm.source_of(AskMode.EDIT)) == 80
