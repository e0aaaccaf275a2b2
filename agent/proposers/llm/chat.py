"""Ask a language model one question by an official SDK, with limits of time and size, and explain failures.

Two APIs are spoken: OpenAI's chat completions, which many other servers offer, and Anthropic's messages. Both SDKs come
from one generator, so their clients, errors and retries are alike. They do not check a server's reply, and servers
differ in which fields may be missing or empty. So replies are read as plain JSON here: a whole one is read as a stream
of one event.
"""

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any

from agent.errors import MachineError, NightshiftError
from agent.invocation import command_for
from agent.proposers.author.pages import Conversation
from agent.proposers.llm.endpoint import Endpoint

MAX_TOKENS = 16_000
REPLY_BYTES, REFUSAL_BYTES = 4 << 20, 64 << 10  # of an answer; of a refusal as it is sent, which may be compressed
POLL_S = 0.1
CONNECT_S = 10.0
CLIENTS = {"openai": "OpenAI", "anthropic": "Anthropic"}
METHODS = {"openai": "chat.completions", "anthropic": "messages"}
# The cost of a token that the server writes to its cache, in tokens of input, by how long the server keeps it.
# These are Anthropic's prices. OpenAI's format can count such tokens, too, as servers do that pass Anthropic's on.
MINUTES_5, HOUR = 1.25, 2.0
# how the two providers, and compatible servers, report an account without credit
NO_MONEY = re.compile(
    r"insufficient_quota|billing_error|billing_hard_limit_reached|spend_limit_reached"
    r"|credit balance is too low|insufficient credits",
    re.IGNORECASE,
)
# seconds: a server that asks to wait longer, or until a date, is not asked again for this idea
SHORT_WAIT = re.compile(r"\d{1,2}(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Patience:
    """Limit how long one question may take and how large its reply may be."""

    ask_s: float = 600.0  # until the whole reply has arrived, retries included
    retries: int = 4  # by the SDK: after 429, 5xx and lost connections
    max_tokens: int = MAX_TOKENS  # of a reply, thinking included
    rest_s: float = 1800.0  # pause after a server has refused the key or reported no credit


class CallFailed(NightshiftError):
    """Say why a call brought no reply."""

    def __init__(self, sentence: str, *, lasting: bool = False, charged: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting  # key or credit: asking again soon would fail, too
        self.charged = charged  # the call may have cost money


@dataclass(frozen=True, slots=True)
class Reply:
    """Hold a model's reply and the server's counts of tokens; None for those that it does not count."""

    text: str = ""
    tokens_in: int | None = None  # those of its cache included
    tokens_out: int | None = None
    tokens_cached: int | None = None  # of tokens_in, those that the server had in its cache
    tokens_written: int = 0  # of tokens_in, those that the server put into its cache
    cut_off: bool = False  # at max_tokens, or because the context was full
    declined: bool = False  # the model, or a filter, refused to answer


def cache_price(endpoint: Endpoint) -> float:
    """Return what a token that the server puts into its cache costs, in tokens of input; no other costs more."""
    return HOUR if endpoint.provider == "anthropic" and endpoint.is_home else MINUTES_5


def client_of(endpoint: Endpoint, patience: Patience) -> Any:
    """Return a client of the provider's SDK.

    Raise MachineError if the SDK is missing or cannot be set up, for example with an invalid proxy.
    """
    provider = endpoint.provider
    try:
        sdk = import_module(provider)
    except ImportError as error:
        raise MachineError(f"the {provider} SDK is not installed; run: {command_for(provider)}") from error
    try:
        client = getattr(sdk, CLIENTS[provider])(
            api_key=endpoint.key,
            base_url=endpoint.url,
            timeout=sdk.Timeout(patience.ask_s, connect=min(CONNECT_S, patience.ask_s)),
            max_retries=patience.retries,
            # a redirect would send the key and the script to another server
            http_client=sdk.DefaultHttpxClient(follow_redirects=False, event_hooks={"response": [_limit_refusal]}),
        )
        attrgetter(METHODS[provider])(client)  # imports more, which takes seconds
    except Exception as error:  # caused by certificates, proxies and other settings of the environment
        said = endpoint.without_key(str(error))
        raise MachineError(f"the {provider} SDK cannot be set up ({said}); repair that and try again") from error
    return client


def _limit_refusal(response: Any) -> None:
    """Read the beginning of a refusal alone, and forbid useless retries, by a header that both SDKs obey.

    Else both would read all that a server sends, would ask again without credit, and one would sleep as long as a
    server asks.
    """
    if not response.is_success:
        response.iter_raw = partial(_beginning, response.iter_raw)
        response.read()
        if NO_MONEY.search(response.text) or not SHORT_WAIT.fullmatch(response.headers.get("retry-after", "0")):
            response.headers["x-should-retry"] = "false"


def _beginning(read: Callable[..., Iterable[bytes]], chunk_size: int | None = None) -> Iterator[bytes]:
    size = 0
    for chunk in read(chunk_size):
        yield chunk
        size += len(chunk)
        if size > REFUSAL_BYTES:
            return


def ask(
    endpoint: Endpoint, patience: Patience, asked: Conversation, stopped: Callable[[], bool], *, stream: bool
) -> Reply:
    """Return the reply; raise CallFailed after patience.ask_s, or soon after the night was asked to stop.

    The call runs in a daemon thread, because a silent socket and the SDK's sleep before a retry cannot be interrupted.
    Closing the client ends it, at the latest when the server sends something.
    """
    client, end, outcome = client_of(endpoint, patience), time.monotonic() + patience.ask_s, Future[Reply]()

    def work() -> None:
        try:
            create = attrgetter(METHODS[endpoint.provider])(client).with_streaming_response.create
            with create(**question(asked, endpoint, patience.max_tokens, stream=stream)) as response:
                chunks = _capped(response.iter_bytes())
                outcome.set_result(_read(_events(chunks) if stream else [_event(b"".join(chunks))]))
        except Exception as error:  # no failure of an SDK may end the night
            outcome.set_exception(error)

    threading.Thread(target=work, name="question to a language model", daemon=True).start()
    try:
        while not (done := wait([outcome], POLL_S).done) and not stopped() and time.monotonic() < end:
            pass
    finally:
        client.close()
    if not done:
        late = f"no answer in {patience.ask_s:g} s"
        why = "the night was asked to stop before the answer came" if stopped() else late
        raise CallFailed(why, charged=True)
    if (error := outcome.exception()) is not None:
        raise _explained(error, endpoint) from error
    return outcome.result()


# ---- the question ----------------------------------------------------------------------------------------------------


def question(asked: Conversation, endpoint: Endpoint, max_tokens: int, *, stream: bool = False) -> dict[str, Any]:
    """Return the arguments of the SDK's method for one question."""
    roles = itertools.cycle(["user", "assistant"])
    messages: list[dict[str, Any]] = [
        {"role": role, "content": text} for role, text in zip(roles, asked.messages, strict=False)
    ]
    common = {"model": endpoint.model, "stream": stream}
    if endpoint.provider == "openai":
        # OpenAI's newer models refuse the old name, and many other servers do not know the new one
        limit = "max_completion_tokens" if endpoint.is_home else "max_tokens"
        counted = {"stream_options": {"include_usage": True}} if stream else {}
        return {
            **common,
            **counted,
            limit: max_tokens,
            "messages": [{"role": "system", "content": asked.system}, *messages],
        }
    if 0 < asked.stable_chars < len(messages[0]["content"]):
        # A night asks about once a run, which mostly takes more than the five minutes that a cache lasts by default.
        kept = {"type": "ephemeral"} | ({"ttl": "1h"} if endpoint.is_home else {})  # which not every server knows
        text, end = messages[0]["content"], asked.stable_chars
        stable = {"type": "text", "text": text[:end], "cache_control": kept}
        messages[0]["content"] = [stable, {"type": "text", "text": text[end:]}]
    return {**common, "max_tokens": max_tokens, "system": asked.system, "messages": messages}


# ---- the reply -------------------------------------------------------------------------------------------------------


def _capped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks of an answer; raise CallFailed if they are too large together."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > REPLY_BYTES:
            raise CallFailed(f"the answer has more than {REPLY_BYTES >> 20} MB", charged=True)
        yield chunk


def _events(chunks: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Yield the server-sent events of a stream; a line may come in several chunks."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            content = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and content != b"[DONE]":
                yield _event(content)


def _event(content: bytes) -> Mapping[str, Any]:
    event = json.loads(content)
    return event if isinstance(event, dict) else {}


def _read(events: Iterable[Mapping[str, Any]]) -> Reply:
    """Read the events of either API; raise CallFailed for an answer that broke off, or is an error or none."""
    text, finish = "", None
    usage: dict[str, Any] = {}
    for event in events:
        match event:
            case {"error": error} if error:  # which a server (OpenRouter, for one) reports with a status of success
                code = error.get("code") if isinstance(error, dict) else None
                lasting = code in (401, 402, 403) or NO_MONEY.search(str(error)) is not None
                # not cut here: a key is looked for in the whole
                raise CallFailed(f"the server reports an error ({error})", lasting=lasting, charged=not lasting)
            case {"choices": [{"message": dict(message)} as choice, *_]}:
                text, finish = _text(message, "content"), choice.get("finish_reason") or "stop"
            case {"content": [*parts]}:
                text, finish = _text(parts), event.get("stop_reason") or "end_turn"
            case {"choices": [{"delta": delta} as choice, *_]}:
                text += _text(delta, "content")
                finish = choice.get("finish_reason") or finish
            case {"type": "content_block_delta", "delta": delta}:
                text += _text(delta)
            case {"type": "message_delta", "delta": {"stop_reason": reason}}:
                finish = reason or finish
        for part in (event, event.get("message")):
            counts = part.get("usage") if isinstance(part, dict) else None
            usage |= counts if isinstance(counts, dict) else {}
    if finish is None:
        raise CallFailed("the answer broke off, or is none of this API: is the provider the right one?", charged=True)
    details = usage.get("prompt_tokens_details")
    usage |= details if isinstance(details, dict) else {}
    cached = _count(usage, "cached_tokens", "cache_read_input_tokens")
    written = _count(usage, "cache_write_tokens", "cache_creation_input_tokens") or 0
    tokens_in = _count(usage, "prompt_tokens")
    if tokens_in is None and (uncached := _count(usage, "input_tokens")) is not None:
        tokens_in = uncached + (cached or 0) + written  # which Anthropic's API counts apart
    return Reply(
        text,
        tokens_in,
        _count(usage, "completion_tokens", "output_tokens"),
        tokens_cached=None if cached is None or tokens_in is None else min(cached, tokens_in),
        tokens_written=min(written, tokens_in or 0),
        cut_off=finish in ("length", "max_tokens", "model_context_window_exceeded"),
        declined=finish in ("content_filter", "refusal"),
    )


def _text(content: object, key: str = "text") -> str:
    """Return the text of a string, a field or a list of parts; a model's thoughts, in other fields, are left out."""
    match content:
        case str():
            return content
        case {**fields} if key in fields:
            return _text(fields[key])
        case [*parts]:
            return "".join(map(_text, parts))
    return ""


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    """Return the first plausible number of tokens under these names, or None."""
    values = (usage.get(name) for name in names)
    return next((value for value in values if type(value) is int and 0 <= value < 10**9), None)


# ---- failures --------------------------------------------------------------------------------------------------------


def _explained(error: BaseException, endpoint: Endpoint) -> CallFailed:
    """Translate an exception into a CallFailed with a sentence for the owner of the night."""
    if isinstance(error, CallFailed):
        return error
    name, cause, variable = type(error).__name__, error.__cause__, endpoint.key_variable
    status = getattr(error, "status_code", None)  # of a refusal by the server
    said = str(cause or error) or name  # the SDK's own message is only 'Connection error.'
    no_credit = status == 402 or (status and NO_MONEY.search(f"{getattr(error, 'body', '')} {error}"))
    if no_credit:
        what = f"says that the account of {variable} has no credit left"
    elif status in (401, 403):
        what = f"does not accept the key; {endpoint.warning or f'check {variable}'}"
    elif status == 404:
        what = f"knows no model {endpoint.model}, or nothing is at {endpoint.url}"
    elif status is not None:
        refused = "is out of order" if status >= 500 else "does not take the question"
        what = "gets too many requests" if status == 429 else refused
    elif isinstance(error, ValueError):  # from JSON or Unicode decoding
        what = f"answered with something other than JSON; is {endpoint.url} its base URL, which often ends in /v1?"
    elif name == "APITimeoutError":
        what = "did not answer in time"
    elif name == "APIConnectionError":
        what = "cannot be reached; is the server running, and is the URL right?"
    else:
        what = f"gave no answer: the call failed with {name}"
    # httpx's ConnectError and ConnectTimeout: the question has not reached the server
    charged = status is None and not type(cause).__name__.startswith("Connect")
    lasting = bool(no_credit) or status in (401, 403)
    return CallFailed(f"{endpoint.host} {what} ({endpoint.without_key(said)})", lasting=lasting, charged=charged)
