"""The report page, live: a server on this machine that shows a night while it runs, and changes nothing.

One reader looks at the night for all clients, at most once a second, and not at all while there is none. A client hears
what the night does now as a small piece of HTML, and loads the page again in the background when its facts have
changed. A request names numbers, which are compared with those of the night; no part of it becomes part of a path.
"""

import asyncio
import errno
import json
import re
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.errors import NightError, NightshiftError
from agent.experiment import Attempt, Doing, Run, Work
from agent.git import Repo
from agent.invocation import typed
from agent.proposers.briefing import Curve
from agent.records.journal import Journal
from agent.records.place import Place, run_folder
from agent.records.reading import read_night
from agent.records.record import Home, Record
from agent.runs.outputs import read_progress
from agent.text import counted, duration, harmless_lines
from agent.view.answer import plain
from agent.view.live.follow import seconds_since
from agent.view.live.verdicts import progress_words, within_one
from agent.view.page.extras import gather
from agent.view.page.page import Curves, curves, file, page, templates
from agent.view.run_files import curve, log_tail
from agent.view.workers import in_order, workers_of_call

LOOPBACK, HOSTS = "127.0.0.1", ["127.0.0.1", "localhost"]  # a page of a foreign site may lead its own name to 127.0.0.1
PERIOD_S, HEARTBEAT_S = 1.0, 15.0
SHARE = 0.1  # of a processor for drawing the page: what takes longer is drawn less often
MOST_CONNECTIONS, KEEP_ALIVE_S = 64, 15  # a browser opens up to six for each site
DIFF_CHARS = 400_000
NUMBER, COMMIT = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9a-f]{40,64}")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
DOING = {
    Doing.REHEARSING: "is tried for a moment",
    Doing.TRAINING: "trains with seed {seed}",
    Doing.SCORING: "is scored",
    Doing.AUDITING: "is audited",
}


class NotThere(NightshiftError):
    """Say that there is no such attempt, run or file."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Name the night to show, and what is known of the process that runs it now."""

    place: Place
    tag: str
    is_running: bool
    until: str | None = None  # when its hours end: ISO 8601, UTC
    experiments: int | None = None  # the limit of its proposals


@dataclass(frozen=True, slots=True)
class Seen:
    """Hold a night as it was last read."""

    watched: Watched
    facts: Record
    version: int  # changes with the facts
    panel: str = ""  # what the night does now, as HTML
    title: str = ""


# ---- what the night does now -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """Hold what a worker does, as the panel shows it."""

    worker: str
    attempt: int
    title: str
    words: str
    fraction: float | None  # of the training; None where its end is not known
    pace: list[str]


def _job(seen: Seen, work: Work) -> Job:
    attempt, point = seen.facts.attempt(work.attempt), None
    if work.doing is Doing.TRAINING and work.seed is not None:
        folder = run_folder(seen.watched.place.folder(seen.facts.tag), work.attempt, work.seed)
        point = read_progress(folder / "out")
    elapsed_s = seconds_since(work.began)
    pace = [] if elapsed_s is None else [f"for {duration(elapsed_s / 3600)}"]
    return Job(
        work.worker,
        work.attempt,
        attempt.title if attempt is not None else "",
        DOING[work.doing].format(seed=work.seed) + (", to confirm it" if work.dawn else ""),
        None if point is None else within_one(point.fraction),
        pace if point is None else progress_words(point, seen.facts.budget_s),
    )


def _with_panel(seen: Seen, journal: Journal | None, notice: str | None) -> Seen:
    """Return the night with what it does now, as far as it runs here."""
    watched, facts = seen.watched, seen.facts
    is_read = watched.is_running and notice is None and journal is not None
    work = sorted(journal.work(), key=lambda job: in_order(job.worker)) if is_read and journal is not None else []
    workers = workers_of_call(journal) if is_read and journal is not None else 1
    jobs = [_job(seen, job) for job in work]
    alone = jobs[0] if len(jobs) == 1 and workers == 1 else None
    if not watched.is_running:
        state = f"Night {facts.tag} is not running"
    elif alone is not None:
        state = f"Attempt {alone.attempt} {alone.words}"
    else:
        state = f"{len(jobs)} of {max(workers, len(jobs))} workers busy" if jobs else "Asks for the next idea"
    log, losses = None, None
    if alone is not None and work[0].seed is not None:
        is_scoring = work[0].doing is Doing.SCORING
        log = log_tail(watched.place, facts.tag, alone.attempt, work[0].seed, scoring=is_scoring)
        losses = _losses(seen, alone.attempt, work[0].seed)
    panel = (
        templates()
        .get_template("live.html")
        .render(
            state=state,
            is_running=watched.is_running,
            left=" · ".join(_left(seen)) if watched.is_running else "",
            notice=notice,
            alone=alone,
            jobs=[] if alone is not None else jobs,
            why=facts.by_number[alone.attempt].proposal.hypothesis if alone is not None else "",
            log=log,
            losses=losses,
            best=facts.incumbent,
        )
    )
    share = f"{alone.fraction:.0%} " if alone is not None and alone.fraction is not None else ""
    at = f"{share}#{alone.attempt}" if alone is not None else f"{len(jobs)} at work" if jobs else ""
    return replace(seen, panel=panel, title=f"{at} · {facts.tag}" if at else f"{facts.tag}: {state}")


def _left(seen: Seen) -> list[str]:
    """Say what is left of the night, as far as it has limits."""
    limit, until = seen.watched.experiments, seen.watched.until
    words = [] if limit is None else [f"{counted(max(0, limit - len(seen.facts.ideas)), 'experiment')} left"]
    if until is None:
        return words
    left_s = datetime.fromisoformat(until).timestamp() - time.time()
    return [*words, f"{duration(max(0.0, left_s) / 3600)} left"]


def _losses(seen: Seen, number: int, seed: int) -> Curves | None:
    """Return the losses of a run beside those of the incumbent, by the same seed if it ran with it."""
    place, facts = seen.watched.place, seen.facts
    mine = curve(place, facts.tag, number, seed)
    best = facts.attempt(facts.incumbent) if facts.incumbent != number else None
    seeds = [run.seed for run in best.runs if run.val_bpb is not None] if best is not None else []
    others: Curve = ()
    if best is not None and seeds:
        others = _ended_curve(place, facts.tag, best.number, seed if seed in seeds else seeds[0])
    return curves(mine, others) if len(mine) > 1 else None


@lru_cache(maxsize=8)
def _ended_curve(place: Place, tag: str, number: int, seed: int) -> Curve:
    """Return the curve of a run that has ended, whose file does not change."""
    return curve(place, tag, number, seed)


# ---- the reader ------------------------------------------------------------------------------------------------------


class Feed:
    """Share one reader of the journal among all clients; it sleeps while there are none."""

    def __init__(self, follow: Callable[[], Watched], period_s: float = PERIOD_S) -> None:
        """Begin with a first reading; raise NightError where there is no night to show."""
        self._follow, self._period_s = follow, period_s
        self._thread = ThreadPoolExecutor(1)  # an open journal belongs to one thread
        self._journal: Journal | None = None
        self._path: Path | None = None  # of the open journal
        self._stamp: object = None
        self._due_s, self._page_due_s = 0.0, 0.0
        self._page: tuple[Record, str] | None = None
        self._reading, self._drawing = asyncio.Lock(), asyncio.Lock()
        watched = follow()
        self._seen = Seen(watched, read_night(watched.place, watched.tag), 1)

    async def latest(self) -> Seen:
        """Return the night as it is, read again if the last reading is old enough."""
        async with self._reading:
            if time.monotonic() >= self._due_s:
                self._seen = await asyncio.get_running_loop().run_in_executor(self._thread, self._read)
                self._due_s = time.monotonic() + self._period_s
            return self._seen

    async def page(self) -> str:
        """Return the page of the present version, or that of one a moment ago."""
        async with self._drawing:
            seen, began_s = await self.latest(), time.monotonic()
            drawn = self._page
            is_old = drawn is None or drawn[0] is not seen.facts
            if drawn is None or drawn[0].tag != seen.facts.tag or (is_old and began_s >= self._page_due_s):
                drawn = self._page = seen.facts, await asyncio.to_thread(_draw, seen)
                self._page_due_s = began_s + (time.monotonic() - began_s) / SHARE
            return drawn[1]

    async def events(self) -> AsyncIterator[str]:
        """Yield what a client has not heard yet."""
        heard, spoke_s = "", 0.0
        while True:
            seen = await self.latest()
            told = {"tag": seen.facts.tag, "version": seen.version, "title": seen.title, "panel": seen.panel}
            news = f"data: {json.dumps(told)}\n\n"
            if news != heard or time.monotonic() >= spoke_s + HEARTBEAT_S:
                yield news if news != heard else ": nothing new\n\n"
                heard, spoke_s = news, time.monotonic()
            await asyncio.sleep(self._period_s)

    def _read(self) -> Seen:
        seen, notice = self._seen, None
        try:
            watched = self._follow()
            stamp = watched.tag, self._data_version(watched)
            facts = seen.facts
            if stamp != self._stamp:
                facts = read_night(watched.place, watched.tag)
                if facts.home is Home.ROWS and facts.tag == seen.facts.tag and seen.facts.home is not Home.ROWS:
                    facts, notice = (
                        seen.facts,
                        f"the journal of night {facts.tag} was removed; this page shows its last",
                    )
            self._stamp = stamp
            changed = facts != seen.facts
            seen = replace(
                seen, watched=watched, facts=facts if changed else seen.facts, version=seen.version + changed
            )
        except (NightError, OSError, sqlite3.OperationalError) as error:
            notice = str(error)
        return _with_panel(seen, self._journal, notice)

    def _data_version(self, watched: Watched) -> object:
        """Return what differs after each commit to a night's journal; where it has none, after each change of rows."""
        path = watched.place.journal(watched.tag)
        if self._journal is not None:
            try:
                self._journal.check_in_place()
            except NightError:
                self._close()
        if path != self._path:
            self._close()
        if self._journal is None and path.exists():
            self._journal, self._path = Journal.read(path), path
        if self._journal is not None:
            return id(self._journal), self._journal.data_version()
        with suppress(OSError):
            return watched.place.ledger.stat().st_mtime_ns
        return None

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.__exit__(None, None, None)
            self._journal = None


def _draw(seen: Seen) -> str:
    return page(seen.facts, gather(seen.watched.place, seen.facts), live=file("live.js"), version=seen.version)


# ---- requests --------------------------------------------------------------------------------------------------------


def application(feed: Feed) -> ASGIApp:
    """Return the application: it answers GET and HEAD, under the names of this machine."""

    async def page_html(request: Request) -> Response:
        text = await feed.page()
        policy = POLICY.search(text)
        assert policy is not None, "a page has a policy"
        rules = policy[1].replace("&#39;", "'")
        headers = {"Content-Security-Policy": f"{rules}; frame-ancestors 'none'"}  # which a page itself cannot say
        return Response(text, media_type="text/html", headers=headers)

    async def facts_json(request: Request) -> Response:
        return JSONResponse(plain((await feed.latest()).facts))

    async def events(request: Request) -> Response:
        if request.method == "HEAD":  # the events themselves have no end
            return Response(media_type="text/event-stream")
        return StreamingResponse(feed.events(), media_type="text/event-stream")

    def of_attempt(name: str, answer: Callable[[Seen, Attempt, str | None], object]) -> Route:
        async def handle(request: Request) -> Response:
            seen, number = await feed.latest(), request.path_params["number"]
            attempt = seen.facts.attempt(int(number)) if NUMBER.fullmatch(number) else None
            if attempt is None or request.query_params.get("tag") not in (None, seen.facts.tag):
                raise NotThere(f"night {seen.facts.tag} has no attempt of this number")
            found = await asyncio.to_thread(answer, seen, attempt, request.query_params.get("seed"))
            return PlainTextResponse(found) if isinstance(found, str) else JSONResponse(found)

        return Route(f"/attempt/{{number}}/{name}", handle)

    routes = [Route("/", page_html), Route("/facts.json", facts_json), Route("/events", events)]
    routes += [of_attempt("log", _log), of_attempt("diff", _diff), of_attempt("curve", _curve)]
    middleware = [Middleware(_WithHeaders), Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={NightshiftError: _not_there})


class _WithHeaders:
    """Add the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_guarded)


async def _not_there(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 404)


def _log(seen: Seen, attempt: Attempt, seed: str | None) -> str:
    """Return the end of a run's log; where the file is gone, the last lines that the journal keeps."""
    place, tag = seen.watched.place, seen.facts.tag
    runs: tuple[Run, ...] = ()
    with suppress(NightError, OSError, IndexError), Journal.read(place.journal(tag)) as journal:
        runs = journal.attempt(attempt.number).runs  # the one that goes on among them
    chosen = _chosen(attempt, [run.seed for run in (runs or attempt.runs)], seed)
    tail = log_tail(place, tag, attempt.number, chosen)
    said = next((run.last_lines for run in reversed(runs) if run.seed == chosen), "")
    if tail is None and not said:
        raise NotThere(f"the log of attempt {attempt.number} with seed {chosen} is gone")
    return harmless_lines(said) if tail is None else tail


def _curve(seen: Seen, attempt: Attempt, seed: str | None) -> dict[str, object]:
    """Return the loss curve of a run: points of fraction of the budget and loss."""
    chosen = _chosen(attempt, [run.seed for run in attempt.runs], seed)
    points = curve(seen.watched.place, seen.facts.tag, attempt.number, chosen)
    return {"attempt": attempt.number, "seed": chosen, "points": points}


def _chosen(attempt: Attempt, seeds: list[int], asked: str | None) -> int:
    """Return the seed that was asked for, or that of the latest run."""
    known = {str(seed): seed for seed in seeds}
    if not known:
        raise NotThere(f"attempt {attempt.number} has not run yet")
    if asked is not None and asked not in known:
        raise NotThere(f"attempt {attempt.number} has no run with this seed; there are: {', '.join(known)}")
    return seeds[-1] if asked is None else known[asked]


def _diff(seen: Seen, attempt: Attempt, seed: str | None) -> str:
    """Return the edit of an attempt as a unified diff, cut where it is very long."""
    if attempt.parent is None:
        raise NotThere(f"attempt {attempt.number} is the script that the night began with")
    parent = seen.facts.attempt(attempt.parent)
    old, new = (one.commit or "" if one is not None else "" for one in (parent, attempt))
    if not (COMMIT.fullmatch(old) and COMMIT.fullmatch(new)):  # a record from elsewhere may hold anything
        raise NotThere(f"the commit of attempt {attempt.number} or of its parent is not known here")
    text = _diff_text(seen.watched.place.repo, old, new)
    cut = "" if len(text) <= DIFF_CHARS else "\n[... cut: the edit is longer ...]\n"
    return harmless_lines(text[:DIFF_CHARS]) + cut


@lru_cache(maxsize=64)
def _diff_text(repo: Repo, old: str, new: str) -> str:
    return repo.diff(old, new)


# ---- the server ------------------------------------------------------------------------------------------------------


def listen(port: int) -> socket.socket:
    """Return a socket that listens on this machine alone; port 0 takes any free one. Raise NightError without it."""
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else a restart waits for old connections
        listening.bind((LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        whose = "is reserved for the system" if error.errno == errno.EACCES else "is in use by another program"
        free = typed("serve", "--port", "0")
        raise NightError(f"port {port} {whose}; take any free one with: {free}") from error
    return listening


def server(app: ASGIApp) -> uvicorn.Server:
    """Return a server that is quiet, trusts no proxy and waits for nothing when it ends."""
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,  # streams have no end
    )
    return uvicorn.Server(config)


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Answer requests until Ctrl-C."""
    with suppress(KeyboardInterrupt):  # which uvicorn raises again when it has ended
        server(app).run(sockets=[listening])
