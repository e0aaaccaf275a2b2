"""The real SDKs ask servers that refuse, hang, break off and lie, and every failure is one sentence."""

import itertools
import json
import re
import socket
import threading
import time
from dataclasses import replace

import pytest
from asking import BRIEFING, EDIT, MANNERS, PROVIDERS, QUICK, TWO_WAYS, WANTED, Model
from llm_servers import KEY, Server, breaks_off, content, hangs, says, status, trickles

from agent.errors import NoIdea
from agent.proposers.llm.chat import REPLY_BYTES
from agent.proposers.llm.llm import LLM

# ---- garbage ---------------------------------------------------------------------------------------------------------

GARBAGE = [
    b"", b"null", b"[]", b"{", b"<html>It works!</html>", b"\xff\xfe", b"[" * 100_000, b'"text"', b"{}",
    b'{"choices": []}', b'{"choices": null}', b'{"choices": [null]}', b'{"choices": [{"message": "text"}]}',
    b'{"content": "text"}', b'{"error": {"message": "overloaded"}}',
]  # fmt: skip


@PROVIDERS
@MANNERS
def test_garbage_is_no_idea(provider, stream):
    kinds = itertools.cycle(["application/json", "text/html", "text/event-stream", "application/json; charset=utf-16"])
    with Server(*(content(body, kind) for body, kind in zip(GARBAGE, kinds, strict=False))) as server:
        model = Model(server, provider, stream=stream)
        for number in range(len(GARBAGE)):
            assert re.search("JSON|reports an error|broke off|call failed", model.refusal())
            assert len(server.requests) == len(model.asks) == number + 1
            assert model.asks[-1].failure


@pytest.mark.parametrize("text", [None, [], [{"type": "image"}], 7, {"a": 1}])
def test_content_of_another_type_is_an_empty_answer(text):
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": {"prompt_tokens": "many"}}
    with Server(content(json.dumps(body).encode())) as server:
        model = Model(server)
        assert "no SEARCH/REPLACE block" in model.refusal()
    assert model.asks[0].tokens_in is None


def test_content_in_parts_is_joined():
    parts = [{"type": "text", "text": EDIT[:40]}, {"type": "text", "text": EDIT[40:]}]
    body = {"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}
    with Server(content(json.dumps(body).encode())) as server:
        assert Model(server).ideas()[0].script == WANTED


@PROVIDERS
def test_a_stream_that_breaks_off_is_no_answer(provider):
    with Server(breaks_off(EDIT)) as server:
        assert "broke off" in Model(server, provider, stream=True).refusal()


def test_an_answer_without_an_end_is_capped():
    with Server(content(b" " * (REPLY_BYTES + 1))) as server:
        assert "more than 4 MB" in Model(server).refusal()


@PROVIDERS
@pytest.mark.parametrize("code", [307, 400, 500])
def test_a_refusal_without_an_end_is_read_at_its_beginning_alone(code, provider):
    sent = []

    def endless(request, handler):
        handler.send_response(code)
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.close_connection = True
        while not sent or sum(sent) < 64 << 20:
            sent.append(handler.wfile.write(b"why not? " * 10_000))

    with Server(endless) as server:
        refusal = Model(server, provider, patience=replace(QUICK, retries=0)).refusal()
    assert re.search("out of order|does not take", refusal)
    assert sum(sent) < 32 << 20  # most of it waits in the kernel


# ---- refusals --------------------------------------------------------------------------------------------------------

LASTING = {
    "401": (status(401, f"Incorrect API key provided: {KEY}"), "does not accept the key"),
    "403": (status(403, "not allowed"), "does not accept the key"),
    "402": (status(402, "payment required"), "no credit left"),
    "quota": (status(429, "You exceeded your current quota", "insufficient_quota"), "no credit left"),
    "balance": (status(400, "Your credit balance is too low to access the API"), "no credit left"),
    "billing": (status(402, "billing", "billing_error"), "no credit left"),
}


@TWO_WAYS
@pytest.mark.parametrize("name", LASTING)
def test_key_and_credit_are_not_asked_for_twice(name, provider, stream):
    refusal, why = LASTING[name]
    with Server(refusal) as server:
        model = Model(server, provider, stream=stream, patience=replace(QUICK, rest_s=1.0 if name == "401" else 1800.0))
        first = model.refusal()
        assert why in first
        assert f"{provider.upper()}_API_KEY" in first
        assert model.refusal() == first
        assert len(server.requests) == len(model.asks) == 1
        if name == "401":
            time.sleep(1.0)
            assert model.refusal() == first
            assert len(server.requests) == 2


def test_an_error_in_place_of_an_answer_may_be_about_credit():
    body = json.dumps({"error": {"code": 402, "message": "Insufficient credits"}}).encode()
    with Server(content(body)) as server:
        model = Model(server)
        assert model.refusal() == model.refusal()
        assert len(server.requests) == 1


def test_a_key_is_taken_out_of_an_error_wherever_it_would_be_cut():
    key = "a-key-of-another-form"
    with Server(content(json.dumps({"error": {"message": "x" * 175 + key}}).encode())) as server:
        said = Model(server, key=key).refusal()
    assert "x" * 175 in said
    assert key[:4] not in said


@PROVIDERS
@MANNERS
def test_a_rate_limit_is_waited_for_as_long_as_the_server_asks(provider, stream):
    with Server(status(429, retry_after="0.6"), says(EDIT)) as server:
        model = Model(server, provider, stream=stream)
        assert model.ideas()[0].script == WANTED
    first, second = server.requests
    assert second.at - first.at > 0.55  # the SDK by itself waits for half a second at most
    assert len(model.asks) == 1


@PROVIDERS
@pytest.mark.parametrize("wait", ["3600", "Wed, 25 Nov 2099 12:00:00 GMT"])
def test_nobody_waits_for_an_hour(wait, provider):
    with Server(status(429, retry_after=wait)) as server:
        model = Model(server, provider)
        start = time.monotonic()
        assert "gets too many requests" in model.refusal()
        assert time.monotonic() - start < 10
        assert len(server.requests) == 1
        model.refusal()
        assert len(server.requests) == 2  # it may be free again by the next proposal


@PROVIDERS
def test_a_server_that_is_out_of_order_is_asked_again_and_then_left_alone(provider):
    with Server(status(500), says(EDIT)) as server:
        assert Model(server, provider).ideas()[0].script == WANTED
    with Server(status(503, retry_after="0.01")) as server:
        assert "out of order" in Model(server, provider).refusal()
        assert len(server.requests) == 1 + QUICK.retries


@PROVIDERS
def test_what_else_a_server_refuses_is_said_in_its_words(provider):
    with Server(status(404, "model toy not found")) as server:
        assert "knows no model toy" in Model(server, provider).refusal()
    with Server(status(400, "max_tokens is too large\x1b[2J" + " !" * 999)) as server:
        sentence = Model(server, provider).refusal()
        assert "does not take the question" in sentence
        assert "max_tokens is too large\\x1b[2J" in sentence
        assert len(sentence) <= 400


@PROVIDERS
def test_a_redirect_takes_neither_the_key_nor_the_script_elsewhere(provider):
    with Server(says(EDIT)) as other, Server(status(307, location=other.url)) as server:
        Model(server, provider).refusal()
        assert other.requests == []


def test_a_server_that_is_not_there_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        llm = LLM("openai:toy", lambda ask: None, url=url, patience=QUICK, environ={})
        with pytest.raises(NoIdea, match=r"cannot be reached; is the server running"):
            llm.ideas(BRIEFING)


# ---- time ------------------------------------------------------------------------------------------------------------


@PROVIDERS
@MANNERS
@pytest.mark.parametrize("behaviour", [hangs(), trickles()], ids=["hangs", "trickles"])
def test_an_answer_that_does_not_come_is_not_waited_for(behaviour, provider, stream):
    with Server(behaviour) as server:
        model = Model(server, provider, stream=stream, patience=replace(QUICK, ask_s=0.4))
        start = time.monotonic()
        assert re.search(r"no answer in 0\.4 s|did not answer in time", model.refusal())
        assert time.monotonic() - start < 10
        for thread in waiting():  # also where the server goes on
            thread.join(5)
        assert waiting() == []
    assert 0.3 < model.asks[0].wall_s < 10


def waiting() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "question to a language model"]


def test_a_stop_does_not_wait_for_the_answer():
    stop = threading.Event()
    with Server(hangs()) as server:
        model = Model(server, stopped=stop.is_set)
        threading.Timer(0.3, stop.set).start()
        start = time.monotonic()
        assert "asked to stop" in model.refusal()
        assert time.monotonic() - start < 10
        assert "not asked" in model.refusal()
        assert len(server.requests) == len(model.asks) == 1
    for thread in waiting():
        thread.join(5)
    assert waiting() == []
