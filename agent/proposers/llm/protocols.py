"""Translate questions and replies for two APIs: OpenAI's chat completions and Anthropic's messages.

Many other servers offer the first. The SDKs do not check a server's reply, and servers differ in which fields may be
missing or empty. So replies are read as plain JSON here, field by field: a whole answer is read as a stream of one
event.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import NightshiftError
from agent.proposers.llm.endpoint import NO_MONEY, Endpoint, Provider
from agent.proposers.llm.prompt import Conversation
from agent.text import SAID_CHARS

REPLY_BYTES = 4 << 20
# The cost of a token that the server writes to its cache, in tokens of input, by how long the server keeps it.
# These are Anthropic's prices. OpenAI's format can count such tokens, too, as servers do that pass Anthropic's on.
MINUTES_5, HOUR = 1.25, 2.0
# A night asks about once a run, which mostly takes more than the five minutes that a cache lasts by default.
FOR_AN_HOUR = {"type": "ephemeral", "ttl": "1h"}
FOR_AN_HOUR_TOO = {"anthropic-beta": "extended-cache-ttl-2025-04-11"}  # where the API does not take "1h" without it
BROKE_OFF = "the answer broke off in the middle"
Event = Mapping[str, Any]


class CallFailed(NightshiftError):
    """Say why a call brought no reply."""

    def __init__(self, sentence: str, *, lasting: bool = False, charged: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting  # key or credit: asking again soon would fail, too
        self.charged = charged  # the call may have cost money


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


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """Describe how one provider's SDK is asked, and how its replies are read."""

    client: str  # the SDK's class of clients
    method: str  # the client's object that has create()
    most_for_input: float  # times the price of input, that a token of a question may cost
    question: Callable[[Conversation, Endpoint, int], dict[str, Any]]
    streaming: Mapping[str, Any]
    read: Callable[[Iterable[Event]], Reply]


# ---- OpenAI ----------------------------------------------------------------------------------------------------------


def _openai_question(asked: Conversation, endpoint: Endpoint, max_tokens: int) -> dict[str, Any]:
    # OpenAI's newer models refuse the old name, and many other servers do not know the new one
    limit = "max_completion_tokens" if endpoint.is_home else "max_tokens"
    messages = [{"role": "system", "content": asked.system}, *_messages(asked)]
    return {"model": endpoint.model, limit: max_tokens, "messages": messages}


def _openai_reply(events: Iterable[Event]) -> Reply:
    text, finish, usage, is_whole, has_choice = "", None, None, False, False
    for event in events:
        usage = event.get("usage") or usage
        match event:
            case {"choices": [dict(choice), *_]}:
                message = choice.get("message")
                has_choice, is_whole = True, isinstance(message, dict)
                finish = choice.get("finish_reason") or finish
                text += _text(message if is_whole else choice.get("delta"), "content")
            case {"error": error} if error:
                raise _reported(error)
    if not has_choice:
        raise CallFailed("the answer holds no choice; is the server one for chat completions?", charged=True)
    if finish is None and not is_whole:
        raise CallFailed(BROKE_OFF, charged=True)
    read = _count(usage, "prompt_tokens")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached, kept = _count(details, "cached_tokens"), _count(details, "cache_write_tokens") or 0
    return Reply(
        text,
        read,
        _count(usage, "completion_tokens"),
        cut_off=finish == "length",
        declined=finish == "content_filter",
        tokens_cached=None if cached is None or read is None else min(cached, read),
        tokens_on_top=(MINUTES_5 - 1) * min(kept, read or 0),
    )


# ---- Anthropic -------------------------------------------------------------------------------------------------------


def _anthropic_question(asked: Conversation, endpoint: Endpoint, max_tokens: int) -> dict[str, Any]:
    first, *others = _messages(asked)
    question: dict[str, Any] = {"model": endpoint.model, "max_tokens": max_tokens, "system": asked.system}
    text, end = first["content"], asked.stable_chars
    if 0 < end < len(text):
        kept_for = FOR_AN_HOUR if endpoint.is_home else {"type": "ephemeral"}  # which every server knows
        stable = {"type": "text", "text": text[:end], "cache_control": kept_for}
        first = first | {"content": [stable, {"type": "text", "text": text[end:]}]}
        question |= {"extra_headers": FOR_AN_HOUR_TOO} if endpoint.is_home else {}
    return question | {"messages": [first, *others]}


def _anthropic_reply(events: Iterable[Event]) -> Reply:
    text, stop, is_whole = "", None, False
    usage: dict[str, Any] = {}
    for event in events:
        match event:
            case {"content": list(content)}:
                text, stop, is_whole = _text(content), event.get("stop_reason"), True
            case {"type": "content_block_delta", "delta": delta}:
                text += _text(delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                stop = delta.get("stop_reason") or stop
            case {"error": error} if error:
                raise _reported(error)
        message = event.get("message")
        for counts in (event.get("usage"), message.get("usage") if isinstance(message, dict) else None):
            usage |= counts if isinstance(counts, dict) else {}
    if stop is None and not is_whole:
        raise CallFailed(f"{BROKE_OFF}, or holds no content; is the server one for Anthropic's messages?", charged=True)
    read, cached = _count(usage, "input_tokens"), _count(usage, "cache_read_input_tokens")
    kept = _count(usage, "cache_creation_input_tokens") or 0
    for_minutes = min(kept, _count(usage.get("cache_creation"), "ephemeral_5m_input_tokens") or 0)
    return Reply(
        text,
        None if read is None else read + (cached or 0) + kept,  # which the API counts apart
        _count(usage, "output_tokens"),
        cut_off=stop in ("max_tokens", "model_context_window_exceeded"),
        declined=stop == "refusal",
        tokens_cached=cached,
        tokens_on_top=(MINUTES_5 - 1) * for_minutes + (HOUR - 1) * (kept - for_minutes),
    )


API_FORMATS: Mapping[Provider, ApiFormat] = {
    "openai": ApiFormat(
        *("OpenAI", "chat.completions", MINUTES_5, _openai_question),
        {"stream": True, "stream_options": {"include_usage": True}},
        _openai_reply,
    ),
    "anthropic": ApiFormat("Anthropic", "messages", HOUR, _anthropic_question, {"stream": True}, _anthropic_reply),
}


# ---- both ------------------------------------------------------------------------------------------------------------


def _messages(asked: Conversation) -> list[dict[str, Any]]:
    return [{"role": message.role, "content": message.text} for message in asked.messages]


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


def _count(usage: object, name: str) -> int | None:
    """Return a plausible number of tokens from a server's usage record, else None."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def _reported(error: object) -> CallFailed:
    """Return the failure for an error that a server (OpenRouter, for one) reports with a status of success."""
    said = str(error)[:SAID_CHARS]
    code = error.get("code") if isinstance(error, dict) else None
    lasting = code in (401, 402, 403) or NO_MONEY.search(said) is not None
    return CallFailed(f"the server reports an error ({said})", lasting=lasting, charged=not lasting)
