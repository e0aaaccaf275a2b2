"""The options of a night: the words that run, confirm and try share, and the records that they become."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agent import invocation
from agent.cli.words.values import agent_command, count, positive, positive_int, price, seed
from agent.judging.judges import JUDGES
from agent.proposers.llm.chat import MAX_TOKENS
from agent.proposers.registry import choices, help_lines
from agent.records.terms import POOLS, Terms
from agent.runs.train import FIRST_ALLOWANCE_S
from agent.sandbox.box import Mode
from agent.view.answer import Answer

SCRIPT = Path(invocation.SCRIPT)
KEPT = """\
A night keeps --budget-s, --seed and the options of the groups above: who goes on with it repeats none of them.
--judge, --confirm, --plausible-gain and --allowance-s cannot change while it goes on, since verdicts before and after
would not compare, and --sandbox only to a stronger one. On a CPU a worker keeps the number of its cores, for the same
reason. Of the others the night takes what is given, and keeps it.
"""


@dataclass(frozen=True, slots=True)
class NightOptions:
    """The options of all commands that train; None leaves the choice to the harness, or to a night that goes on."""

    script: Path
    tag: str | None
    budget_s: float | None
    seed: int | None
    terms: Mapping[str, Any]  # those that the command line names


@dataclass(frozen=True, slots=True)
class RunOptions:
    night: NightOptions
    experiments: int | None
    hours: float | None
    dawn: int | None  # runs
    dataset: str | None  # to be prepared first


@dataclass(frozen=True, slots=True)
class ConfirmOptions:
    night: NightOptions
    runs: int
    show: bool
    answer: Answer


@dataclass(frozen=True, slots=True)
class TryOptions:
    night: NightOptions
    message: str
    edit: Path | None  # None: the script itself was edited
    anyway: bool  # though it lacks kept edits
    start: bool
    wait: str | None  # the id of a try that was started
    for_s: float | None  # to wait at most; None: until the verdict
    cancel: str | None  # an id
    work: bool  # through the line of those that were started
    answer: Answer


def night_options(words: argparse.Namespace) -> NightOptions:
    """Collect the options of a night from a parsed command line."""
    named = {field.name: getattr(words, field.name, None) for field in fields(Terms)}
    terms = {name: value for name, value in named.items() if value is not None}
    return NightOptions(words.script, words.tag, words.budget_s, words.seed, terms)


def add_script(words: argparse.ArgumentParser) -> None:
    words.add_argument(
        "--script", type=Path, default=SCRIPT, metavar="PATH", help="the training script (default: %(default)s)"
    )


def add_night(words: argparse.ArgumentParser, tag: str) -> None:
    """Add the options of all commands that train; tag says which night it is where none is named."""
    words.add_argument(
        "--budget-s",
        type=positive,
        metavar="S",
        help="training time of every run (default: TIME_BUDGET_S of prepare.py, five minutes; a night keeps its own)",
    )
    words.add_argument("--tag", metavar="TAG", help=f"the night's name (default: {tag})")
    words.add_argument(
        "--seed", type=seed, metavar="K", help="of the first run of every attempt, and of the search (default: 0)"
    )
    add_script(words)
    words.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        help="write report.html into the night's folder after every attempt, where runs take five seconds or more "
        "(default: yes)",
    )
    _add_judging(words.add_argument_group("judging"))
    _add_safety(words.add_argument_group("safety"))


def _add_judging(judging: argparse._ArgumentGroup) -> None:
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


def _add_safety(safety: argparse._ArgumentGroup) -> None:
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


def add_workers(words: argparse.ArgumentParser) -> None:
    workers = words.add_argument_group("several devices")
    workers.add_argument(
        "--workers",
        type=positive_int,
        metavar="N",
        help="train N experiments at the same time, each on its own device: a GPU, or a set of cores; no two share one "
        f"(default: {Terms().workers})",
    )
    workers.add_argument(
        "--cores-each",
        type=positive_int,
        metavar="C",
        help="give each worker C cores; with one worker, this leaves the other cores free (default: all cores, divided "
        "evenly)",
    )
    workers.add_argument(
        "--pool",
        choices=POOLS,
        help="local: workers on this machine; ray: on a Ray cluster; keep it in a private network, since anyone who "
        f"reaches its ports can run programs there (default: {Terms().pool})",
    )
    workers.add_argument(
        "--ray-address",
        metavar="A",
        help="of the cluster's head: HOST:PORT, or auto for one that runs on this machine (default: start one)",
    )


def add_sources(words: argparse.ArgumentParser) -> None:
    ideas = words.add_argument_group("where ideas come from")
    ideas.add_argument(
        "--proposer",
        choices=choices(),
        help=f"{help_lines()} (default: {Terms().proposer})",
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
        metavar="IN,OUT[,CACHED]",
        help="of the model, in dollars for a million tokens, and of input that its server has in a cache (default: as "
        "any other input): needed by --max-cost",
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
