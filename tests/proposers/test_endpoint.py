"""A spec determines model and server, and the key goes to that server alone."""

import pytest
from asking import Model
from llm_servers import KEY, Server, status

from agent.errors import MachineError, NightError
from agent.proposers.llm.chat import NO_KEY, Endpoint, question
from agent.proposers.prompts import Conversation

HTTPS = "https://openrouter.ai/api/v1"


@pytest.mark.parametrize(
    ("spec", "environ", "wanted"),
    [
        ("openai:gpt-5", {}, ("openai", "gpt-5", "https://api.openai.com/v1", KEY)),
        ("anthropic:claude-sonnet-4-5", {}, ("anthropic", "claude-sonnet-4-5", "https://api.anthropic.com", KEY)),
        ("openai:qwen3:8b@http://localhost:1234/v1", {}, ("openai", "qwen3:8b", "http://localhost:1234/v1", KEY)),
        (f"openai:z-ai/glm:free@{HTTPS}", {}, ("openai", "z-ai/glm:free", HTTPS, KEY)),
        ("openai:m", {"OPENAI_BASE_URL": HTTPS}, ("openai", "m", HTTPS, KEY)),
        ("openai:m@http://127.0.0.1:1", {"OPENAI_API_KEY": ""}, ("openai", "m", "http://127.0.0.1:1", NO_KEY)),
        ("openai:m@http://127.0.0.1.h/v1", {}, ("openai", "m", "http://127.0.0.1.h/v1", NO_KEY)),
    ],
)  # fmt: skip
def test_a_spec_names_a_model_and_who_serves_it_and_plain_http_gets_no_key(spec, environ, wanted):
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": f" {KEY}\n"}
    endpoint = Endpoint.parse(spec, keys | environ)
    assert (endpoint.provider, endpoint.model, endpoint.url, endpoint.key) == wanted


HERE = ["127.9.9.9", "2130706433", "[::1]", "[::]", "[0:0::1]", "[::ffff:7f00:1]", "localhost.", "a.b.LocalHost"]
ELSEWHERE = ["10.0.0.1", "127.0.0.1.nip.io", "localhost.example.org", "alocalhost", "[::2]", "[::ffff:10.0.0.1]", "1"]


@pytest.mark.parametrize("host", HERE + ELSEWHERE)
def test_plain_http_gets_the_key_in_whichever_way_this_machine_is_named(host):
    for rest in ("", ":11434", "/v1", ":1/v1"):
        endpoint = Endpoint.parse(f"openai:m@http://{host}{rest}", {"OPENAI_API_KEY": KEY})
        assert endpoint.key == (KEY if host in HERE else NO_KEY)


@pytest.mark.parametrize(
    ("spec", "url", "why"),
    [
        ("gpt-5", "", "write PROVIDER:MODEL"),
        ("openai:m@localhost:11434", "", "names no language model"),
        ("openai:m", "http://h/v1?key=1", "no base URL"),
        ("openai:m", "file:///etc/passwd", "no base URL"),
        ("openai:m", "http://h/v1/chat/completions", "no base URL"),
        ("openai:m", f"http://me:{KEY}@h/v1", "no base URL"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(spec, url, why):
    with pytest.raises(NightError) as caught:
        Endpoint.parse(spec, {"OPENAI_BASE_URL": url})
    assert why in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(("key", "why"), [("", "OPENAI_API_KEY is not set"), ("sk-1\n2", "characters that no key has")])
def test_a_key_that_is_missing_or_has_a_line_break_in_it_is_refused_before_it_is_sent(key, why):
    with pytest.raises(MachineError, match=why):
        Endpoint.parse("openai:m", {"OPENAI_API_KEY": key})


def test_the_key_stands_in_nothing_that_is_shown():
    other = "sk-proj-abcdefgh12345678"
    with Server(status(400, f"bad request with {KEY} and {other}"), status(401, KEY)) as server:
        model = Model(server)
        shown = (
            f"{model.refusal()} {model.refusal()} {model.asks} {Endpoint.parse('openai:m', {'OPENAI_API_KEY': KEY})}"
        )
    assert KEY not in shown
    assert other not in shown


def test_openais_own_models_are_told_their_limit_by_its_new_name():
    home = Endpoint.parse("openai:gpt-5", {"OPENAI_API_KEY": KEY})
    assert question(Conversation("", ()), home, 7)["max_completion_tokens"] == 7
