"""Start `nightshift mcp` as a child process, and talk to it through the client of the official SDK.

The SDK takes a second to import: who makes a client does, and who only collects the tests does not.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nights import command, environment

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp.types import CallToolResult


@dataclass
class Agent:
    """A coding agent without a model: calls of tools, one after another."""

    portal: BlockingPortal
    client: Client
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)

    def call(self, tool: str, limit_s: float | None = None, **arguments: Any) -> CallToolResult:
        async def called() -> CallToolResult:
            return await self.client.call_tool(tool, arguments, limit_s, progress_callback=self._hear)

        return self.portal.call(called)

    def facts(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a call that succeeds."""
        result = self.call(tool, **arguments)
        assert not result.is_error, result.content
        assert result.structured_content is not None
        return result.structured_content

    def error(self, tool: str, **arguments: Any) -> str:
        """Return the sentence of a call that fails."""
        result = self.call(tool, **arguments)
        assert result.is_error, result.structured_content
        return result.content[0].text  # type: ignore[union-attr]

    async def _hear(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


@contextlib.contextmanager
def agent_in(folder: Path, *words: str, **env: str) -> Iterator[Agent]:
    """Start the server in a folder for the `with` block, and connect to it."""
    from anyio.from_thread import start_blocking_portal
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    program, *arguments = command("mcp", *words)
    assert program == sys.executable
    server = StdioServerParameters(command=program, args=arguments, cwd=folder, env=environment(**env))
    with start_blocking_portal() as portal, contextlib.ExitStack() as undo:
        # the SDK's own choice is what was sys.stderr when it was imported, which a test may have closed since
        connection = portal.wrap_async_context_manager(Client(stdio_client(server, errlog=sys.stderr)))
        client = connection.__enter__()
        undo.callback(connection.__exit__, None, None, None)  # a failed test is no fault of the connection
        yield Agent(portal, client)
