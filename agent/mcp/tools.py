"""The tools: each asks the command line. Agents choose by their names, docstrings and the words of their arguments."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import Field

from agent.files import SUFFIX, throwaway_folder
from agent.mcp.commands import CommandLine, Facts
from agent.mcp.results import history_of, progress_words, result_of

WAIT_S = 50.0  # below the minute after which many clients give up on a call
STEPS_S = (1.0, 2.0, 5.0, 10.0, 20.0)  # between two reports of progress, each of which takes the run half a second
LEAST_S = 0.1  # of a question
GIVEN = "script_text"
FILE = re.compile(rf"/\S*{re.escape(SUFFIX)}/{GIVEN}")
OF_SHOW = ("runs", "decisions", "dials")  # what `best` leaves to `show`
UNDER_WAY = ("waiting", "running")
ANYWAY = "Try it although it lacks edits that were kept (missing_edits)."
TAKE_ANYWAY = "Replace local edits that nothing else keeps; they are put aside in a file that the answer names."

Tag = Annotated[str, Field(description="The name of another night than the latest.", max_length=100)]
Number = Annotated[int, Field(description="The attempt's number, as in history.", ge=0, lt=10**9)]
Seconds = Annotated[
    float,
    Field(description="Wait so many seconds at most; keep it below your time limit for a call.", ge=0, le=3600),
]
Message = Annotated[
    str,
    Field(
        description="What is changed, and why it should lower val_bpb. The first line is the title.",
        min_length=1,
        max_length=8000,
    ),
]
ScriptText = Annotated[
    str,
    Field(description="The whole edited script. Leave it out to try the script as it stands in the working tree."),
]
Budget = Annotated[
    float | None,
    Field(description="Training seconds of a run. For a new night only: one that is here keeps its own.", gt=0),
]


@dataclass(frozen=True, slots=True)
class Tools:
    commands: CommandLine

    # ---- trying ------------------------------------------------------------------------------------------------------

    async def try_edit(
        self,
        ctx: Context[Any, Any],
        message: Message,
        script_text: ScriptText = "",
        wait_s: Seconds = WAIT_S,
        anyway: Annotated[bool, Field(description=ANYWAY)] = False,
        budget_s: Budget = None,
        tag: Tag = "",
    ) -> CallToolResult:
        """Train, score and judge one edit of the training script, and record it as an attempt.

        This is how an idea is tested. It takes the night's training time, minutes by default, and some seconds for
        scoring; a promising edit gets further runs. The call waits up to wait_s. Where there is no verdict by then, the
        answer has the id of the try: call wait with it. Several tries queue up. Cancelling the call ends the waiting,
        not the try. The verdict has status (keep, discard or crash), reason, val_bpb (lower is better), how far to
        believe it, the traceback of a crash, and what to do next.
        """
        words = ["try", "--start", "--json", f"--message={message}", *_of_night(tag)]
        words += [] if budget_s is None else [f"--budget-s={budget_s:g}"]
        words += ["--anyway"] if anyway else []
        with _written(script_text) as file:
            with anyio.CancelScope(shield=True):  # a start that is cut off would be a try without an id
                answer = await self.commands.ask(*words, *([] if file is None else [f"--edit={file}"]))
        if answer.get("state") not in UNDER_WAY or wait_s <= 0:
            return result_of(_without_file(answer))
        return result_of(await self._verdict(ctx, str(answer["id"]), wait_s))

    async def wait(
        self,
        ctx: Context[Any, Any],
        id: Annotated[str, Field(description="As try_edit gave it, such as t0003.", pattern=r"^t\d{4,8}$")],
        wait_s: Seconds = WAIT_S,
    ) -> CallToolResult:
        """Wait up to wait_s for the verdict of a try that try_edit has started; call it again until it is there.

        Of a try that ended long ago it returns the verdict at once. status has the ids of all tries that are under way.
        """
        return result_of(await self._verdict(ctx, id, wait_s))

    async def _verdict(self, ctx: Context[Any, Any], id: str, wait_s: float) -> Facts:
        """Ask for a verdict until it is there or the time is over; report progress between the questions."""
        began_s, asked = anyio.current_time(), 0
        while True:
            left_s = max(LEAST_S, wait_s - (anyio.current_time() - began_s))
            step_s = min(left_s, STEPS_S[min(asked, len(STEPS_S) - 1)])
            answer = await self.commands.ask("try", f"--wait={id}", f"--for={step_s:g}", "--json")
            spent_s = anyio.current_time() - began_s
            if answer.get("state") not in UNDER_WAY or answer.get("error"):
                return _without_file(answer)
            if spent_s >= wait_s:
                return answer | {"next": f"there is no verdict yet; call wait with id {id}"}
            await ctx.report_progress(spent_s, wait_s, progress_words(answer))
            asked += 1

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def status(self, tag: Tag = "") -> CallToolResult:
        """Tell how the night stands: the best script and its gain, the noise of a score, what runs, the tries."""
        return result_of(await self.commands.ask("status", "--json", *_of_night(tag)))

    async def facts(self, tag: Tag = "") -> CallToolResult:
        """Tell what an author of edits needs to know: read it before the first edit, and again after a keep.

        Noise, speed, memory and curves of the night; which edits and which known ideas were tried, and how they ended;
        which dials were never turned; the functions that a script may call.
        """
        return result_of(await self.commands.ask("facts", "--json", *_of_night(tag)))

    async def history(
        self,
        limit: Annotated[int, Field(description="Of the latest attempts.", ge=1, le=300)] = 40,
        tag: Tag = "",
    ) -> CallToolResult:
        """List the attempts of the night, the latest last: a short form of what facts says of them.

        gain_bpb is the judge's estimate of the gain over the parent (above zero is better), and sure its probability.
        """
        answer = await self.commands.ask("results", "--json", *_of_night(tag))
        return result_of(answer if answer.get("error") else history_of(answer, limit))

    async def show(
        self,
        n: Number,
        log: Annotated[bool, Field(description="Also the end of its training log, as log_text.")] = False,
        tag: Tag = "",
    ) -> CallToolResult:
        """Tell everything about one attempt: hypothesis, verdict and its reasons, runs, the traceback of a crash."""
        facts = await self.commands.ask("show", str(n), "--json", *_of_night(tag))
        if log and not facts.get("error"):
            told = await self.commands.ask("show", str(n), "--log", "--json", *_of_night(tag))
            facts |= {"log_text": told.get("error") or told.get("text")}
        return result_of(facts)

    async def diff(self, n: Number, tag: Tag = "") -> CallToolResult:
        """Show an attempt's edit: the diff against its parent's script, and the dials that it turned."""
        return result_of(await self.commands.ask("diff", str(n), "--json", *_of_night(tag)))

    async def best(self, tag: Tag = "") -> CallToolResult:
        """Return the night's best script as text, with its facts. take puts it into the working tree instead."""
        with throwaway_folder() as folder:
            path = folder / GIVEN
            facts = await self.commands.ask("best", f"--script={path}", "--json", *_of_night(tag))
            if facts.get("error"):
                return result_of(facts)
            script = path.read_text(encoding="utf-8", errors="replace")
        shown = {name: value for name, value in facts.items() if name not in OF_SHOW}
        return result_of(shown | {"script": script})

    # ---- steering ----------------------------------------------------------------------------------------------------

    async def take(
        self,
        attempt: Annotated[
            Number | Literal["best", "confirmed"],
            Field(description="A number, best, or confirmed: the one that fresh seeds have confirmed."),
        ] = "best",
        anyway: Annotated[bool, Field(description=TAKE_ANYWAY)] = False,
        tag: Tag = "",
    ) -> CallToolResult:
        """Put an attempt's script into the working tree, to edit on from there or as the end of the work.

        No edit is lost: it refuses to replace one that neither a commit nor an attempt keeps. Index and HEAD stay as
        they are.
        """
        words = ["take", str(attempt), "--json", *_of_night(tag), *(["--anyway"] if anyway else [])]
        return result_of(await self.commands.ask(*words))

    async def note(
        self,
        text: Annotated[str, Field(description="One remark.", min_length=1, max_length=4000)],
        tag: Tag = "",
    ) -> CallToolResult:
        """Tell the models and agents that propose edits to this night something, from their next proposal on."""
        return result_of(await self.commands.ask("note", "--json", *_of_night(tag), "--", text))


def _of_night(tag: str) -> list[str]:
    return [f"--tag={tag}"] if tag else []


@contextmanager
def _written(script: str) -> Iterator[Path | None]:
    """Write a script that was given as text to a file, for the command that reads it; None where none was given."""
    if not script:
        yield None
        return
    with throwaway_folder() as folder:
        path = folder / GIVEN
        path.write_text(script, encoding="utf-8", errors="surrogatepass", newline="")
        yield path


def _without_file(answer: Facts) -> Facts:
    """Name the argument where a sentence names the file that it was written to, and that is gone by now."""
    error = answer.get("error")
    if not isinstance(error, str) or not FILE.search(error):
        return answer
    sentence = error.rpartition("; then: ")[0] or error  # what follows is a command with that file
    return answer | {"error": FILE.sub(GIVEN, sentence)}
