"""Ask a language model one question by an official SDK, with limits of time and size, and explain failures.

Which model is asked, at which server and with which key, is parsed and checked before a night begins.

Two APIs are spoken: OpenAI's chat completions, which many other servers offer, and Anthropic's messages. Both SDKs come
from one generator, so their clients, errors and retries are alike. They do not check a server's answer, and servers
differ in which fields may be missing or empty. So the events of a stream are read as plain JSON here. Answers are
streamed, since an answer may take minutes, and many proxies drop a silent connection.
"""

import codecs
import io
import itertools
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from ipaddress import IPv4Address, IPv6Address
from operator import attrgetter
from socket import inet_aton
from typing import Any
from urllib.parse import urlsplit

from agent.errors import MachineError, NightError, NightshiftError
from agent.invocation import command_for
from agent.proposers.keys import LIKELY, hidden, holds_key
from agent.proposers.prompts import Conversation
from agent.text import SAID_CHARS, one_line

# ---- whom to ask ----------------------------------------------------------------------------------------------------

HOMES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
# a model's name may hold an @, but no server without its http://
SPEC = re.compile(r"(openai|anthropic):((?!\S*@(?:localhost|[\w.-]+:\d))[!-?A-~][!-~]*?)(?:@(https?://\S+))?")
URL = re.compile(r"https?://(?:(?i:[a-z0-9_.-]+)|\[(?i:[0-9a-f:.]+)\])(?::[0-9]{1,5})?(?:/[!-\"$->@-~]*)?")
WITH_SERVER = "openai:qwen3-coder@http://localhost:11434/v1"
EXAMPLES = f"openai:gpt-5, anthropic:claude-sonnet-4-5 or {WITH_SERVER}"
NO_KEY = "none"  # SDKs require a key even if the server needs none
QUOTED = re.compile(r"\b(sk|key)-[\w*.-]{6,}")  # a provider quotes a wrong key, partly as asterisks


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Name a model, its server and the key."""

    provider: str
    model: str
    url: str
    key: str = field(default=NO_KEY, repr=False)

    @classmethod
    def parse(cls, spec: str, environ: Mapping[str, str]) -> "Endpoint":
        """Parse PROVIDER:MODEL[@URL] and read the provider's key from the environment.

        Raise NightError for an invalid spec or URL, MachineError for a missing key. A key that plain http to another
        machine would show to the network is left out.
        """
        match = SPEC.fullmatch(spec.strip())
        if match is None:
            raise NightError(f"{_hidden(spec)!r} names no language model; write PROVIDER:MODEL[@URL], as in {EXAMPLES}")
        provider, model, in_spec = match.groups()
        name = provider.upper()
        named = in_spec or environ.get(f"{name}_BASE_URL")
        key = environ.get(f"{name}_API_KEY", "").strip()
        if named and (URL.fullmatch(named) is None or named.rstrip("/").endswith(("/completions", "/messages"))):
            raise NightError(
                f"{_hidden(named)!r} is no base URL of a server, without a password or the name of a method; write it "
                f"as in http://localhost:11434/v1"
            )
        if LIKELY.search(f"{spec} {named}") or holds_key(f"{spec} {named}", key):
            raise NightError(
                f"--llm or {name}_BASE_URL holds what looks like a key, which the journal would keep; put it into "
                f"{name}_API_KEY instead"
            )
        if not (key.isascii() and key.isprintable()):
            raise MachineError(f"{name}_API_KEY holds characters that no key has; copy the key into it once more")
        if not key and not named:
            raise MachineError(
                f"{name}_API_KEY is not set; put your key into it, or name a server of your own, as in {WITH_SERVER}"
            )
        endpoint = cls(provider, model, named or HOMES[provider])
        # another machine's plain http can be read by others on the network
        is_shown = endpoint.url.startswith("http:") and not endpoint.is_here
        return endpoint if is_shown or not key else replace(endpoint, key=key)

    @property
    def is_home(self) -> bool:
        """Return whether the server is the provider's own, not a compatible one."""
        return self.url == HOMES[self.provider]

    @property
    def is_here(self) -> bool:
        """Return whether the server's address is one of this machine, in any spelling that the system understands."""
        host = urlsplit(self.url).hostname or ""
        try:
            address = IPv6Address(host) if ":" in host else IPv4Address(inet_aton(host))  # inet_aton reads 127.1, too
        except (ValueError, OSError):
            return f".{host.removesuffix('.')}".endswith(".localhost")
        address = getattr(address, "ipv4_mapped", None) or address
        return address.is_loopback or address.is_unspecified

    @property
    def key_variable(self) -> str:
        return f"{self.provider.upper()}_API_KEY"

    def without_key(self, text: str, most_chars: int = SAID_CHARS) -> str:
        """Shorten a message of a server or an SDK to one line, and remove the key from it."""
        return one_line(QUOTED.sub("…", hidden(text, *self._keys)), most_chars)

    def check_answer(self, text: str) -> None:
        """Raise CallFailed for an answer that holds the key: titles, scripts and commits would keep it."""
        if holds_key(text, *self._keys):
            raise CallFailed(
                f"{self.url} put the key into its answer, which was left out; ask another server, or give this one "
                f"another key in {self.key_variable}",
                charged=True,
            )

    @property
    def _keys(self) -> tuple[str, ...]:
        return () if self.key == NO_KEY else (self.key,)


def _hidden(text: str) -> str:
    """Return what a person typed, without a password before the host, which would end up in logs."""
    return re.sub(r"//.*@", "//…@", text)


# ---- one call --------------------------------------------------------------------------------------------------------

MAX_TOKENS = 16_000
REPLY_BYTES, REFUSAL_BYTES = 4 << 20, 64 << 10  # bytes of an answer; bytes of a refusal, before it is decompressed
POLL_S = 0.1
CONNECT_S = 10.0
CLIENTS = {"openai": "OpenAI", "anthropic": "Anthropic"}
METHODS = {"openai": "chat.completions", "anthropic": "messages"}


@dataclass(frozen=True, slots=True)
class Patience:
    """Limit how long one question may take and how large its answer may be."""

    ask_s: float = 600.0  # s until the whole answer has arrived, retries included
    retries: int = 4  # retries by the SDK, after 429, 5xx and lost connections
    max_tokens: int = MAX_TOKENS  # tokens of an answer, thinking included


class CallFailed(NightshiftError):
    """Say why a call brought no answer; charged: it may have cost money."""

    def __init__(self, sentence: str, *, charged: bool = False) -> None:
        super().__init__(sentence)
        self.charged = charged


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer and the server's counts of tokens; None for those that it does not count."""

    text: str = ""
    tokens_in: int | None = None  # those of its cache included
    tokens_out: int | None = None
    tokens_cached: int | None = None  # part of tokens_in that the server had in its cache
    tokens_written: int = 0  # part of tokens_in that the server put into its cache
    cut_off: bool = False  # the answer reached max_tokens, or the context was full
    declined: bool = False  # the model, or a filter, refused to answer


def client_of(endpoint: Endpoint, patience: Patience) -> Any:
    """Return a client of the provider's SDK.

    A server on this machine is asked without a proxy, which would read the key and the question. Raise MachineError if
    the SDK is missing or cannot be set up, for example with an invalid proxy.
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
            http_client=sdk.DefaultHttpxClient(
                follow_redirects=False,  # a redirect would send the key and the script to another server
                event_hooks={"response": [_limit_refusal]},
                # Without the environment there is no proxy; OpenSSL itself still reads $SSL_CERT_FILE.
                **({"trust_env": False, "verify": ssl.create_default_context()} if endpoint.is_here else {}),
            ),
        )
        attrgetter(METHODS[provider])(client)  # imports more, which takes seconds
    except Exception as error:  # caused by certificates, proxies and other settings of the environment
        message = endpoint.without_key(str(error))
        raise MachineError(f"the {provider} SDK cannot be set up ({message}); repair that and try again") from error
    return client


def _limit_refusal(response: Any) -> None:
    """Read the beginning of a refusal alone: the SDKs would read all that a server sends."""
    if not response.is_success:
        response.iter_raw = partial(_beginning, response.iter_raw)
        response.read()


def _beginning(read: Callable[..., Iterable[bytes]], chunk_size: int | None = None) -> Iterator[bytes]:
    size = 0
    for chunk in read(chunk_size):
        yield chunk
        size += len(chunk)
        if size > REFUSAL_BYTES:
            return


def ask(endpoint: Endpoint, patience: Patience, conversation: Conversation, stopped: Callable[[], bool]) -> Reply:
    """Return the answer; raise CallFailed after patience.ask_s, or soon after the night was asked to stop.

    The call runs in a daemon thread, because a silent socket and the SDK's sleep before a retry cannot be interrupted.
    Closing the client ends it, at the latest when the server sends something.
    """
    try:
        client = client_of(endpoint, patience)
    except MachineError as unusable:
        raise CallFailed(str(unusable)) from unusable
    end, outcome = time.monotonic() + patience.ask_s, Future[Reply]()

    def work() -> None:
        try:
            create = attrgetter(METHODS[endpoint.provider])(client).with_streaming_response.create
            with create(**question(conversation, endpoint, patience.max_tokens)) as response:
                outcome.set_result(_read(_events(response.iter_bytes())))
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


def question(conversation: Conversation, endpoint: Endpoint, max_tokens: int) -> dict[str, Any]:
    """Return the arguments of the SDK's method for one question."""
    roles = itertools.cycle(["user", "assistant"])
    messages: list[dict[str, Any]] = [
        {"role": role, "content": text} for role, text in zip(roles, conversation.messages, strict=False)
    ]
    common = {"model": endpoint.model, "stream": True}
    if endpoint.provider == "openai":
        # OpenAI's newer models refuse the old name, and many other servers do not know the new one
        limit = "max_completion_tokens" if endpoint.is_home else "max_tokens"
        system = {"role": "system", "content": conversation.system}
        counts = {"stream_options": {"include_usage": True}}
        return {**common, **counts, limit: max_tokens, "messages": [system, *messages]}
    if 0 < conversation.stable_chars < len(messages[0]["content"]):
        # A night asks about once a run, which mostly takes more than the five minutes that a cache lasts by default.
        cache = {"type": "ephemeral"} | ({"ttl": "1h"} if endpoint.is_home else {})  # some servers do not know "1h"
        text, end = messages[0]["content"], conversation.stable_chars
        stable = {"type": "text", "text": text[:end], "cache_control": cache}
        messages[0]["content"] = [stable, {"type": "text", "text": text[end:]}]
    return {**common, "max_tokens": max_tokens, "system": conversation.system, "messages": messages}


# ---- the answer ------------------------------------------------------------------------------------------------------


def _events(chunks: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in the data of a stream's server-sent events, as https://html.spec.whatwg.org describes these.

    The SDKs' own readers end at the first data that is no JSON, as where a server keeps the connection alive. A server
    that reports an error instead may send that alone, as JSON. Raise CallFailed if the stream is too long.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    rest, size = "", 0
    for chunk in itertools.chain(chunks, [b"\n\n"]):  # the last event may lack the empty line that ends it
        size += len(chunk)
        if size > REPLY_BYTES:
            raise CallFailed(f"the answer has more than {REPLY_BYTES >> 20} MB", charged=True)
        *events, rest = (rest + decoder.decode(chunk)).split("\n\n")
        for event in events:
            fields = (line.partition(":") for line in event.split("\n"))
            data = ("\n".join(value for name, _, value in fields if name == "data") or event).strip()
            while data.startswith("{"):  # several, where a server leaves out the empty lines
                content, end = json.JSONDecoder().raw_decode(data)
                yield content
                data = data[end:].lstrip()


def _read(events: Iterable[Mapping[str, Any]]) -> Reply:
    """Read the events of either API; raise CallFailed for an answer that broke off, or is an error or none."""
    text, finish = "", None
    usage: dict[str, Any] = {}
    for event in events:
        match event:
            case {"error": error} if error:  # OpenRouter, for one, reports it with a status of success
                # The error is not cut here: a key is looked for in the whole.
                raise CallFailed(f"the server reports an error ({error})", charged=True)
            case {"choices": [{"delta": delta} as choice, *_]}:
                text += _text(delta, "content")
                finish = choice.get("finish_reason") or finish
            case {"type": "content_block_delta", "delta": delta}:
                text += _text(delta, "text")
            case {"type": "message_delta", "delta": {"stop_reason": reason}}:
                finish = reason or finish
        for part in (event, event.get("message")):
            counts = part.get("usage") if isinstance(part, dict) else None
            usage |= counts if isinstance(counts, dict) else {}
    if finish is None:
        raise CallFailed(
            "the answer broke off, or is no stream of this API: are provider and URL right (which often ends in /v1)?",
            charged=True,
        )
    details = usage.get("prompt_tokens_details")
    usage |= details if isinstance(details, dict) else {}
    cached = _count(usage, "cached_tokens", "cache_read_input_tokens")
    written = _count(usage, "cache_write_tokens", "cache_creation_input_tokens") or 0
    tokens_in = _count(usage, "prompt_tokens")
    if tokens_in is None and (uncached := _count(usage, "input_tokens")) is not None:
        tokens_in = uncached + (cached or 0) + written  # Anthropic's API counts these apart
    return Reply(
        text,
        tokens_in,
        _count(usage, "completion_tokens", "output_tokens"),
        tokens_cached=None if cached is None or tokens_in is None else min(cached, tokens_in),
        tokens_written=min(written, tokens_in or 0),
        cut_off=finish in ("length", "max_tokens", "model_context_window_exceeded"),
        declined=finish in ("content_filter", "refusal"),
    )


def _text(delta: object, key: str) -> str:
    """Return the text of this field; a model's thoughts, in other fields, are left out."""
    text = delta.get(key) if isinstance(delta, dict) else None
    return text if isinstance(text, str) else ""


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    """Return the first plausible number of tokens under these names, or None."""
    values = (usage.get(name) for name in names)
    return next((value for value in values if type(value) is int and 0 <= value < 10**9), None)


# ---- failures --------------------------------------------------------------------------------------------------------


def _explained(error: BaseException, endpoint: Endpoint) -> CallFailed:
    """Translate an exception into a CallFailed with a sentence for the owner of the night."""
    if isinstance(error, CallFailed):
        return error
    name, cause = type(error).__name__, error.__cause__
    status = getattr(error, "status_code", None)  # the status of a refusal by the server
    message = endpoint.without_key(str(cause or error) or name)  # the SDK's own message is only 'Connection error.'
    if status in (401, 403):
        problem = f"does not accept the key; check {endpoint.key_variable}, which only https or this machine gets"
    elif status is not None:
        problem = f"refuses a question to {endpoint.model}"
    elif name in ("APITimeoutError", "APIConnectionError"):
        problem = "cannot be reached, or is silent; is the server running, and is the URL right?"
    else:
        problem = "gave no answer that can be read; is it a base URL, which often ends in /v1?"
    # httpx's ConnectError and ConnectTimeout: the question has not reached the server
    charged = status is None and not type(cause).__name__.startswith("Connect")
    return CallFailed(f"{endpoint.url} {problem} ({message})", charged=charged)
