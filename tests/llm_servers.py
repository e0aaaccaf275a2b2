"""Serve the two APIs of language models on the loopback interface, and misbehave on request.

    with Server(says(EDIT), status(500), hangs()) as server:
        LLM(Options(llm=server.spec("openai")), …)

Each request is answered by the next behaviour, the last one from then on. A behaviour is a function of a request and
its handler, so that a test may write its own.
"""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

TOKENS_IN, TOKENS_OUT = 1200, 340
KEY = "sk-test-0123456789abcdef"
Json = Mapping[str, Any]


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
    def text(self) -> str:
        """Return all messages; one may come in blocks."""
        contents = [turn["content"] for turn in self.body["messages"]]
        return "\n".join(
            content if isinstance(content, str) else "".join(block["text"] for block in content) for content in contents
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_HTTP"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, json.loads(body or b"{}"))
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

    def stream(self, events: Iterable[Json]) -> None:
        """Answer with server-sent events."""
        lines = (f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.send(200, "".join(lines).encode(), "text/event-stream")

    def log_message(self, format: str, *args: object) -> None: ...


class _HTTP(ThreadingHTTPServer):
    daemon_threads = True
    owner: "Server"


Behaviour = Callable[[Request, Handler], None]


class Server:
    """Answer until the end of the `with` block; `requests` holds all questions in order."""

    def __init__(self, *behaviours: Behaviour, certificate: Path | None = None) -> None:
        self.behaviours = list(behaviours)
        self.requests: list[Request] = []
        self.over = threading.Event()  # set at the end: hanging answers then return
        self._lock = threading.Lock()
        self._http = _HTTP(("127.0.0.1", 0), Handler)
        self._http.owner = self
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    @property
    def url(self) -> str:
        """Return the base URL for the openai SDK; anthropic's is the part before /v1."""
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}/v1"

    def spec(self, provider: str, model: str = "toy") -> str:
        return f"{provider}:{model}@{self.url if provider == 'openai' else self.url.removesuffix('/v1')}"

    def next_behaviour(self, request: Request) -> Behaviour:
        with self._lock:
            self.requests.append(request)
            return self.behaviours[min(len(self.requests), len(self.behaviours)) - 1]

    def __enter__(self) -> "Server":
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()


def says(text: str, *, finish: str | None = None, usage: Json = MappingProxyType({})) -> Behaviour:
    """Answer with a text, in the API of the request; usage: counts of tokens beside the usual ones."""

    def behave(request: Request, handler: Handler) -> None:
        pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
        if request.is_anthropic:
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
            handler.stream(anthropic_events({"type": "text", "text": ""}, deltas, finish or "end_turn", usage))
        else:
            handler.stream(openai_events(pieces, finish or "stop", usage))

    return behave


def status(code: int, message: str = "no", **headers: str) -> Behaviour:
    """Answer with an error status, with headers such as retry_after."""
    error = {"type": "error", "error": {"type": "an_error", "message": message}}
    return lambda request, handler: handler.send(code, json.dumps(error).encode(), **headers)


def content(body: bytes, kind: str = "application/json") -> Behaviour:
    """Answer with these bytes, unchanged."""
    return lambda request, handler: handler.send(200, body, kind)


def hangs() -> Behaviour:
    """Accept the question and never answer."""

    def behave(request: Request, handler: Handler) -> None:
        handler.server.owner.over.wait(60)
        handler.close_connection = True

    return behave


def anthropic_events(block: Json, deltas: Iterable[Json], finish: str, usage: Json) -> Iterator[Json]:
    """Yield the events of a message of one block."""
    head = {"id": block.get("id", "m"), "type": "message", "role": "assistant", "model": "toy", "content": []}
    yield {"type": "message_start", "message": head | {"usage": {"input_tokens": TOKENS_IN, **usage}}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": finish}, "usage": {"output_tokens": TOKENS_OUT}}
    yield {"type": "message_stop"}


def openai_events(pieces: Iterable[str], finish: str, usage: Json) -> Iterator[Json]:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "toy"}
    for piece in pieces:
        yield chunk | {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
    yield chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    yield chunk | {"choices": [], "usage": {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT} | usage}
