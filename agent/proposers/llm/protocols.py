"""Translate questions and replies for two APIs: OpenAI's chat completions and Anthropic's messages.

Many other servers offer the first. The SDKs do not check a server's reply, and servers differ in which fields may be
missing or empty. So replies are read as plain JSON here, field by field.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.errors import MachineError
from agent.invocation import command_for
from agent.proposers.llm.chat import NO_MONEY, ApiFormat, CallFailed, Reply, check_answer_size
from agent.proposers.llm.endpoint import Endpoint, Provider
from agent.proposers.llm.prompt import Conversation
from agent.text import SAID_CHARS

# The cost of a token that the server writes to its cache, in tokens of input, by how long the server keeps it.
# These are Anthropic's prices. OpenAI's format can count such tokens, too, as servers do that pass Anthropic's on.
MINUTES_5, HOUR = 1.25, 2.0
# A night asks about once a run, which mostly takes more than the five minutes that a cache lasts by default.
FOR_AN_HOUR = {"type": "ephemeral", "ttl": "1h"}
FOR_AN_HOUR_TOO = {"anthropic-beta": "extended-cache-ttl-2025-04-11"}  # where the API does not take "1h" without it
BROKE_OFF = "the answer broke off in the middle"


class OpenAI:
    most_for_input = MINUTES_5

    def sdk(self) -> Any:
        try:
            import openai
        except ImportError as error:
            raise _missing("openai") from error
        return openai

    def client(self, sdk: Any) -> Any:
        return sdk.OpenAI

    def method(self, client: Any) -> Any:
        return client.chat.completions

    def question(self, asked: Conversation, endpoint: Endpoint, max_tokens: int) -> dict[str, Any]:
        # OpenAI's newer models refuse the old name, and many other servers do not know the new one
        limit = "max_completion_tokens" if endpoint.is_home else "max_tokens"
        messages = [{"role": "system", "content": asked.system}, *_messages(asked)]
        return {"model": endpoint.model, limit: max_tokens, "messages": messages}

    def stream_options(self) -> dict[str, Any]:
        return {"stream": True, "stream_options": {"include_usage": True}}

    def whole(self, answer: Any) -> Reply:
        match answer:
            case {"choices": [{"message": {"content": content}} as choice, *_]}:
                return self._reply(_text(content), choice.get("finish_reason"), answer.get("usage"))
            case {"error": error} if error:
                raise _error_in_reply(error)
        raise CallFailed("the answer holds no choice; is the server one for chat completions?", charged=True)

    def joined(self, events: Iterator[dict[str, Any]]) -> Reply:
        text, finish, usage = "", None, None
        for event in events:
            usage = event.get("usage") or usage
            match event:
                case {"choices": [dict(choice), *_]}:
                    finish = choice.get("finish_reason") or finish
                    text += _text(choice.get("delta"), "content")
            check_answer_size(len(text))
        if finish is None:
            raise CallFailed(BROKE_OFF, charged=True)
        return self._reply(text, finish, usage)

    def _reply(self, text: str, finish: object, usage: object) -> Reply:
        read, written = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        details = _part(usage, "prompt_tokens_details")
        cached, kept = _count(details, "cached_tokens"), _count(details, "cache_write_tokens") or 0
        return Reply(
            text,
            read,
            written,
            cut_off=finish == "length",
            declined=finish == "content_filter",
            tokens_cached=None if cached is None or read is None else min(cached, read),
            tokens_on_top=(MINUTES_5 - 1) * min(kept, read or 0),
        )


class Anthropic:
    most_for_input = HOUR

    def sdk(self) -> Any:
        try:
            import anthropic
        except ImportError as error:
            raise _missing("anthropic") from error
        return anthropic

    def client(self, sdk: Any) -> Any:
        return sdk.Anthropic

    def method(self, client: Any) -> Any:
        return client.messages

    def question(self, asked: Conversation, endpoint: Endpoint, max_tokens: int) -> dict[str, Any]:
        first, *others = _messages(asked)
        question: dict[str, Any] = {"model": endpoint.model, "max_tokens": max_tokens, "system": asked.system}
        text, end = first["content"], asked.stable_chars
        if 0 < end < len(text):
            kept_for = FOR_AN_HOUR if endpoint.is_home else {"type": "ephemeral"}  # which every server knows
            stable = {"type": "text", "text": text[:end], "cache_control": kept_for}
            first = first | {"content": [stable, {"type": "text", "text": text[end:]}]}
            question |= {"extra_headers": FOR_AN_HOUR_TOO} if endpoint.is_home else {}
        return question | {"messages": [first, *others]}

    def stream_options(self) -> dict[str, Any]:
        return {"stream": True}

    def whole(self, answer: Any) -> Reply:
        match answer:
            case {"content": list(content)}:
                return self._reply("".join(map(_text, content)), answer.get("stop_reason"), answer.get("usage"))
            case {"error": error} if error:
                raise _error_in_reply(error)
        raise CallFailed("the answer holds no content; is the server one for Anthropic's messages?", charged=True)

    def joined(self, events: Iterator[dict[str, Any]]) -> Reply:
        text, stop = "", None
        usage: dict[str, Any] = {}
        for event in events:
            match event:
                case {"type": "message_start", "message": {"usage": dict(counts)}}:
                    usage |= counts
                case {"type": "content_block_delta", "delta": delta}:
                    text += _text(delta)
                case {"type": "message_delta", "delta": dict(delta)}:
                    stop = delta.get("stop_reason") or stop
                    later = event.get("usage")
                    usage |= later if isinstance(later, dict) else {}
            check_answer_size(len(text))
        if stop is None:
            raise CallFailed(BROKE_OFF, charged=True)
        return self._reply(text, stop, usage)

    def _reply(self, text: str, stop: object, usage: object) -> Reply:
        read, cached = _count(usage, "input_tokens"), _count(usage, "cache_read_input_tokens")
        kept = _count(usage, "cache_creation_input_tokens") or 0
        for_minutes = min(kept, _count(_part(usage, "cache_creation"), "ephemeral_5m_input_tokens") or 0)
        return Reply(
            text,
            None if read is None else read + (cached or 0) + kept,  # which the API counts apart
            _count(usage, "output_tokens"),
            cut_off=stop in ("max_tokens", "model_context_window_exceeded"),
            declined=stop == "refusal",
            tokens_cached=cached,
            tokens_on_top=(MINUTES_5 - 1) * for_minutes + (HOUR - 1) * (kept - for_minutes),
        )


API_FORMATS: Mapping[Provider, ApiFormat] = {"openai": OpenAI(), "anthropic": Anthropic()}


def _missing(extra: str) -> MachineError:
    return MachineError(f"the {extra} SDK is not installed; run: {command_for(extra)}")


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


def _part(usage: object, name: str) -> object:
    return usage.get(name) if isinstance(usage, dict) else None


def _count(usage: object, name: str) -> int | None:
    """Return a plausible number of tokens from a server's usage record, else None."""
    value = _part(usage, name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def _error_in_reply(error: object) -> CallFailed:
    """Return the failure for an error that a server (OpenRouter, for one) reports with a status of success."""
    said = str(error)[:SAID_CHARS]
    code = error.get("code") if isinstance(error, dict) else None
    lasting = code in (401, 402, 403) or NO_MONEY.search(said) is not None
    return CallFailed(f"the server reports an error ({said})", lasting=lasting, charged=not lasting)
