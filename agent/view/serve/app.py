"""Route requests: the page, the facts, the events, and what one attempt left. All of them only read."""

import asyncio
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from agent.errors import NightshiftError
from agent.view.facts.json import as_json
from agent.view.facts.nouns import AttemptFacts
from agent.view.serve.address import Address
from agent.view.serve.answers import attempt_named, curve_of, diff_of, log_of
from agent.view.serve.feed import Feed, Snapshot
from agent.view.serve.gate import Gate
from agent.view.serve.pages import compact, live_page, newer
from agent.view.serve.rendered import Rendered

AT_ONCE = 2  # readings of files and of git for one attempt, by all clients together


def application(feed: Feed, address: Address) -> ASGIApp:
    """Return the application behind its gate."""
    routes = [*_routes_of_the_night(feed), *_routes_of_attempts(feed)]
    return Gate(Starlette(routes=routes, exception_handlers={NightshiftError: _not_there}), address)


def _routes_of_the_night(feed: Feed) -> list[Route]:
    pages, states = Rendered(feed, live_page), Rendered(feed, newer)
    facts = Rendered(feed, lambda snapshot: compact(as_json(snapshot.facts)))

    async def page(request: Request) -> Response:
        made = await pages.latest()
        return Response(made.body, media_type="text/html", headers={"Content-Security-Policy": made.policy})

    async def state_json(request: Request) -> Response:
        return Response(await states.latest(), media_type="application/json")

    async def facts_json(request: Request) -> Response:
        return Response(await facts.latest(), media_type="application/json")

    async def events(request: Request) -> Response:
        if request.method == "HEAD":  # the events themselves have no end
            return Response(media_type="text/event-stream")
        return StreamingResponse(feed.events(), media_type="text/event-stream")

    return [
        Route("/", page),
        Route("/state.json", state_json),
        Route("/facts.json", facts_json),
        Route("/events", events),
    ]


def _routes_of_attempts(feed: Feed) -> list[Route]:
    slots = asyncio.Semaphore(AT_ONCE)

    def answering(name: str, answer: Callable[[Snapshot, AttemptFacts, str | None], object]) -> Route:
        async def handle(request: Request) -> Response:
            snapshot, asked = await feed.snapshot(), request.query_params
            attempt = attempt_named(snapshot.facts, request.path_params["number"], asked.get("tag"))
            async with slots:
                found = await asyncio.to_thread(answer, snapshot, attempt, asked.get("seed"))
            return PlainTextResponse(found) if isinstance(found, str) else JSONResponse(found)

        return Route(f"/attempt/{{number}}/{name}", handle)

    return [
        answering("log", log_of),
        answering("diff", lambda snapshot, attempt, seed: diff_of(snapshot, attempt)),
        answering("curve", curve_of),
    ]


async def _not_there(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 404)
