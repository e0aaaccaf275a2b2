"""Run the server until Ctrl-C, which ends it at once, and drop the connections that would hold it up."""

import asyncio
import logging
import socket
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64  # a browser opens up to six for each site
SILENT_S, STALLED_S = 15.0, 30.0  # without a whole request; and without taking any of what was sent
KEEP_ALIVE_S = 15


class Connection(H11Protocol):
    """A connection that is aborted when its reader stalls, and when the server ends: a stream would never end."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline(SILENT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.flow.write_paused:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._clear_deadline()
        elif self._deadline is None:  # half a request ends the wait that uvicorn limits, and may never become whole
            self._set_deadline(SILENT_S)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_deadline(STALLED_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._clear_deadline()

    def shutdown(self) -> None:
        self.transport.abort()

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server(app: ASGIApp) -> uvicorn.Server:
    """Return a server that is quiet, trusts no proxy and waits for nothing when it ends."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Answer requests until Ctrl-C."""
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    with suppress(KeyboardInterrupt):  # which uvicorn raises again when it has ended
        server(app).run(sockets=[listening])


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for the message that streams were cut at Ctrl-C, which is what Ctrl-C is for."""
    return "graceful shutdown exceeded" not in record.getMessage()
