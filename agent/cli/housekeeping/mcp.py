"""The commands as tools for coding agents: nightshift mcp."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from agent.cli.words.parser import Subcommand
from agent.errors import MachineError, NightError
from agent.invocation import command_for

MCP_TEXT = (
    "Serve try, wait, status, facts, history, show, diff, best, take and note as tools of the Model Context Protocol, "
    "on stdin and stdout. A coding agent starts this command itself; docs/agents.md says how it is told to."
)


@dataclass(frozen=True, slots=True)
class McpOptions:
    repo: Path | None


def mcp(options: McpOptions) -> int:
    folder = options.repo or Path.cwd()
    if not folder.is_dir():
        raise NightError(f"--repo {folder} is no folder; name the one of your script")
    try:
        from agent.mcp.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        install = command_for("mcp")
        raise MachineError(f"nightshift mcp needs the package mcp, 2.3 or later; install it: {install}") from error
    if sys.stdin.isatty():
        print("waiting for an agent that speaks MCP on stdin (docs/agents.md); Ctrl-C ends this", file=sys.stderr)
    serve(folder)
    return 0


def _mcp_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--repo", type=Path, metavar="DIR", help="the folder of your script (default: the current one)")


MCP = Subcommand("mcp", "the commands as tools for coding agents", McpOptions, mcp, _mcp_words, MCP_TEXT)
