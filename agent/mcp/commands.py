"""Run a command of nightshift in a child process, and return the JSON object that it answers."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from agent.invocation import own_command
from agent.text import one_line
from agent.view.answer import SCHEMA_VERSION

LIMIT_S = 45.0  # of one command: clients give up on a call after a minute
SAID_CHARS = 2000  # of the last words of a command without an answer
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Ask the command line in the folder of a user's script: its answers are all that the tools know."""

    folder: Path

    async def ask(self, *words: str) -> Facts:
        """Return the object that a command prints, or its failure in that form; kill it if the call is cancelled."""
        if any("\0" in word for word in words):
            return failure("an argument holds a null character; leave it out")
        command = own_command(*words)
        try:
            with anyio.fail_after(LIMIT_S):
                done = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False, cwd=self.folder)
        except TimeoutError:
            return failure(f"nightshift {words[0]} gave no answer within {LIMIT_S:g} s; call again when less runs here")
        except OSError as error:  # the words are too long, or there is no memory for a process
            return failure(f"nightshift {words[0]} cannot be started: {error.strerror}; shorten the arguments")
        return _answer(words[0], done)


def failure(error: str, exit_code: int = 2) -> Facts:
    return {"schema_version": SCHEMA_VERSION, "error": error, "exit_code": exit_code}


def _answer(name: str, done: subprocess.CompletedProcess[bytes]) -> Facts:
    out, err = (text.decode(errors="replace").strip() for text in (done.stdout, done.stderr))
    try:
        answer = json.loads(out)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    sentence = err.rpartition("nightshift: ")[2]
    return failure(one_line(sentence, SAID_CHARS) or f"nightshift {name} ended without a word", done.returncode or 1)
