"""Serve the two APIs of language models on the loopback interface, and misbehave on request.

    with Server(says(EDIT), status(500), hangs()) as server:
        LLM(f"openai:toy@{server.url}", …)

Each request is answered by the next behaviour, the last one from then on. A behaviour is a function of a request and
its handler, so that a test may write its own.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

TOKENS_IN, TOKENS_OUT = 1200, 340
KEY = "sk-test-0123456789abcdef"


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]  # names in lower case
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)

    @property
    def is_anthropic(self) -> bool:
        return self.path.endswith("/messages")

    @property
    def messages(self) -> list[str]:
        """Return the messages without the system prompt."""
        return [_joined(turn["content"]) for turn in self.body["messages"] if turn["role"] != "system"]

    @property
    def text(self) -> str:
        return "\n".join([self.body.get("system", ""), *(_joined(turn["content"]) for turn in self.body["messages"])])


def _joined(content: str | list[dict[str, Any]]) -> str:
    """Return the text of a message, which may come in blocks."""
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_HTTP"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, json.loads(body))
        with suppress(BrokenPipeError, ConnectionResetError):  # the client went away
            self.server.owner.next_behaviour(request)(request, self)

    def send(self, code: int, content: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None: ...


class _HTTP(ThreadingHTTPServer):
    daemon_threads = True
    owner: "Server"


Behaviour = Callable[[Request, Handler], None]
Usage = bool | dict[str, Any]  # whether tokens are counted; or counts beside the usual ones


class Server:
    """Answer until the end of the `with` block; `requests` holds all questions in order."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self.behaviours = list(behaviours)
        self.requests: list[Request] = []
        self.over = threading.Event()  # what hangs, hangs no longer
        self._lock = threading.Lock()
        self._environment = pytest.MonkeyPatch()
        self._http = _HTTP(("127.0.0.1", 0), Handler)
        self._http.owner = self

    @property
    def url(self) -> str:
        """Return the base URL for the openai SDK; anthropic's is the part before /v1."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def spec(self, provider: str, model: str = "toy") -> str:
        return f"{provider}:{model}@{self.url if provider == 'openai' else self.url.removesuffix('/v1')}"

    def next_behaviour(self, request: Request) -> Behaviour:
        with self._lock:
            self.requests.append(request)
            return self.behaviours[min(len(self.requests), len(self.behaviours)) - 1]

    def __enter__(self) -> "Server":
        # clients need no TLS here, and each would read all the system's certificates: 22 ms
        self._environment.setenv("SSL_CERT_FILE", "")
        self._environment.setenv("SSL_CERT_DIR", "/nowhere")
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._environment.undo()
        self.over.set()
        self._http.shutdown()
        self._http.server_close()


def says(text: str, *, finish: str | None = None, usage: Usage = True) -> Behaviour:
    """Answer with a text, in the API of the request."""

    def behave(request: Request, handler: Handler) -> None:
        handler.send(200, b"".join(_events(request, text, finish, usage)), "text/event-stream")

    return behave


def status(code: int, message: str = "no", error: str = "an_error", **headers: str) -> Behaviour:
    """Answer with an error status, with headers such as retry_after."""

    def behave(request: Request, handler: Handler) -> None:
        facts = {"type": error, "code": error, "message": message}
        handler.send(code, json.dumps({"type": "error", "error": facts}).encode(), **headers)

    return behave


def content(body: bytes, kind: str = "application/json", code: int = 200) -> Behaviour:
    """Answer with these bytes, unchanged."""
    return lambda request, handler: handler.send(code, body, kind)


def breaks_off(text: str) -> Behaviour:
    """Answer with half of a stream."""

    def behave(request: Request, handler: Handler) -> None:
        events = list(_events(request, text, None, True))
        handler.send(200, b"".join(events[: len(events) // 2]), "text/event-stream")

    return behave


def hangs() -> Behaviour:
    """Accept the question and never answer."""

    def behave(request: Request, handler: Handler) -> None:
        handler.server.owner.over.wait(60)
        handler.close_connection = True

    return behave


def _events(request: Request, text: str, finish: str | None, usage: Usage) -> Iterator[bytes]:
    """Yield server-sent events, with the text in pieces of seven characters."""
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    if request.is_anthropic:
        head = {"id": "m", "type": "message", "role": "assistant", "model": "toy", "content": []}
        head |= {"usage": {"input_tokens": TOKENS_IN, "output_tokens": 1} | _more(usage)} if usage else {}
        yield _event({"type": "message_start", "message": head})
        yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        yield _event({"type": "ping"})
        for piece in pieces:
            delta = {"type": "text_delta", "text": piece}
            yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
        yield _event({"type": "content_block_stop", "index": 0})
        end = {"type": "message_delta", "delta": {"stop_reason": finish or "end_turn", "stop_sequence": None}}
        yield _event(end | ({"usage": {"output_tokens": TOKENS_OUT}} if usage else {}))
        yield _event({"type": "message_stop"})
        return
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "toy"}
    for piece in pieces:
        yield _event(chunk | {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    yield _event(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish or "stop"}]})
    if usage:
        counts = {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT} | _more(usage)
        yield _event(chunk | {"choices": [], "usage": counts})
    yield b"data: [DONE]\n\n"


def _more(usage: Usage) -> dict[str, Any]:
    return usage if isinstance(usage, dict) else {}


def _event(facts: dict[str, Any]) -> bytes:
    name = f"event: {facts['type']}\n" if "type" in facts else ""
    return f"{name}data: {json.dumps(facts)}\n\n".encode()
