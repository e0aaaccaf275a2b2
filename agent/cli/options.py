"""Define the options that several commands share, and check their values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import ArgumentCollection, Group, Parameter, Token

from agent import invocation
from agent.experiment import Options
from agent.judging.judges import JUDGES
from agent.lab.hardware import user_path
from agent.lab.numbers import decimal, whole
from agent.pools import POOLS
from agent.proposers.registry import choices, help_lines

SCRIPT = Path(invocation.SCRIPT)


def read_by(read: Callable[[str], object]) -> Parameter:
    """Return what has cyclopts read a word by our rule: its own rounds fractions, and knows no home folder."""
    return Parameter(converter=lambda kind, tokens: read(tokens[0].value))


def _price(kind: object, tokens: Sequence[Token]) -> tuple[float, ...]:
    """Read the prices of input, of output and, if it is named, of input from a cache."""
    (token,) = tokens
    try:
        prices = tuple(map(decimal(0, 10**6), token.value.split(",")))
    except ValueError:
        prices = ()
    if len(prices) not in (2, 3):
        raise ValueError(
            f"{token.value!r} is not two prices, or three, in dollars for a million tokens, as in 1.25,10 or "
            f"1.25,10,0.125"
        )
    return prices


def _path(kind: object, tokens: Sequence[Token]) -> str:
    """Return a path that holds in every folder; a link stays one, as that to an environment's interpreter."""
    return str(user_path(tokens[-1].value).absolute())


def _paths(kind: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(_path(kind, [token]) for token in tokens)


def _one_of(names: Callable[[], Iterable[str]], explained: str, default: str) -> Parameter:
    """Return what takes one of these names, with its help."""

    def check(kind: object, name: str | None) -> None:
        if name is not None and name not in names():
            raise ValueError(f"Choose from {', '.join(names())}")

    return Parameter(validator=check, help=f"{explained} (default: {default})")


def _listed(explained: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {words}" for name, words in explained.items())


def file_at(out: Path | None, usual: Path) -> Path:
    """Return the file that --out names: in a folder that is there, the one of the usual name."""
    if out is None:
        return usual
    return out / usual.name if out.is_dir() else out


UserPath = Annotated[Path, read_by(user_path)]
Positive = Annotated[float, read_by(decimal())]
PositiveInt = Annotated[int, read_by(whole())]
Count = Annotated[int, read_by(whole(0, 999))]
Seed = Annotated[int, read_by(whole(0, 2**32 - 1))]
Metric = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
Message = Annotated[str, Parameter(name=["--message", "-m"], allow_leading_hyphen=True)]


def _grouped(title: str) -> Parameter:
    """Return what puts options below a title of the help, and refuses none and null, which cyclopts takes for None."""

    def check(options: ArgumentCollection) -> None:
        for option in options:
            if option.tokens and option.value is None:
                raise ValueError(f"{option.name} has no such value; leave it out for its default")

    return Parameter(group=Group(title, validator=check))


JUDGING, SAFETY, OTHERS = _grouped("Judging"), _grouped("Safety"), _grouped("Scripts of any kind")
DEVICES, IDEAS = _grouped("Several devices"), _grouped("Where ideas come from")
JUDGE = _one_of(lambda: JUDGES, _listed({name: judge.words for name, judge in JUDGES.items()}), Options().judge)
POOL = _one_of(lambda: POOLS, _listed(POOLS), Options().pool)
PROPOSER = _one_of(choices, help_lines(), Options().proposer)


class _Named:
    """Tell which options of a night the command line names."""

    @property
    def named(self) -> dict[str, Any]:
        names = {field.name for field in fields(Options)}
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name in names}  # type: ignore[arg-type]
        return {name: value for name, value in named.items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True)
class NightOptions(_Named):
    """The options of a night; None leaves the choice to the harness, or to the resumed night.

    Args:
        budget_s: training time of every run (default: TIME_BUDGET_S of prepare.py, five minutes; a night keeps its own)
        seed: the seed of the first run of every attempt, and of the search (default: 0)
        script: the training script (default: train_mlx.py)
        metric: judge by a number that any script prints itself, in a line NAME: NUMBER after its last line ---, or
            writes to summary.json; -NAME where higher is better. Nothing checks such a number (docs/script.md)
        read: a file or folder that such a script may read; may be given several times
        python: the interpreter of such a script, as in .venv/bin/python (default: nightshift's own)
        report: write report.html into the night's folder after every attempt, where runs take five seconds or more
            (default: yes)
        confirm: with --judge greedy: further seeds for an edit before it is kept (default: 0)
        plausible_gain: do not keep an edit that gains more than this, in percent (default: 20)
        early_stop: from 40% of the budget on, end a run whose training loss forecasts a score clearly worse than the
            best one. An edit that changes the training loss itself, such as label smoothing, looks worse than it is
        sandbox: auto: the strongest that works here; require: bubblewrap or Seatbelt, or refuse; off: scripts run with
            your rights (default: auto)
        allowance_s: time beyond the budget for start, compilation and saving, before a run is killed (default: 300 for
            attempt 0, then a little more than it took)
        limit_s: the longest that a run may take in all, in place of --allowance-s
        dry_run: try an edit of code for a few steps of training and scoring before its runs (default: yes)
    """

    budget_s: Positive | None = None
    seed: Seed | None = None
    script: UserPath = SCRIPT
    metric: Annotated[Metric, OTHERS] = None
    read: Annotated[tuple[str, ...] | None, OTHERS, Parameter(converter=_paths, n_tokens=1)] = None
    python: Annotated[str | None, OTHERS, Parameter(converter=_path)] = None
    report: Annotated[bool | None, Parameter(negative="--no-report")] = None
    judge: Annotated[str | None, JUDGING, JUDGE] = None
    confirm: Annotated[Count | None, JUDGING] = None
    plausible_gain: Annotated[Positive | None, JUDGING] = None
    early_stop: Annotated[bool | None, JUDGING, Parameter(negative="--no-early-stop")] = None
    sandbox: Annotated[Literal["auto", "require", "off"] | None, SAFETY] = None
    allowance_s: Annotated[Positive | None, SAFETY] = None
    limit_s: Annotated[Positive | None, SAFETY] = None
    dry_run: Annotated[bool | None, SAFETY, Parameter(negative="--no-dry-run")] = None


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions(_Named):
    """The options for several devices, and for the proposers.

    Args:
        workers: train N experiments at the same time, each on its own device: a GPU, or a set of cores; no two share
            one (default: 1)
        cores_each: give each worker this many cores; with one worker, the other cores stay free (default: all cores,
            divided evenly)
        ray_address: address of the cluster's head: HOST:PORT, or auto for one on this machine (default: start one)
        llm: PROVIDER:MODEL[@URL], as in openai:gpt-5, anthropic:claude-sonnet-4-5 or
            openai:qwen3-coder@http://localhost:11434/v1
        price: the model's prices IN,OUT[,CACHED], in dollars for a million tokens; CACHED is input that the server has
            in a cache (default: as other input); --max-cost needs them
        llm_max_tokens: most tokens of one answer, thinking included
        max_cost: ask language models no more questions once this night's have cost this, in dollars
        agent: a coding agent's command line, run in a throwaway clone with your rights (docs/agents.md); the task
            replaces {task} in it, or else comes on its standard input
        agent_minutes: how long the agent may take for one proposal (default: 10)
    """

    workers: Annotated[PositiveInt | None, DEVICES] = None
    cores_each: Annotated[PositiveInt | None, DEVICES] = None
    pool: Annotated[str | None, DEVICES, POOL] = None
    ray_address: Annotated[str | None, DEVICES] = None
    proposer: Annotated[str | None, IDEAS, PROPOSER] = None
    llm: Annotated[str | None, IDEAS] = None
    price: Annotated[tuple[float, ...] | None, IDEAS, Parameter(converter=_price, n_tokens=1)] = None
    llm_max_tokens: Annotated[PositiveInt | None, IDEAS] = None
    max_cost: Annotated[Positive | None, IDEAS] = None
    agent: Annotated[str | None, IDEAS, Parameter(name="--command", allow_leading_hyphen=True)] = None
    agent_minutes: Annotated[Positive | None, IDEAS] = None
