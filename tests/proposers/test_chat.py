"""The real SDKs ask servers that refuse, hang, break off and lie, and every failure is one sentence."""

import json
import re
import socket
import threading
import time
from dataclasses import replace

import pytest
from asking import BRIEFING, EDIT, PROVIDERS, QUICK, WANTED, Model
from llm_servers import TOKENS_IN, TOKENS_OUT, Server, anthropic_events, content, hangs, openai_events, says, status

from agent.errors import NoIdea
from agent.experiment import Options
from agent.proposers.llm import LLM
from agent.proposers.llm.chat import REPLY_BYTES
from agent.proposers.proposer import Messages

GARBAGE = [
    b"", b"data: []", b"data: {", b"<html>It works!</html>", b"data: \xff\xfe", b"{" * 100_000,
    b'data: {"choices": [null]}', b'data: {"choices": [{"delta": {"content": "half of an"}}]}',
    b'data: {"choices": [{"delta": 7}]}', b'{"error": {"message": "overloaded"}}',
]  # fmt: skip


@pytest.mark.slow
@PROVIDERS
def test_garbage_is_no_idea(provider):
    with Server(*(content(body, "text/event-stream") for body in GARBAGE)) as server:
        model = Model(server, provider)
        for number in range(len(GARBAGE)):
            assert re.search("can be read|reports an error|broke off", model.refusal())
            assert len(server.requests) == len(model.asks) == number + 1
            assert model.asks[-1].failure


SPELT = {
    "as usual": lambda lines: f"{lines}data: [DONE]\n\n",
    "no space after the colon": lambda lines: lines.replace(": {", ":{"),
    "no data": lambda lines: f"data:\n\ndata\n\n{lines}",
    "data that is no JSON": lambda lines: f"data: ping\n\n{lines}event: done\ndata: 1\n\n",
    "comments": lambda lines: f": hello\n\n:\n{lines}".replace("\n\n", "\n\n: keep-alive\n\n"),
    "other fields": lambda lines: f"retry: 100\n\n{lines}".replace("event:", "id: 7\nevent:"),
    "lines of Windows": lambda lines: lines.replace("\n", "\r\n"),
    "lines of an old Mac": lambda lines: lines.replace("\n", "\r"),
    "a byte order mark": lambda lines: "\ufeff" + re.sub(r"event:.*\n", "", lines),
    "data in several lines": lambda lines: lines.replace(', "', ',\ndata: "'),
    "no empty line at the end": lambda lines: lines.removesuffix("\n\n"),
    "no empty lines": lambda lines: lines.replace("\n\n", "\n"),
}


@PROVIDERS
@pytest.mark.parametrize("spelt", SPELT)
def test_a_stream_is_read_as_the_specification_of_its_events_says(provider, spelt):
    events = {
        "openai": openai_events([EDIT[:9], EDIT[9:]], "stop", {}),
        "anthropic": anthropic_events(
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": text} for text in (EDIT[:9], EDIT[9:])],
            "end_turn",
            {},
        ),
    }
    lines = "".join(f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in events[provider])
    pieces = SPELT[spelt](lines).encode()
    with Server(content(pieces, "text/event-stream")) as server:
        model = Model(server, provider)
        assert model.proposals()[0].script == WANTED
    assert (model.asks[0].tokens_in, model.asks[0].tokens_out) == (TOKENS_IN, TOKENS_OUT)


def test_an_event_that_comes_byte_by_byte_is_read():
    def slowly(request, handler):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.close_connection = True
        head = b"\xef\xbb\xbf: \xe2\x80\xa6\r\n\r\n"
        for byte in head:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(0.002)
        for event in openai_events([EDIT], "stop", {}):
            handler.wfile.write(f"data: {json.dumps(event)}\r".encode())
            handler.wfile.flush()
            time.sleep(0.002)
            handler.wfile.write(b"\n\r\n")

    with Server(slowly) as server:
        assert Model(server).proposals()[0].script == WANTED


@pytest.mark.slow
@PROVIDERS
def test_an_answer_without_an_end_is_capped(provider):
    with Server(content(b" " * (REPLY_BYTES + 1))) as server:
        assert "more than 4 MB" in Model(server, provider).refusal()


@PROVIDERS
def test_a_refusal_without_an_end_is_read_at_its_beginning_alone(provider):
    sent = []

    def endless(request, handler):
        handler.send_response(400)
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.close_connection = True
        while not sent or sum(sent) < 64 << 20:
            sent.append(handler.wfile.write(b"why not? " * 10_000))

    with Server(endless) as server:
        assert "refuses a question to toy" in Model(server, provider, patience=replace(QUICK, retries=0)).refusal()
    assert sum(sent) < 32 << 20  # most of it waits in the kernel


@PROVIDERS
def test_what_a_server_refuses_is_said_in_its_words(provider):
    with Server(status(400, "max_tokens is too large\x1b[2J" + " !" * 999)) as server:
        said = Model(server, provider).refusal()
    assert "max_tokens is too large\\x1b[2J" in said
    assert len(said) <= 400


@PROVIDERS
def test_a_server_that_is_out_of_order_or_limits_the_rate_is_asked_again(provider):
    with Server(status(500), says(EDIT)) as server:
        assert Model(server, provider).proposals()[0].script == WANTED
    with Server(status(429, retry_after="0.6"), says(EDIT)) as server:
        model = Model(server, provider)
        assert model.proposals()[0].script == WANTED
    first, second = server.requests
    assert second.at - first.at > 0.55  # the SDK by itself waits for half a second at most
    assert len(model.asks) == 1


def test_a_key_is_taken_out_of_an_error_wherever_it_would_be_cut():
    key = "of-another-form-0123"
    with Server(content(json.dumps({"error": {"message": "x" * 175 + key}}).encode())) as server:
        said = Model(server, key=key).refusal()
    assert "x" * 175 in said
    assert key[:4] not in said


@PROVIDERS
def test_a_redirect_takes_neither_the_key_nor_the_script_elsewhere(provider):
    with Server(says(EDIT)) as other, Server(status(307, location=other.url)) as server:
        Model(server, provider).refusal()
        assert other.requests == []


def test_a_server_that_is_not_there_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        llm = LLM(Options(llm=f"openai:toy@http://127.0.0.1:{taken.getsockname()[1]}/v1"), Messages(), QUICK)
        with pytest.raises(NoIdea, match=r"cannot be reached, or is silent; is the server running"):
            llm.proposals(BRIEFING)


# ---- time ------------------------------------------------------------------------------------------------------------


@PROVIDERS
def test_an_answer_that_does_not_come_is_not_waited_for(provider):
    with Server(hangs()) as server:
        model = Model(server, provider, patience=replace(QUICK, ask_s=0.4))
        start = time.monotonic()
        assert re.search(r"no answer in 0\.4 s|is silent", model.refusal())
        assert time.monotonic() - start < 10
        for thread in waiting():  # also where the server goes on
            thread.join(5)
        assert waiting() == []
    assert 0.3 < model.asks[0].wall_s < 10


def waiting() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "question to a language model"]


def test_a_stop_does_not_wait_for_the_answer():
    with Server(hangs()) as server:
        model = Model(server)
        threading.Timer(0.3, model.messages.closed.set).start()
        start = time.monotonic()
        assert "asked to stop" in model.refusal()
        assert time.monotonic() - start < 10
        assert "not asked" in model.refusal()
        assert len(server.requests) == len(model.asks) == 1
