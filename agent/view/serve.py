"""Serve the report as a live page on this machine: it shows a night while it runs, and changes nothing.

One reader looks at the night for all clients, at most once a second, and not at all while there is none. A client hears
what the night does now as a small piece of HTML, and loads the page again in the background when its facts have
changed. A request names a number, which is compared with those of the night; no part of it becomes part of a path.
"""

import asyncio
import json
import os
import re
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from agent.errors import NightError
from agent.experiment import Work
from agent.invocation import typed
from agent.proposers.source import Left
from agent.records.journal import Journal
from agent.records.place import Place, read_night
from agent.records.record import Record
from agent.view.answer import in_order
from agent.view.charts import file
from agent.view.page import gather, page, template
from agent.view.run_files import Curve, curve, log_tail, training_progress
from agent.view.words import doing_words, pace_words, within_one

LOOPBACK, HOSTS = "127.0.0.1", ["127.0.0.1", "localhost"]  # a page of a foreign site may lead its own name to 127.0.0.1
PERIOD_S = 1.0
SHARE = 0.1  # of a processor for drawing the page: what takes longer is drawn less often
NUMBER = re.compile(r"[0-9]{1,9}")
NO_FRAMES, NOTHING = "frame-ancestors 'none'", "default-src 'none'; frame-ancestors 'none'"
HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]


@dataclass(frozen=True, slots=True)
class Watched:
    """Name the night to show; left: where it runs now, what is left of it, by the number of its ideas."""

    place: Place
    tag: str
    left: Callable[[int], Left] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Hold a night as it was last read."""

    watched: Watched
    record: Record
    version: int = 1  # changes with the record
    panel: str = ""  # what the night does now, as HTML


# ---- what the night does now -----------------------------------------------------------------------------------------


def panel(watched: Watched, record: Record, work: Sequence[Work], notice: str | None) -> str:
    """Return what a night does now as HTML."""
    log, losses = None, None
    if len(work) == 1 and (seed := work[0].seed) is not None:
        log = log_tail(watched.place, record.tag, work[0].attempt, seed)
        losses = _losses(watched.place, record, work[0].attempt, seed)
    return template("live.html").render(
        tag=record.tag,
        best=record.incumbent,
        left=watched.left and watched.left(len(record.ideas)),
        jobs=[_job(watched.place, record, job) for job in sorted(work, key=lambda job: in_order(job.worker))],
        notice=notice,
        log=log,
        losses=losses,
    )


def _job(place: Place, record: Record, work: Work) -> dict[str, Any]:
    """Return what a worker does, as the panel shows it."""
    point = training_progress(place.folder(record.tag), work)
    return {
        "work": work,
        "doing": doing_words(work),
        "attempt": record.attempt(work.attempt),  # None where it was begun after the record was read
        "fraction": None if point is None else within_one(point.fraction),  # None where its end is not known
        "pace": pace_words(point, record.budget_s, work.began),
    }


def _losses(place: Place, record: Record, number: int, seed: int) -> tuple[Curve, Curve] | None:
    """Return the losses of a run, and the incumbent's, by the same seed if it ran with it."""
    losses, others, best = curve(place, record.tag, number, seed), Curve(), record.best
    if best is not None and best.number != number:
        others = curve(place, record.tag, best.number, seed) or curve(place, record.tag, best.number, best.runs[0].seed)
    return (losses, others) if len(losses) > 1 else None


# ---- the reader ------------------------------------------------------------------------------------------------------


class Feed:
    """Share one reader of the journal among all clients; it sleeps while there are none."""

    def __init__(self, follow: Callable[[], Watched], period_s: float = PERIOD_S) -> None:
        """Begin with a first reading; raise NightError where there is no night to show."""
        self._follow, self._period_s = follow, period_s
        self._stamp: tuple[str, tuple[int, ...] | None] | None = None  # its tag, and what its journal counted
        self._due_s, self._page_due_s = 0.0, 0.0
        self._reading, self._drawing = asyncio.Lock(), asyncio.Lock()
        watched = follow()
        self._seen = Seen(watched, read_night(watched.place, watched.tag))
        self._page = replace(self._seen, version=0), ""

    async def latest(self) -> Seen:
        """Return the night as it is, read again if the last reading is old enough."""
        async with self._reading:
            if time.monotonic() >= self._due_s:
                self._seen = await asyncio.to_thread(self._read)
                self._due_s = time.monotonic() + self._period_s
            return self._seen

    async def page(self) -> str:
        """Return the page of the present version, or that of one a moment ago."""
        async with self._drawing:
            seen, began_s, (drawn, html) = await self.latest(), time.monotonic(), self._page
            is_due = drawn.version != seen.version and began_s >= self._page_due_s
            if is_due or drawn.record.tag != seen.record.tag:
                html = await asyncio.to_thread(_draw, seen)
                self._page, self._page_due_s = (seen, html), began_s + (time.monotonic() - began_s) / SHARE
            return html

    async def events(self) -> AsyncIterator[str]:
        """Yield what a client shows, in each period: a client that has gone is noticed by that."""
        while True:
            seen = await self.latest()
            yield f"data: {json.dumps({'tag': seen.record.tag, 'version': seen.version, 'panel': seen.panel})}\n\n"
            await asyncio.sleep(self._period_s)

    def _read(self) -> Seen:
        watched, record, version = self._seen.watched, self._seen.record, self._seen.version
        work, notice, stamp = tuple[Work, ...](), None, None
        try:
            watched = self._follow()
            path = watched.place.journal(watched.tag)
            if path.exists():
                with Journal.read(path) as journal:
                    stamp = journal.changes()
                    work = journal.work() if watched.left is not None else ()
            if self._stamp != (watched.tag, stamp):  # which raises where the journal was removed
                record, version = read_night(watched.place, watched.tag), version + 1
                self._stamp = watched.tag, stamp
        except (NightError, OSError, sqlite3.OperationalError) as error:
            notice = str(error)
        return Seen(watched, record, version, panel(watched, record, work, notice))


def _draw(seen: Seen) -> str:
    extras = gather(seen.watched.place, seen.record)
    return page(seen.record, extras, live=file("live.js"), version=seen.version)


# ---- requests --------------------------------------------------------------------------------------------------------


def application(feed: Feed) -> ASGIApp:
    """Return the application: it answers GET and HEAD, under the names of this machine."""

    async def page_html(request: Request) -> Response:
        # the page itself says what it may load, but it cannot say who may frame it
        return HTMLResponse(await feed.page(), headers={"Content-Security-Policy": NO_FRAMES})

    async def events(request: Request) -> Response:
        if request.method == "HEAD":  # the events themselves have no end
            return Response(media_type="text/event-stream")
        return StreamingResponse(feed.events(), media_type="text/event-stream")

    async def log(request: Request) -> Response:
        text = await asyncio.to_thread(_log, await feed.latest(), request.path_params["number"])
        status = 200 if text is not None else 404
        body = text if text is not None else "there is no such log here\n"
        return PlainTextResponse(body, status, {"Content-Security-Policy": NOTHING})

    routes = {"/": page_html, "/events": events, "/attempt/{number}/log": log}
    return Starlette(
        routes=[Route(path, answer) for path, answer in routes.items()],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
    )


def _log(seen: Seen, number: str) -> str | None:
    """Return the end of the log of an attempt's latest run; None where it is not here."""
    attempt = seen.record.attempt(int(number)) if NUMBER.fullmatch(number) else None
    if attempt is None or not attempt.runs:
        return None
    return log_tail(seen.watched.place, seen.record.tag, attempt.number, attempt.runs[-1].seed)


# ---- the server ------------------------------------------------------------------------------------------------------


def listen(port: int) -> socket.socket:
    """Return a socket that listens on this machine alone; port 0 takes any free one. Raise NightError without it."""
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        why, free = os.strerror(error.errno or 0), typed("serve", "--port", "0")
        raise NightError(f"port {port} cannot be had ({why}); take any free one with: {free}") from error


def server(app: ASGIApp) -> uvicorn.Server:
    """Return a server that is quiet, trusts no proxy and waits for nothing when it ends."""
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_level="critical",
        headers=HEADERS,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=64,  # connections; a browser opens up to six for each site
        timeout_graceful_shutdown=1,  # streams have no end
    )
    return uvicorn.Server(config)


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Answer requests until Ctrl-C."""
    with suppress(KeyboardInterrupt):  # which uvicorn raises again when it has ended
        server(app).run(sockets=[listening])
