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

BROKE_OFF = "the answer broke off in the middle"


class OpenAI:
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
        messages = [{"role": "system", "content": asked.system}, *_turns(asked)]
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
        tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        return Reply(text, *tokens, cut_off=finish == "length", declined=finish == "content_filter")


class Anthropic:
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
        return {"model": endpoint.model, "max_tokens": max_tokens, "system": asked.system, "messages": _turns(asked)}

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
        tokens = _count(usage, "input_tokens"), _count(usage, "output_tokens")
        cut_off = stop in ("max_tokens", "model_context_window_exceeded")
        return Reply(text, *tokens, cut_off=cut_off, declined=stop == "refusal")


API_FORMATS: Mapping[Provider, ApiFormat] = {"openai": OpenAI(), "anthropic": Anthropic()}


def _missing(extra: str) -> MachineError:
    return MachineError(f"the {extra} SDK is not installed; run: {command_for(extra)}")


def _turns(asked: Conversation) -> list[dict[str, str]]:
    return [{"role": turn.speaker, "content": turn.text} for turn in asked.turns]


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


def _error_in_reply(error: object) -> CallFailed:
    """Return the failure for an error that a server (OpenRouter, for one) reports with a status of success."""
    said = str(error)[:SAID_CHARS]
    code = error.get("code") if isinstance(error, dict) else None
    lasting = code in (401, 402, 403) or NO_MONEY.search(said) is not None
    return CallFailed(f"the server reports an error ({said})", lasting=lasting, charged=not lasting)
