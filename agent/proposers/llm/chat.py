"""Ask a language model one question by an official SDK, with limits of time and size, and explain failures.

Both providers' SDKs come from one generator, so their clients, errors and retries are alike. Their differences are in
agent/proposers/llm/protocols.py.
"""

import email.utils
import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.errors import MachineError, NightshiftError
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.prompt import Conversation
from agent.text import SAID_CHARS

REPLY_BYTES = 4 << 20
MAX_TOKENS = 16_000
POLL_S = 0.1
CONNECT_S = 10.0
# how the two providers, and compatible servers, report an account without credit
NO_MONEY = re.compile(
    r"insufficient_quota|billing_error|billing_hard_limit_reached|spend_limit_reached"
    r"|credit balance is too low|insufficient credits",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Patience:
    """Limit how long one question may take and how large its reply may be."""

    ask_s: float = 600.0  # until the whole reply has arrived, retries included
    wait_s: float = 60.0  # if a server asks to wait longer, the call fails
    retries: int = 4  # by the SDK: after 429, 5xx and lost connections
    max_tokens: int = MAX_TOKENS  # of a reply, thinking included
    rest_s: float = 1800.0  # pause after a server has refused the key or reported no credit


@dataclass(frozen=True, slots=True)
class Reply:
    """Hold a model's reply and the server's counts of tokens."""

    text: str
    tokens_in: int | None  # as the server counts them, those of its cache included; None if it does not
    tokens_out: int | None
    cut_off: bool = False  # at max_tokens, or because the context was full
    declined: bool = False  # the model, or a filter, refused to answer
    tokens_cached: int | None = None  # of tokens_in, those that the server had in its cache; None if it does not say
    tokens_on_top: float = 0.0  # of input, that writing to the cache costs beside tokens_in


class CallFailed(NightshiftError):
    """Say why a call brought no reply."""

    def __init__(self, sentence: str, *, lasting: bool = False, charged: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting  # key or credit: asking again soon would fail, too
        self.charged = charged  # the call may have cost money


class ApiFormat(Protocol):
    """Translate a question and a reply for one provider's SDK."""

    most_for_input: float  # times the price of input, that a token of a question may cost

    def sdk(self) -> Any:
        """Import and return the SDK's module; raise MachineError if it is not installed."""
        ...

    def client(self, sdk: Any) -> Any: ...  # the SDK's class of clients
    def method(self, client: Any) -> Any: ...  # the client's object that has create()
    def question(self, asked: Conversation, endpoint: Endpoint, max_tokens: int) -> dict[str, Any]: ...
    def stream_options(self) -> dict[str, Any]: ...
    def whole(self, answer: Any) -> Reply: ...
    def joined(self, events: Iterator[dict[str, Any]]) -> Reply: ...


class Chat:
    """Ask one question. close() from another thread ends it, at the latest when the server sends something.

    Raise MachineError if the SDK is missing or cannot be set up, for example with an invalid proxy.
    """

    def __init__(self, api_format: ApiFormat, endpoint: Endpoint, patience: Patience) -> None:
        sdk = api_format.sdk()
        self._api_format, self._endpoint, self._patience, self._sdk = api_format, endpoint, patience, sdk
        hooks = {"response": [_retries_within(patience.wait_s)]}
        try:
            self._client = api_format.client(sdk)(
                api_key=endpoint.key,
                base_url=endpoint.url,
                timeout=sdk.Timeout(patience.ask_s, connect=min(CONNECT_S, patience.ask_s)),
                max_retries=patience.retries,
                # a redirect would send the key and the script to another server
                http_client=sdk.DefaultHttpxClient(follow_redirects=False, event_hooks=hooks),
            )
            self._method = api_format.method(self._client)  # imports more of the SDK, which takes seconds
        except Exception as error:  # caused by certificates, proxies and other settings of the environment
            said = endpoint.without_key(str(error), SAID_CHARS)
            raise MachineError(
                f"the {endpoint.provider} SDK cannot be set up ({said}); repair that and try again"
            ) from error

    def ask(self, asked: Conversation, *, stream: bool) -> Reply:
        """Return the reply; raise CallFailed, or any exception of the SDK, which explained() translates."""
        question = self._api_format.question(asked, self._endpoint, self._patience.max_tokens)
        if not stream:
            with self._method.with_streaming_response.create(**question) as response:
                return self._api_format.whole(json.loads(_capped(response.iter_bytes())))
        with self._method.create(**question, **self._api_format.stream_options()) as events:
            return self._api_format.joined(
                event.to_dict(warnings=False) for event in events if hasattr(event, "to_dict")
            )

    def close(self) -> None:
        self._client.close()

    def explained(self, error: Exception) -> CallFailed:
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


def ask_in_time(
    chat: Chat, asked: Conversation, limit_s: float, stopped: Callable[[], bool], *, stream: bool = False
) -> Reply:
    """Return the reply; raise CallFailed after limit_s, or soon after the night was asked to stop.

    The call runs in a daemon thread, because a silent socket and the SDK's sleep before a retry cannot be interrupted.
    """
    outcomes: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcomes.put(chat.ask(asked, stream=stream))
        except Exception as error:  # no failure of an SDK may end the night
            outcomes.put(error)

    end = time.monotonic() + limit_s
    try:
        threading.Thread(target=work, name="question to a language model", daemon=True).start()
        outcome = _wait(outcomes, end, stopped)
    finally:
        chat.close()
    if outcome is None:
        why = "the night was asked to stop before the answer came" if stopped() else f"no answer within {limit_s:g} s"
        raise CallFailed(why, charged=True)
    if isinstance(outcome, Exception):
        raise chat.explained(outcome) from outcome
    return outcome


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
        hint = f"check {variable}"
        if endpoint.key_withheld:
            hint = f"{variable} is not sent over plain http to another machine: give an https:// URL"
        return CallFailed(f"{host} does not accept the key ({said}); {hint}", lasting=True)
    if status == 404:
        return CallFailed(f"{host} knows no model {endpoint.model}, or nothing is at {endpoint.url} ({said})")
    if status == 429:
        return CallFailed(f"{host} gets too many requests{later} ({said})")
    if status >= 500:
        return CallFailed(f"{host} is out of order{later} ({said})")
    return CallFailed(f"{host} does not take the question ({said})")


def _capped(chunks: Iterable[bytes]) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        check_answer_size(len(body))
    return bytes(body)


def check_answer_size(size: int) -> None:
    """Raise CallFailed if a reply, of this many bytes or characters so far, is too large."""
    if size > REPLY_BYTES:
        raise CallFailed(f"the answer has more than {REPLY_BYTES >> 20} MB", charged=True)
