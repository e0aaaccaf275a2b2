"""Decide which requests are answered: read-only, to this server by its own name, and with the token if one is asked."""

import secrets
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.view.serve.address import Address

METHODS = ("GET", "HEAD")
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"  # a policy for non-pages
HEADERS = {
    "Content-Security-Policy": NOTHING,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Loaded by this page itself, a browser sends the cookie. A redirect would not do: a cookie that is SameSite=Strict
# stays away from one that began with a link on another site.
GO_ON = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>nightshift</title><a href="/">Go on</a>'


class Gate:
    """Wrap an application: refuse what may not be asked, and add the headers that every answer has."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self._app, self._address = app, address
        self._cookie = f"nightshift-{address.port}"  # cookies do not tell ports of one machine apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that goes no further; None for one that does."""
        if request.method not in METHODS:
            return _refusal(405, "this server only shows a night: GET and HEAD", Allow=", ".join(METHODS))
        hosts = self._address.hosts
        if hosts is not None and request.headers.get("host", "").lower() not in hosts:
            return _refusal(421, f"this server is known as http://127.0.0.1:{self._address.port}/ only; open that")
        # A page of another site asks for something in the background; a link to this page is allowed.
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.url.path != "/":
            return _refusal(403, "other sites may only link to this page")
        return None if self._address.token is None else self._without_token(request, self._address.token)

    def _without_token(self, request: Request, token: str) -> Response | None:
        given = request.query_params.get("token")
        if not _equal(given if given is not None else request.cookies.get(self._cookie, ""), token):
            return _refusal(401, "this page needs its token: open the whole address that nightshift serve printed")
        if given is None or request.url.path != "/":
            return None
        opened = HTMLResponse(GO_ON)
        opened.set_cookie(self._cookie, token, httponly=True, samesite="strict")
        return opened


def _equal(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(errors="surrogatepass"), token.encode(errors="surrogatepass"))


def _refusal(status: int, sentence: str, **headers: str) -> Response:
    return PlainTextResponse(f"{sentence}\n", status, headers)
