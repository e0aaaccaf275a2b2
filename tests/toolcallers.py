"""Play the model of a coding agent on the loopback interface: it calls its tools in turn, and is done.

Claude Code asks in Anthropic's API for messages, Codex in OpenAI's API for responses; both are answered as streams.
"""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SEARCH, SEARCHED = "ToolSearch", "tool_reference"
Call = tuple[str, dict[str, str]]  # a tool and its arguments
FOLDER = re.compile(r'(?:[Ww]orking directory: |<cwd>)([^\s<\\"]+)')
DONE = "I have read the answer."


class ToolCaller:
    """Answer until the end of the `with` block: with one call after another, then with a last sentence.

    {cwd} in an argument is the folder in which the agent says that it works.
    """

    def __init__(self, *calls: Call) -> None:
        self.calls = calls
        self.asked: list[dict[str, Any]] = []  # the bodies of all requests
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True

    def __enter__(self) -> "ToolCaller":
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *of: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def tools(self) -> set[str]:
        """Return the names of all tools that the model was offered, in whatever form."""
        return {name for body in self.asked for tool in body.get("tools", ()) for name in _names(tool)}

    def results(self) -> list[str]:
        """Return what the calls answered, as the model was shown it; every question repeats what was before it."""
        return max((list(_results(body)) for body in self.asked), key=len, default=[])


def _names(tool: dict[str, Any]) -> Iterator[str]:
    if "name" in tool:
        yield tool["name"]
        for inner in tool.get("tools", ()):  # Codex puts those of a server into one
            yield f"{tool['name']}__{inner['name']}"


def _results(body: dict[str, Any]) -> Iterator[str]:
    for turn in body.get("messages", ()):
        parts = turn["content"] if isinstance(turn["content"], list) else ()
        yield from (json.dumps(part["content"]) for part in parts if part["type"] == "tool_result")
    for item in body.get("input", ()):
        if item.get("type") == "function_call_output":
            yield json.dumps(item["output"])


def _handler(model: ToolCaller) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            model.asked.append(body)
            path = self.path.partition("?")[0]
            if path.endswith("/messages"):
                self.stream(_messages(model, body))
            elif path.endswith("/responses"):
                self.stream(_responses(model, body))
            else:
                self.answer(404, "application/json", b"{}")

        def do_GET(self) -> None:
            self.answer(404, "application/json", b"{}")

        def stream(self, events: list[dict[str, Any]]) -> None:
            text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            self.answer(200, "text/event-stream", text.encode())

        def answer(self, code: int, kind: str, content: bytes) -> None:
            self.send_response(code)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None: ...

    return Handler


def _next_call(model: ToolCaller, body: dict[str, Any]) -> Call | None:
    """Return the call to make now, or that of Claude Code's search, which makes a tool known; None after the last."""
    offered = {name for tool in body.get("tools", ()) for name in _names(tool)}
    results = list(_results(body))
    done = len(results) - sum(SEARCHED in result for result in results)
    if done >= len(model.calls):
        return None
    name, arguments = model.calls[done]
    if name in offered:
        folder = FOLDER.search(json.dumps(body))
        return name, {key: text.replace("{cwd}", folder[1] if folder else "") for key, text in arguments.items()}
    return (SEARCH, {"query": f"select:{name}"}) if SEARCH in offered and len(results) == done else None


def _messages(model: ToolCaller, body: dict[str, Any]) -> list[dict[str, Any]]:
    call = _next_call(model, body)
    if call is not None:
        block = {"type": "tool_use", "id": f"toolu_{len(model.asked)}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": DONE}
    message = {
        "id": f"msg_{len(model.asked)}", "type": "message", "role": "assistant", "model": body.get("model", "toy"),
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1},
    }  # fmt: skip
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": 20}},
        {"type": "message_stop"},
    ]  # fmt: skip


def _responses(model: ToolCaller, body: dict[str, Any]) -> list[dict[str, Any]]:
    call = _next_call(model, body)
    if call is not None:
        namespace, _, name = call[0].rpartition("__")
        number = len(model.asked)
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
        item |= {"arguments": json.dumps(call[1])} | ({"namespace": namespace} if namespace else {})
    else:
        content = [{"type": "output_text", "text": DONE, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    response = f"resp_{len(model.asked)}"
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return [
        {"type": "response.created", "response": {"id": response}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {"id": response, "status": "completed", "output": [item], "usage": usage},
        },
    ]
