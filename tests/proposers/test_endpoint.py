"""A spec determines model and server, and the key goes to that server alone."""

from dataclasses import replace

import pytest
from asking import Model
from llm_servers import KEY, Server, status

from agent.errors import NightError
from agent.experiment import Terms
from agent.proposers.author.pages import Conversation
from agent.proposers.llm.chat import question
from agent.proposers.llm.endpoint import NO_KEY, Endpoint
from agent.proposers.llm.llm import LLM
from agent.proposers.source import Messages

HTTPS = "https://openrouter.ai/api/v1"


@pytest.mark.parametrize(
    ("spec", "url", "environ", "wanted"),
    [
        ("openai:gpt-5", None, {}, ("openai", "gpt-5", "https://api.openai.com/v1", KEY)),
        ("anthropic:claude-sonnet-4-5", None, {}, ("anthropic", "claude-sonnet-4-5", "https://api.anthropic.com", KEY)),
        ("openai:qwen3:8b@http://localhost:1234/v1", None, {}, ("openai", "qwen3:8b", "http://localhost:1234/v1", KEY)),
        (f"openai:z-ai/glm:free@{HTTPS}", None, {}, ("openai", "z-ai/glm:free", HTTPS, KEY)),
        ("openai:m", HTTPS, {}, ("openai", "m", HTTPS, KEY)),
        ("openai:m", None, {"OPENAI_BASE_URL": HTTPS}, ("openai", "m", HTTPS, KEY)),
        ("openai:m@http://127.0.0.1:1", None, {"OPENAI_API_KEY": ""}, ("openai", "m", "http://127.0.0.1:1", NO_KEY)),
        ("openai:m@http://192.168.1.5:8000/v1", None, {}, ("openai", "m", "http://192.168.1.5:8000/v1", NO_KEY)),
        ("openai:m@http://127.0.0.1.h/v1", None, {}, ("openai", "m", "http://127.0.0.1.h/v1", NO_KEY)),
        ("openai:m@http://localhost.h/v1", None, {}, ("openai", "m", "http://localhost.h/v1", NO_KEY)),
    ],
)  # fmt: skip
def test_a_spec_names_a_model_and_who_serves_it(spec, url, environ, wanted):
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": f" {KEY}\n"}
    found = Endpoint.parse(spec, url, keys | environ)
    assert (found.provider, found.model, found.url, found.key) == wanted


@pytest.mark.parametrize(
    ("spec", "url", "why"),
    [
        ("", None, "names no language model"),
        ("gpt-5", None, "write PROVIDER:MODEL"),
        ("openai:", None, "names no language model"),
        ("mistral:large", None, "names no language model"),
        ("openai:a model", None, "names no language model"),
        ("openai:m@localhost:11434", None, "names no language model"),
        ("openai:m@host:80/v1", None, "names no language model"),
        ("openai:m@http://a/v1", "http://b/v1", "give one of them"),
        ("openai:m", "localhost:11434", "no base URL"),
        ("openai:m", "http://", "no base URL"),
        ("openai:m", "HTTP://h/v1", "no base URL"),
        ("openai:m", "http://localhost@h/v1", "no base URL"),
        ("openai:m", "http://h/v1?key=1", "no base URL"),
        ("openai:m", "file:///etc/passwd", "no base URL"),
        ("openai:m", "http://h/v1/chat/completions", "no base URL"),
        ("openai:m", f"http://me:{KEY}@h/v1", "no base URL"),
        ("openai:m", None, "OPENAI_API_KEY is not set"),
        ("anthropic:m", None, "ANTHROPIC_API_KEY is not set"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(spec, url, why):
    with pytest.raises(NightError) as caught:
        Endpoint.parse(spec, url, {})
    assert why in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_key_with_a_line_break_in_it_is_refused_before_it_is_sent():
    with pytest.raises(NightError, match="characters that no key has"):
        Endpoint.parse("openai:m", None, {"OPENAI_API_KEY": "sk-1\n2"})


def test_a_key_that_would_cross_the_network_in_the_clear_stays_here():
    with Server(status(401, "who are you?")) as server:
        model = Model(server)
        there = Endpoint.parse("openai:m@http://192.168.1.5/v1", None, {"OPENAI_API_KEY": KEY})
        model.llm._endpoint = replace(there, url=server.url)
        assert "OPENAI_API_KEY is not sent to 127.0.0.1" in model.refusal()
    assert KEY not in str(server.requests[0].headers)


@pytest.mark.parametrize(
    ("url", "told"),
    [("http://192.168.1.5:8000", True), ("https://192.168.1.5:8000", False), ("http://[::1]:8000", False)],
)
def test_that_a_key_stays_here_is_said_when_the_night_begins(monkeypatch, url, told):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    messages = Messages()
    LLM.by_terms(Terms(proposer="llm", llm=f"openai:m@{url}/v1"), messages)
    said = messages.taken()
    sentence = (
        "OPENAI_API_KEY is not sent to 192.168.1.5:8000: plain http to another machine would show it to the network"
    )
    assert [sentence in one for one in said] == [True] * told
    assert KEY not in "".join(said)


def test_the_key_stands_in_nothing_that_is_shown():
    other = "sk-proj-abcdefgh12345678"
    with Server(status(400, f"bad request with {KEY} and {other}"), status(401, KEY)) as server:
        model = Model(server)
        sentences = [model.refusal(), model.refusal(), repr(model.llm), repr(model.llm._endpoint), str(model.asks)]
    assert KEY not in "".join(sentences)
    assert other not in "".join(sentences)


def test_openais_own_models_are_told_their_limit_by_its_new_name():
    home = Endpoint.parse("openai:gpt-5", None, {"OPENAI_API_KEY": KEY})
    assert question(Conversation("", ()), home, 7)["max_completion_tokens"] == 7
