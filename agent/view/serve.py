"""Serve the page of a night on this machine alone: the standard library's server, which has this one page."""

import sqlite3
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from os import strerror
from socketserver import ThreadingTCPServer
from threading import Lock

from agent.errors import NightError
from agent.invocation import typed

LOOPBACK, HOSTS = "127.0.0.1", ("127.0.0.1", "localhost")  # a page of a foreign site may lead its own name to 127.0.0.1
PERIOD_S = 1.0
SHARE = 0.1  # share of a processor for drawing the page: what takes longer is drawn less often
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # a page cannot say this of itself
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingTCPServer):
    """Answer with the page as it is now; all who ask share one drawing, and it is drawn only if somebody asks."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port: int, draw: Callable[[], str]) -> None:
        """Listen on a port; 0 takes any free one. Raise NightError for a port that cannot be had."""
        self.drawing, self._draw, self._page, self._due_s = Lock(), draw, b"", 0.0
        try:
            super().__init__((LOOPBACK, port), Handler)
        except OSError as error:
            why, free = strerror(error.errno or 0), typed("serve", "--port", "0")
            raise NightError(f"port {port} cannot be had ({why}); take any free one with: {free}") from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def page(self) -> bytes:
        """Return the page, drawn again if the last drawing is old enough."""
        with self.drawing:
            began_s = time.monotonic()
            if began_s >= self._due_s:
                self._page = self._draw().encode()
                took_s = time.monotonic() - began_s
                self._due_s = began_s + max(PERIOD_S, took_s / SHARE)
            return self._page

    def run(self) -> None:
        """Answer until Ctrl-C, which a drawing under way delays."""
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            self.drawing.acquire()  # the process must not end in the middle of a drawing

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of readers that have gone."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    """Answer GET and HEAD of one path, under the names of this machine."""

    server: Server
    timeout = 60.0  # seconds for a reader that says nothing

    def do_GET(self) -> None:
        if self.headers.get("Host", "").split(":")[0] not in HOSTS:
            self.send_error(HTTPStatus.BAD_REQUEST)
        elif self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            try:
                self._answer(HTTPStatus.OK, "html", self.server.page())
            except (NightError, OSError, sqlite3.OperationalError) as error:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    do_HEAD = do_GET  # noqa: N815

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._answer(code, "plain", f"{message or HTTPStatus(code).phrase}\n".encode())

    def log_message(self, format: str, *args: object) -> None: ...

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response_only(code)
        length = {"Content-Type": f"text/{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**length, **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
