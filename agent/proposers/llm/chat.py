"""One question to a language model by an official SDK, bounded in time and size, and what a failure means.

The SDKs of the two providers come from one generator, so that their clients, errors and retries are alike; what
differs is in agent/proposers/llm/protocols.py.
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
# how the two providers, and those that imitate them, say that nothing is left to pay with
NO_MONEY = re.compile(
    r"insufficient_quota|billing_error|billing_hard_limit_reached|spend_limit_reached"
    r"|credit balance is too low|insufficient credits",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How much one question may take."""

    ask_s: float = 600.0  # until the whole reply is there, retries included
    wait_s: float = 60.0  # a server that asks to be left alone for longer is not waited for
    retries: int = 4  # by the SDK: after 429, 5xx and lost connections
    max_tokens: int = MAX_TOKENS  # of a reply, with what the model thinks before it
    rest_s: float = 1800.0  # for so long nobody is asked whose key or credit was refused


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    tokens_in: int | None  # as the server counts them; None where it does not
    tokens_out: int | None
    cut_off: bool = False  # at max_tokens, or where the context was full
    declined: bool = False  # the model, or a filter beside it, would not answer


class CallFailed(NightshiftError):
    """There is no reply, and why."""

    def __init__(self, sentence: str, *, lasting: bool = False, charged: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting  # key or money: asking again soon would be answered alike
        self.charged = charged  # the server may have worked for it


class Dialect(Protocol):
    """What differs between the SDKs."""

    def sdk(self) -> Any:
        """The module; raises MachineError where it is not installed."""
        ...

    def client(self, sdk: Any) -> Any: ...  # the class
    def method(self, client: Any) -> Any: ...  # what has create()
    def question(self, asked: Conversation, endpoint: Endpoint, max_tokens: int) -> dict[str, Any]: ...
    def stream_options(self) -> dict[str, Any]: ...
    def whole(self, answer: Any) -> Reply: ...
    def joined(self, events: Iterator[dict[str, Any]]) -> Reply: ...


class Chat:
    """Made for one question. close() from another thread ends it, at the latest when the server says something.

    Raises MachineError where the SDK is missing, or cannot be set up, as with a proxy that it does not understand.
    """

    def __init__(self, dialect: Dialect, endpoint: Endpoint, patience: Patience) -> None:
        sdk = dialect.sdk()
        self._dialect, self._endpoint, self._patience, self._sdk = dialect, endpoint, patience, sdk
        hooks = {"response": [_retries_within(patience.wait_s)]}
        try:
            self._client = dialect.client(sdk)(
                api_key=endpoint.key,
                base_url=endpoint.url,
                timeout=sdk.Timeout(patience.ask_s, connect=min(CONNECT_S, patience.ask_s)),
                max_retries=patience.retries,
                # a redirect would carry the key and the script to somebody else
                http_client=sdk.DefaultHttpxClient(follow_redirects=False, event_hooks=hooks),
            )
            self._method = dialect.method(self._client)  # the first time, an SDK takes seconds to import what it needs
        except Exception as error:  # of certificates, proxies and whatever else an environment may set
            said = endpoint.without_key(str(error), SAID_CHARS)
            raise MachineError(
                f"the {endpoint.provider} SDK cannot be set up ({said}); mend that and try again"
            ) from error

    def ask(self, asked: Conversation, *, stream: bool) -> Reply:
        """Raises CallFailed, or whatever an SDK and a server make of each other: see explained()."""
        question = self._dialect.question(asked, self._endpoint, self._patience.max_tokens)
        if not stream:
            with self._method.with_streaming_response.create(**question) as response:
                return self._dialect.whole(json.loads(_capped(response.iter_bytes())))
        with self._method.create(**question, **self._dialect.stream_options()) as events:
            return self._dialect.joined(event.to_dict(warnings=False) for event in events if hasattr(event, "to_dict"))

    def close(self) -> None:
        self._client.close()

    def explained(self, error: Exception) -> CallFailed:
        """What an exception means to the owner of the night."""
        if isinstance(error, CallFailed):
            return error
        host, sdk = self._endpoint.host, self._sdk
        cause = str(error.__cause__ or "")  # the SDK itself says no more than 'Connection error.'
        said = self._endpoint.without_key(cause or str(error) or type(error).__name__, SAID_CHARS)
        if isinstance(error, sdk.APIStatusError):
            return _refusal(error, said, self._endpoint)
        if isinstance(error, sdk.APITimeoutError):
            return CallFailed(f"{host} did not answer in time ({said})", charged=True)
        if isinstance(error, sdk.APIConnectionError):
            reached = not type(error.__cause__).__name__.startswith("Connect")  # of httpx: ConnectError, ConnectTimeout
            sentence = f"{host} cannot be reached ({said}); is the server running, and is the URL right?"
            return CallFailed(sentence, charged=reached)
        if isinstance(error, ValueError):  # of JSON and Unicode
            hint = f"is {self._endpoint.url} its base URL, which often ends in /v1?"
            return CallFailed(f"{host} answered with something other than JSON; {hint}", charged=True)
        return CallFailed(f"the call to {host} failed ({type(error).__name__}: {said})", charged=True)


def ask_in_time(
    chat: Chat, asked: Conversation, limit_s: float, stopped: Callable[[], bool], *, stream: bool = False
) -> Reply:
    """The reply; raises CallFailed. A call that takes too long, or that nobody waits for any more, is abandoned.

    It runs in a daemon thread, for nothing interrupts a socket that stays silent, nor the SDK's sleep before a retry.
    """
    outcomes: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcomes.put(chat.ask(asked, stream=stream))
        except Exception as error:  # whatever it is, the night goes on
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
    """None when the user stopped it, or at its end; but an answer that is there is taken, for it is paid for."""
    while True:
        try:
            return outcomes.get(timeout=max(0.0, min(POLL_S, end - time.monotonic())))
        except queue.Empty:
            if stopped() or time.monotonic() >= end:
                return None


def _retries_within(wait_s: float) -> Callable[[Any], None]:
    """A hook of the HTTP client that marks what is not worth a retry, in a header that both SDKs obey.

    By themselves they would ask again where the money is used up, and one sleeps as long as a server tells it to.
    """

    def mark(response: Any) -> None:
        if response.status_code >= 400:
            response.read()
            if NO_MONEY.search(response.text) or _asked_wait_s(response.headers) > wait_s:
                response.headers["x-should-retry"] = "false"

    return mark


def _asked_wait_s(headers: Mapping[str, str]) -> float:
    """Retry-After, in seconds or as a date; 0.0 without one."""
    said = headers.get("retry-after", "")
    try:
        return float(said)
    except ValueError:
        date = email.utils.parsedate_tz(said)
        return 0.0 if date is None else email.utils.mktime_tz(date) - time.time()


def _refusal(error: Any, said: str, endpoint: Endpoint) -> CallFailed:
    """Of a status code beyond 300."""
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
        return CallFailed(f"{host} is asked too often{later} ({said})")
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
    """Raises CallFailed for a reply, of so many bytes or characters up to now, that cannot be one."""
    if size > REPLY_BYTES:
        raise CallFailed(f"the answer has more than {REPLY_BYTES >> 20} MB", charged=True)
