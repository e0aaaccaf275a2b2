"""Play the model of a coding agent on the loopback interface: it calls its tools in turn, and is done.

Claude Code asks in Anthropic's API for messages, Codex in OpenAI's API for responses; both are answered as streams.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from llm_servers import TOKENS_IN, TOKENS_OUT, Handler, Json, Request, Server, anthropic_events

SEARCH, SEARCHED = "ToolSearch", "tool_reference"
Call = tuple[str, dict[str, str]]  # a tool and its arguments
FOLDER = re.compile(r'(?:[Ww]orking directory: |<cwd>)([^\s<\\"]+)')
DONE = "I have read the answer."


class ToolCaller(Server):
    """Answer until the end of the `with` block: with one call after another, then with a last sentence.

    {cwd} in an argument is the folder in which the agent says that it works.
    """

    def __init__(self, *calls: Call) -> None:
        super().__init__(self._answer)
        self.calls = calls

    @property
    def url(self) -> str:
        return super().url.removesuffix("/v1")

    def tools(self) -> set[str]:
        """Return the names of all tools that the model was offered, in whatever form."""
        return {name for request in self.requests for name in _offered(request.body)}

    def results(self) -> list[str]:
        """Return what the calls answered, as the model was shown it; every question repeats what was before it."""
        return max((list(_results(request.body)) for request in self.requests), key=len, default=[])

    def _answer(self, request: Request, handler: Handler) -> None:
        call, number = self._next_call(request.body), f"call_{len(self.requests)}"
        path = request.path.partition("?")[0]
        if path.endswith("/messages"):
            handler.stream(_messages(call, number))
        elif path.endswith("/responses"):
            handler.stream(_responses(call, number))
        else:
            handler.send(404, b"{}")

    def _next_call(self, body: dict[str, Any]) -> Call | None:
        """Return the call to make now, or the search by which Claude Code learns of its tool; None after the last."""
        offered, results = set(_offered(body)), list(_results(body))
        done = len(results) - sum(SEARCHED in result for result in results)
        if done >= len(self.calls):
            return None
        name, arguments = self.calls[done]
        if name in offered:
            folder = FOLDER.search(json.dumps(body))
            return name, {key: text.replace("{cwd}", folder[1] if folder else "") for key, text in arguments.items()}
        return (SEARCH, {"query": f"select:{name}"}) if SEARCH in offered and len(results) == done else None


def _offered(body: dict[str, Any]) -> Iterator[str]:
    for tool in body.get("tools", ()):
        name = tool.get("name", "")
        yield name
        yield from (f"{name}__{inner['name']}" for inner in tool.get("tools", ()))  # Codex puts those of a server so


def _results(body: dict[str, Any]) -> Iterator[str]:
    for turn in body.get("messages", ()):
        parts = turn["content"] if isinstance(turn["content"], list) else ()
        yield from (json.dumps(part["content"]) for part in parts if part["type"] == "tool_result")
    for item in body.get("input", ()):
        if item.get("type") == "function_call_output":
            yield json.dumps(item["output"])


def _messages(call: Call | None, number: str) -> Iterator[Json]:
    if call is None:
        return anthropic_events({"type": "text", "text": ""}, [{"type": "text_delta", "text": DONE}], "end_turn", {})
    block = {"type": "tool_use", "id": number, "name": call[0], "input": {}}
    return anthropic_events(block, [{"type": "input_json_delta", "partial_json": json.dumps(call[1])}], "tool_use", {})


def _responses(call: Call | None, number: str) -> Iterator[Json]:
    content = [{"type": "output_text", "text": DONE, "annotations": []}]
    item = {"type": "message", "id": number, "role": "assistant", "status": "completed", "content": content}
    if call is not None:
        server, _, name = call[0].rpartition("__")
        item = {"type": "function_call", "id": number, "call_id": number, "name": name}
        item |= {"arguments": json.dumps(call[1])} | ({"namespace": server} if server else {})
    usage = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
    response = {"id": number, "status": "completed", "output": [item], "usage": usage}
    yield {"type": "response.created", "response": {"id": number}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": response}
