"""Ask a language model one question by an official SDK, with limits of time and size, and explain failures.

Both providers' SDKs come from one generator, so their clients, errors and retries are alike. Their differences are in
agent/proposers/llm/protocols.py.
"""

import email.utils
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any

from agent.errors import MachineError
from agent.invocation import command_for
from agent.proposers.llm.endpoint import NO_MONEY, Endpoint
from agent.proposers.llm.prompt import Conversation
from agent.proposers.llm.protocols import API_FORMATS, REPLY_BYTES, CallFailed, Event, Reply
from agent.text import SAID_CHARS

MAX_TOKENS = 16_000
POLL_S = 0.1
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Limit how long one question may take and how large its reply may be."""

    ask_s: float = 600.0  # until the whole reply has arrived, retries included
    wait_s: float = 60.0  # if a server asks to wait longer, the call fails
    retries: int = 4  # by the SDK: after 429, 5xx and lost connections
    max_tokens: int = MAX_TOKENS  # of a reply, thinking included
    rest_s: float = 1800.0  # pause after a server has refused the key or reported no credit


class Chat:
    """Ask one question.

    Raise MachineError if the SDK is missing or cannot be set up, for example with an invalid proxy.
    """

    def __init__(self, endpoint: Endpoint, patience: Patience) -> None:
        self._endpoint, self._patience, provider = endpoint, patience, endpoint.provider
        self._api_format = API_FORMATS[provider]
        try:
            self._sdk = sdk = import_module(provider)
        except ImportError as error:
            raise MachineError(f"the {provider} SDK is not installed; run: {command_for(provider)}") from error
        hooks = {"response": [_retries_within(patience.wait_s)]}
        try:
            self.client = getattr(sdk, self._api_format.client)(
                api_key=endpoint.key,
                base_url=endpoint.url,
                timeout=sdk.Timeout(patience.ask_s, connect=min(CONNECT_S, patience.ask_s)),
                max_retries=patience.retries,
                # a redirect would send the key and the script to another server
                http_client=sdk.DefaultHttpxClient(follow_redirects=False, event_hooks=hooks),
            )
            self._method = attrgetter(self._api_format.method)(self.client)  # imports more, which takes seconds
        except Exception as error:  # caused by certificates, proxies and other settings of the environment
            said = endpoint.without_key(str(error), SAID_CHARS)
            raise MachineError(f"the {provider} SDK cannot be set up ({said}); repair that and try again") from error

    def ask(self, asked: Conversation, limit_s: float, stopped: Callable[[], bool], *, stream: bool = False) -> Reply:
        """Return the reply; raise CallFailed after limit_s, or soon after the night was asked to stop.

        The call runs in a daemon thread, because a silent socket and the SDK's sleep before a retry cannot be
        interrupted. Closing the client ends it, at the latest when the server sends something.
        """
        outcomes: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                outcomes.put(self._reply(asked, stream=stream))
            except Exception as error:  # no failure of an SDK may end the night
                outcomes.put(error)

        end = time.monotonic() + limit_s
        try:
            threading.Thread(target=work, name="question to a language model", daemon=True).start()
            outcome = _wait(outcomes, end, stopped)
        finally:
            self.client.close()
        if outcome is None:
            why = "the night was asked to stop before the answer came" if stopped() else f"no answer in {limit_s:g} s"
            raise CallFailed(why, charged=True)
        if isinstance(outcome, Exception):
            raise self._explained(outcome) from outcome
        return outcome

    def _reply(self, asked: Conversation, *, stream: bool) -> Reply:
        question = self._api_format.question(asked, self._endpoint, self._patience.max_tokens)
        options = self._api_format.streaming if stream else {}
        with self._method.with_streaming_response.create(**question, **options) as response:
            chunks = _capped(response.iter_bytes())
            return self._api_format.read(_events(chunks) if stream else [_event(b"".join(chunks))])

    def _explained(self, error: Exception) -> CallFailed:
        """Translate an exception into a CallFailed with a sentence for the owner of the night."""
        if isinstance(error, CallFailed):
            return error
        host, sdk = self._endpoint.host, self._sdk
        cause = str(error.__cause__ or "")  # the SDK's own message is only 'Connection error.'
        said = self._endpoint.without_key(cause or str(error) or type(error).__name__, SAID_CHARS)
        if isinstance(error, sdk.APIStatusError):
            return _refusal(error, said, self._endpoint)
        if isinstance(error, sdk.APITimeoutError):
            return CallFailed(f"{host} did not answer in time ({said})", charged=True)
        if isinstance(error, sdk.APIConnectionError):
            reached = not type(error.__cause__).__name__.startswith("Connect")  # httpx's ConnectError, ConnectTimeout
            sentence = f"{host} cannot be reached ({said}); is the server running, and is the URL right?"
            return CallFailed(sentence, charged=reached)
        if isinstance(error, ValueError):  # from JSON or Unicode decoding
            hint = f"is {self._endpoint.url} its base URL, which often ends in /v1?"
            return CallFailed(f"{host} answered with something other than JSON; {hint}", charged=True)
        return CallFailed(f"the call to {host} failed ({type(error).__name__}: {said})", charged=True)


def _wait(
    outcomes: "queue.SimpleQueue[Reply | Exception]", end: float, stopped: Callable[[], bool]
) -> Reply | Exception | None:
    """Wait for the outcome; return None on a stop or at the end of time, unless a reply has already arrived."""
    while True:
        try:
            return outcomes.get(timeout=max(0.0, min(POLL_S, end - time.monotonic())))
        except queue.Empty:
            if stopped() or time.monotonic() >= end:
                return None


def _capped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks of an answer; raise CallFailed if they are too large together."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > REPLY_BYTES:
            raise CallFailed(f"the answer has more than {REPLY_BYTES >> 20} MB", charged=True)
        yield chunk


def _events(chunks: Iterable[bytes]) -> Iterator[Event]:
    """Yield the server-sent events of a stream; a line may come in several chunks."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            said = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and said != b"[DONE]":
                yield _event(said)


def _event(content: bytes) -> Event:
    found = json.loads(content)
    return found if isinstance(found, dict) else {}


def _retries_within(wait_s: float) -> Callable[[Any], None]:
    """Return a hook of the HTTP client that forbids useless retries, by a header that both SDKs obey.

    Otherwise both would ask again without credit, and one would sleep as long as a server asks.
    """

    def mark(response: Any) -> None:
        if response.status_code >= 400:
            response.read()
            if NO_MONEY.search(response.text) or _asked_wait_s(response.headers) > wait_s:
                response.headers["x-should-retry"] = "false"

    return mark


def _asked_wait_s(headers: Mapping[str, str]) -> float:
    """Return the seconds of a Retry-After header, given as a number or a date; 0.0 without one."""
    said = headers.get("retry-after", "")
    try:
        return float(said)
    except ValueError:
        date = email.utils.parsedate_tz(said)
        return 0.0 if date is None else email.utils.mktime_tz(date) - time.time()


def _refusal(error: Any, said: str, endpoint: Endpoint) -> CallFailed:
    """Return the failure for a reply with an HTTP status of 300 or more."""
    host, status, variable = endpoint.host, error.status_code, endpoint.key_variable
    wait_s = _asked_wait_s(error.response.headers)
    later = f" and asks to wait {wait_s:.0f} s" if wait_s > 0 else ""
    if status == 402 or NO_MONEY.search(f"{error.body} {error}"):
        return CallFailed(f"{host} says that the account of {variable} has no credit left ({said})", lasting=True)
    if status in (401, 403):
        hint = endpoint.warning or f"check {variable}"
        return CallFailed(f"{host} does not accept the key ({said}); {hint}", lasting=True)
    if status == 404:
        return CallFailed(f"{host} knows no model {endpoint.model}, or nothing is at {endpoint.url} ({said})")
    what = "gets too many requests" if status == 429 else "is out of order" if status >= 500 else ""
    return CallFailed(f"{host} {what}{later} ({said})" if what else f"{host} does not take the question ({said})")
