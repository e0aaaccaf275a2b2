"""The words of the command line: what each command takes, and what is refused before anything begins."""

import argparse
import math
import shlex
from pathlib import Path
from typing import NoReturn, TypeAlias

from agent import invocation
from agent.errors import UsageError
from agent.invocation import typed
from agent.judging.judge import JUDGES
from agent.proposers.llm.chat import MAX_TOKENS
from agent.records.terms import Terms
from agent.runs.train import FIRST_ALLOWANCE_S
from agent.sandbox.box import Mode

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
PROPOSERS = ("search", "llm", "command", "queue", "mix")
CONFIRM_RUNS = 30  # what the simulations of benchmarks/judge_power.py take for a night of 96 runs
SCRIPT = Path(invocation.SCRIPT)
EXAMPLES = {
    "run": "five-minute experiments until you stop it",
    "run --experiments 3 --budget-s 30": "a first look",
    "run --hours 8 --tag wide": "a night; the same command with the tag goes on after a stop",
    "run --proposer mix --llm openai:gpt-5": "ideas from a model, the search and the queue, as each earns them",
    'try -m "warm up longer, to ..."': "one edit of yours: train, score, judge, record",
    "status": "how it goes, and results: the ledger as a table",
    "show 4": "one attempt: what, why, how it ended, and diff 4: its edit",
}
KEPT = """\
A night keeps --budget-s, --seed and the options of the three groups below: who goes on with it repeats none of them.
--judge, --confirm, --plausible-gain and --allowance-s cannot change while it goes on, since verdicts before and after
would not compare, and --sandbox only to a stronger one. Of the others the night takes what is given, and keeps it.
"""
TRY = (
    "Try one edit of yours: commit, train, score, judge and record it, and print the verdict. The baseline is the "
    "script as it is committed; a night that is here already goes on, as it was opened. An edit that cannot be tried "
    "opens none."
)
CONFIRM = (
    "Measure the best script of a night against its baseline, with fresh seeds and on text that no attempt was judged "
    "by; take doubtful edits out to see what they are worth, and put the script without those that bring nothing on "
    "the branch ...-confirmed. Where fresh seeds leave it open whether there is any gain, no branch is made."
)


class Parser(argparse.ArgumentParser):
    """Raises UsageError for words that it does not take, where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage())


def parser() -> Parser:
    top = Parser(
        prog=typed(),
        epilog=_examples(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Research on one training script overnight: propose, commit, train, score, keep what is better.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_run(commands)
    _add_confirm(commands)
    _add_try(commands)
    _add_steering(commands)
    _add_reading(commands)
    _add_profile(commands)
    health = _add(commands, "doctor", "check Python, MLX, BLAS, script, git, disk, memory and data")
    health.add_argument("--script", type=Path, default=SCRIPT, metavar="PATH", help="default: %(default)s")
    health.add_argument("--json", action="store_true", help="print the findings as JSON")
    return top


def _examples() -> str:
    lines = [f"  {typed()} {words}" for words in EXAMPLES]
    width = max(map(len, lines))
    told = (f"{line:<{width}}  {what}" for line, what in zip(lines, EXAMPLES.values(), strict=True))
    return "\n".join(["examples:", *told])


def _add_run(commands: Commands) -> None:
    night = _add(commands, "run", "run a night, or go on with one", epilog=KEPT)
    night.add_argument(
        "--experiments",
        type=positive_int,
        metavar="N",
        help="end after N proposals beyond attempt 0, counted over the whole night",
    )
    night.add_argument(
        "--hours",
        type=positive,
        metavar="H",
        help="begin nothing, be it another seed or the asking for an idea, that would end after H hours, judged by the "
        "night's longest so far; what is undecided then goes on with the next call",
    )
    night.add_argument(
        "--dawn",
        type=count,
        metavar="RUNS",
        help="runs kept for the end, to confirm as `nightshift confirm` does, counted over the whole night (default: "
        "an eighth of --hours, else 0)",
    )
    _add_lab(night, "the date, and a new night; one that is here already goes on")
    _add_sources(night)


def _add_confirm(commands: Commands) -> None:
    dawn = _add(commands, "confirm", "re-test what a night has found, and drop what brings nothing", CONFIRM, KEPT)
    dawn.add_argument(
        "--runs",
        type=positive_int,
        default=CONFIRM_RUNS,
        metavar="N",
        help="to make at most, beyond those that were made before (default: %(default)s)",
    )
    dawn.add_argument("--show", action="store_true", help="print what was found by now, and make no run")
    to = "write the findings there, too, or why there are none; -: to stdout"
    dawn.add_argument("--json", type=Path, metavar="FILE", help=to)
    _add_lab(dawn, "the latest")


def _add_try(commands: Commands) -> None:
    one = _add(commands, "try", "train, score, judge and record one edit of yours", TRY, KEPT)
    one.add_argument("-m", "--message", default="", metavar="TEXT", help="what and why; title: its first line")
    one.add_argument(
        "--json", action="store_true", help="print the verdict, or why there is none, as JSON: nothing else on stdout"
    )
    one.add_argument("--edit", type=Path, metavar="FILE", help="the edited script, where it is not --script itself")
    _add_lab(one, "the latest, or a new one where there is none")


def _add_lab(night: argparse.ArgumentParser, tag: str) -> None:
    """What everything that trains takes; tag: which night it is where none is named."""
    night.add_argument(
        "--budget-s",
        type=positive,
        metavar="S",
        help="training time of every run (default: TIME_BUDGET_S of prepare.py, five minutes; a night keeps its own)",
    )
    night.add_argument("--tag", metavar="T", help=f"the night's name (default: {tag})")
    night.add_argument(
        "--seed", type=seed, metavar="K", help="of the first run of every attempt, and of the search (default: 0)"
    )
    night.add_argument("--script", type=Path, default=SCRIPT, metavar="PATH", help="default: %(default)s")
    judging = night.add_argument_group("judging")
    judging.add_argument(
        "--judge",
        choices=tuple(JUDGES),
        help="balanced: further seeds where they pay, provisional keeps; greedy: one lower run is enough; "
        f"strict: hardly ever wrong, and slow (default: {Terms().judge})",
    )
    judging.add_argument(
        "--confirm",
        type=count,
        metavar="N",
        help=f"with --judge greedy: measure what would be kept with N more seeds first (default: {Terms().confirm})",
    )
    judging.add_argument(
        "--plausible-gain",
        type=positive,
        metavar="PERCENT",
        help=f"a larger gain in one step is shown, not kept (default: {Terms().plausible_gain:g})",
    )
    judging.add_argument(
        "--early-stop",
        action=argparse.BooleanOptionalAction,
        help="end a run whose training loss, from 40%% of the budget on, forecasts a score clearly above the "
        "incumbent's, by what the night has learnt of losses and scores. An edit that changes what the training loss "
        "means, such as label smoothing, looks worse to it than it is",
    )
    safety = night.add_argument_group("safety")
    safety.add_argument(
        "--sandbox",
        choices=[str(mode) for mode in Mode],
        help="auto: the strongest that works here; require: bubblewrap or Seatbelt, or refuse; off: scripts run with "
        f"your rights (default: {Terms().sandbox})",
    )
    safety.add_argument(
        "--allowance-s",
        type=positive,
        metavar="S",
        help="for start, compilation and saving, beyond the budget, before a run is killed (default: "
        f"{FIRST_ALLOWANCE_S:g} for attempt 0, then what that took and little more)",
    )
    safety.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        help="a second of training and scoring before edits of code are given a minute or more (default: yes)",
    )


def _add_sources(night: argparse.ArgumentParser) -> None:
    ideas = night.add_argument_group("where ideas come from")
    ideas.add_argument(
        "--proposer",
        choices=PROPOSERS,
        help="search: turns dials, needs no key; llm: a language model; command: any coding agent; queue: what "
        f"`nightshift submit` was given; mix: all that is set up, each as it earns (default: {Terms().proposer})",
    )
    ideas.add_argument(
        "--llm",
        metavar="SPEC",
        help="PROVIDER:MODEL[@URL], as in openai:gpt-5, anthropic:claude-sonnet-4-5 or "
        "openai:qwen3-coder@http://localhost:11434/v1",
    )
    ideas.add_argument("--llm-url", metavar="URL", help="where the model is served, if not in SPEC")
    ideas.add_argument(
        "--price",
        type=price,
        metavar="IN,OUT",
        help="of the model, in dollars for a million tokens: needed by --max-cost",
    )
    ideas.add_argument(
        "--llm-max-tokens",
        type=positive_int,
        metavar="N",
        help=f"of one answer, thinking included (default: {MAX_TOKENS:,})",
    )
    ideas.add_argument(
        "--llm-stream",
        action=argparse.BooleanOptionalAction,
        help="have answers streamed, for servers that drop silent connections",
    )
    ideas.add_argument(
        "--max-cost",
        type=positive,
        metavar="USD",
        help="ask language models nothing further once those of this night have cost this",
    )
    ideas.add_argument(
        "--command",
        dest="agent",
        type=agent_command,
        metavar="CMD",
        help="a coding agent's command line, run in a throwaway clone (docs/agents.md); {task} in it is the task's "
        "text, which otherwise comes on its standard input; it runs with your rights",
    )
    ideas.add_argument(
        "--agent-minutes",
        type=positive,
        metavar="M",
        help=f"how long the agent may take for one proposal (default: {Terms().agent_minutes:g})",
    )


def _add_steering(commands: Commands) -> None:
    drop = _add(commands, "submit", "put a script or a patch into the queue of --proposer queue and mix")
    drop.add_argument("file", type=Path, metavar="FILE", help="a whole script (.py), or a patch of it (.patch, .diff)")
    drop.add_argument(
        "-m", "--message", required=True, metavar="TEXT", help="what and why; its first line is the title"
    )
    drop.add_argument("--script", type=Path, default=SCRIPT, metavar="PATH", help="default: %(default)s")
    word = _add(commands, "note", "tell a model or an agent something, from its next proposal on")
    word.add_argument("text", nargs="+", metavar="TEXT", help='as in: nightshift note "leave the depth alone"')
    word.add_argument("--tag", help="of this night (default: the running one, else the latest)")


def _add_reading(commands: Commands) -> None:
    table = _add(commands, "results", "the ledger as a table")
    table.add_argument("--tag", help="this night only (default: the latest)")
    table.add_argument("--all", action="store_true", help="every night, also those that came with the repository")
    _add(commands, "status", "what runs now, and how the latest night stands")
    end = _add(commands, "stop", "end the running night after its current run")
    end.add_argument("--now", action="store_true", help="end the run too; it is redone when the night is resumed")
    for name, text in (("show", "everything about one attempt"), ("diff", "an attempt's edit")):
        one = _add(commands, name, text)
        one.add_argument("number", type=int, metavar="N", help="the attempt's number")
        one.add_argument("--tag", help="of this night (default: the latest)")
    picture = _add(commands, "plot", "draw the progress: kept, discarded, crashed, running minimum")
    nights = picture.add_mutually_exclusive_group()
    nights.add_argument(
        "--tag", action="append", default=[], metavar="T", help="this night (default: the latest); may be repeated"
    )
    nights.add_argument("--all", action="store_true", help="every night, also those that came with the repository")
    picture.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png or .svg file")


def _add_profile(commands: Commands) -> None:
    look = _add(commands, "profile", "where the time of a training step goes, phase by phase")
    look.add_argument("--script", type=Path, default=SCRIPT, metavar="PATH", help="default: %(default)s")
    look.add_argument("--steps", type=positive_int, default=16, metavar="N", help="to train (default: %(default)s)")
    look.add_argument("--seed", type=seed, default=0, metavar="K", help="default: %(default)s")
    to = "write the figures there, too, or why there are none; -: to stdout"
    look.add_argument("--json", type=Path, metavar="FILE", help=to)
    look.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="run once more under the GPU's own recorder: Metal System Trace (name a .trace file; unverified on a Mac) "
        "or Nsight Systems",
    )


def _add(
    commands: Commands, name: str, text: str, description: str | None = None, epilog: str | None = None
) -> argparse.ArgumentParser:
    description = description or text[0].upper() + text[1:] + "."
    return commands.add_parser(name, help=text, description=description, epilog=epilog)


# ---- values ----------------------------------------------------------------------------------------------------------


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return value


def positive_int(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def count(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 999")
    return int(text)


def seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return int(text)


def price(text: str) -> tuple[float, float]:
    parts = [part.strip() for part in text.split(",")]
    try:
        usd_in, usd_out = (float(part) for part in parts)
    except ValueError:
        usd_in = usd_out = math.nan
    if not (0 <= usd_in < 1e6 and 0 <= usd_out < 1e6):
        raise argparse.ArgumentTypeError(f"{text!r} is not two prices, in dollars for a million tokens, as in 1.25,10")
    return usd_in, usd_out


def agent_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no command line ({error})") from error
    if not words:
        raise argparse.ArgumentTypeError("the command line is empty")
    return text
