"""Real repositories, real nights: what the tests of the harness stand on."""

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal
from unittest import mock

import pytest

from agent.clock import Stopwatch
from agent.errors import Exhausted
from agent.experiment import Attempt, Options, Proposal
from agent.judging.judges import Greedy
from agent.night import opening
from agent.night.limits import Limits
from agent.night.lock import Stop
from agent.night.loop import run_night
from agent.night.state import NightContext
from agent.pools.pool import LocalPool
from agent.proposers.proposer import Briefing, Proposer
from agent.records.journal import Journal
from agent.records.place import Place, known_night
from agent.runs.fixed import probe
from agent.runs.runner import Runner
from agent.sandbox import landlock
from agent.sandbox.sandboxes import Bubblewrap, Landlock, Sandbox, candidates, choose
from agent.sandbox.supervisor import ResourceLimits, limits_of_machine
from agent.script.contract import fixed_files
from agent.work import LOCAL, WHOLE, DeviceSlot, Doing, Progress, Work

PROJECT = Path(__file__).parents[1]
SCRIPTS = Path(__file__).parent / "scripts"
BUDGET_S = 0.05
ANSWERS: dict[object, dict[str, Any]] = {}
SCRIPT = PROJECT / "train_mlx.py"
SMALL = {"DEPTH": 2, "ASPECT_RATIO": 32, "HEAD_DIM": 32, "BATCH_ROWS": 2, "LOG_EVERY_S": 0.0}


def unigram(**dials: object) -> str:
    """The deterministic test script with some of its constants set; SHARPNESS nearer to 1 scores better."""
    text = (SCRIPTS / "unigram.py").read_text()
    for name, value in dials.items():
        text, count = re.subn(rf"(?m)^{name} = .*?(  #|$)", f"{name} = {value!r}\\1", text)
        assert count == 1, name
    return text


BROKEN = unigram().replace("    parser = argparse", "    raise ValueError('no such width')\n    parser = argparse")


def git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    return subprocess.run(
        ["git", *author, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def make_repository(root: Path, script: str) -> Path:
    """A user's repository: the script, the fixed files beside it, one commit."""
    shutil.copytree(Path(first_repository(script).name, "user"), root, symlinks=True)
    git(root, "update-index", "-q", "--refresh")  # git's index knows files by their inodes
    return root


@cache
def first_repository(script: str) -> "tempfile.TemporaryDirectory[str]":
    """Make the repository with this script that all others are copies of, as copying costs a tenth of making."""
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name, "user")
    root.mkdir()
    for name in fixed_files(PROJECT, script):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECT / name, root / name)
    (root / "train_mlx.py").write_text(script)
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Someone")
    git(root, "config", "user.email", "someone@example.org")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return folder


@dataclass(frozen=True)
class Grounds:
    """A user's repository and the command line in it."""

    root: Path

    def nightshift(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """In this process, which has imported all of it long ago: a fresh one would take a second to."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with contextlib.ExitStack() as undo:
                undo.enter_context(contextlib.chdir(self.root))
                undo.enter_context(mock.patch.dict(os.environ, environment(**env)))
                undo.enter_context(diverted("stdout", out))
                undo.enter_context(diverted("stderr", err))
                undo.enter_context(mock.patch.object(opening, "probe", asked_once))
                code = exit_code(arguments)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())

    def nightshift_process(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """As nightshift(), where its start is what is looked at."""
        return subprocess.run(
            command(*arguments), cwd=self.root, env=environment(**env), capture_output=True, text=True, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(*arguments),
            cwd=self.root,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments)

    def attempts(self, tag: str) -> tuple[Attempt, ...]:
        with Journal.read(self.folder(tag) / "journal.sqlite") as journal:
            return journal.attempts()

    def folder(self, tag: str) -> Path:
        return self.root / "experiments" / "nights" / tag

    def rows(self) -> list[dict[str, str]]:
        header, *lines = [line.split("\t") for line in (self.root / "results.tsv").read_text().splitlines()]
        return [dict(zip(header, line, strict=True)) for line in lines]

    def try_scripts(self, tag: str, scripts: Sequence[str], **options: object) -> "Quiet":
        """A night in this process that proposes these scripts one after another."""

        with scripted_context(self.root, tag, scripts, **options) as context:
            run_night(context)
        return context.watcher  # type: ignore[return-value]


def command(*arguments: str) -> list[str]:
    """As the installed command, which does not look for modules in the user's folder."""
    return [sys.executable, "-P", "-m", "agent", *arguments]


def exit_code(arguments: Sequence[str]) -> int:
    """Of the command line in this process."""
    from agent.__main__ import main  # later than the scripts that import this module and are soon killed

    try:
        return main(arguments)
    except SystemExit as end:  # argparse's own
        return int(end.code or 0)


def options_of(*words: str) -> dict[str, Any]:
    """The arguments that the words of a command line become."""
    from agent.cli.main import app_of, command_named

    app = app_of(command_named(words[0]), words[0])
    return dict(app.parse_args(list(words[1:]), exit_on_error=False, print_error=False)[1].arguments)


def named_options(*words: str) -> dict[str, Any]:
    """The options that the words of `run` name."""
    given = options_of("run", *words)
    return {name: value for part in ("night", "more") if part in given for name, value in given[part].named.items()}


@contextlib.contextmanager
def diverted(name: Literal["stdout", "stderr"], file: IO[str]) -> Iterator[None]:
    """What this process and its children write there goes to the file."""
    number = {"stdout": 1, "stderr": 2}[name]
    getattr(sys, name).flush()
    kept = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        with os.fdopen(number, "w", closefd=False) as ours, mock.patch.object(sys, name, ours):
            yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(PROJECT), "COLUMNS": "200", **more}


def python_path(first: Path) -> str:
    """For a subprocess: this folder before what this process was told, through which MLX itself may be found."""
    return os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])


@dataclass(frozen=True)
class Scripted(Proposer):
    """Proposes what it was given, each once."""

    scripts: Sequence[str]
    name = "scripted"

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        number = briefing.number
        if number > len(self.scripts):
            raise Exhausted("no more scripts")
        return [Proposal.of(self.scripts[number - 1], f"script {number}", "It might be better.", "scripted")]


class Quiet:
    """A watcher that only remembers what was said."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.progress: list[Progress] = []

    def run_began(self, attempt: Attempt, seed: int, worker: str) -> None: ...
    def scoring_began(self, attempt: Attempt, worker: str) -> None: ...
    def attempt_settled(self, attempt: Attempt) -> None: ...

    def work_began(self, attempt: Attempt, work: Work) -> None:
        if work.doing is Doing.TRAINING:
            self.run_began(attempt, work.seed or 0, work.worker)
        elif work.doing is Doing.SCORING:
            self.scoring_began(attempt, work.worker)

    def progressed(self, progress: Progress | None, worker: str = LOCAL) -> None:
        if progress is not None:
            self.progress.append(progress)

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)


@contextlib.contextmanager
def scripted_context(
    root: Path,
    tag: str,
    scripts: Sequence[str],
    *,
    allowance_s: float | None = 60.0,
    sandbox: str | Sandbox = "off",
    confirm: int = 0,
    plausible_gain: float = 1.0,
    early_stop: bool = False,
    budget_s: float = BUDGET_S,
) -> Iterator[NightContext]:
    place = Place.of(root / "train_mlx.py")
    mode = sandbox if isinstance(sandbox, str) else "auto"
    options = Options("greedy", confirm, 100 * plausible_gain, allowance_s, mode, early_stop)
    with mock.patch.object(opening, "probe", asked_once):
        night = opening.open_night(opening.Request(place, tag, budget_s), known_night(place, tag), options, None)
    stop, watcher = Stop(place.folder(tag)), Quiet()
    sandbox = choose(sandbox) if isinstance(sandbox, str) else sandbox
    limits = limits_of_machine()
    runner = Runner(night, place.folder(tag), sandbox, limits, lambda: stop.now, watcher.progressed)
    with Journal.resume(place.journal(tag)) as journal, contextlib.closing(LocalPool([runner])) as pool:
        yield NightContext(place, journal, runner, pool, [Scripted(scripts)], Greedy(confirm), watcher, stop, Limits())


def with_limits(context: NightContext, limits: ResourceLimits) -> NightContext:
    """The night with other limits for its runs."""
    runner = dataclasses.replace(context.runner, resource_limits=limits)
    return dataclasses.replace(context, runner=runner, pool=LocalPool([runner]))


def asked_once(
    folder: Path,
    data: str | None = None,
    dataset: str | None = None,
    slot: DeviceSlot = WHOLE,
    used_in: Path | None = None,
    reported: str | None = None,
) -> dict[str, Any]:
    """As probe(), which imports MLX in a process; a question about a corpus that is there is asked once.

    Its answer does not depend on the cache, of which most tests have one of their own.
    """
    if dataset or not (data or reported or os.environ.get("NIGHTSHIFT_DATA")):
        return probe(folder, data, dataset, slot, used_in)
    settings = {name: value for name, value in os.environ.items() if name.startswith(("NIGHTSHIFT_", "MLX_", "CUDA_"))}
    settings.pop("NIGHTSHIFT_CACHE", None)
    own = (folder / "prepare.py").read_bytes() if reported is None else reported
    asked = (data, slot, *sorted(settings.items()), own)
    if asked not in ANSWERS:
        ANSWERS[asked] = probe(folder, data, dataset, slot, used_in, reported)
    return dict(ANSWERS[asked])


@contextlib.contextmanager
def mounted(at: Path, options: str) -> Iterator[Path]:
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


class Nap:
    """A machine that sleeps once, for half a minute, soon after the first process of the night has begun."""

    def __init__(self) -> None:
        self.begins_s: float | None = None

    def always(self) -> float:
        now_s = time.monotonic()
        if self.begins_s is None:
            self.begins_s = now_s + 0.1
        return now_s + (30 if now_s > self.begins_s else 0)

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(lambda: (time.monotonic(), self.always()))


# ---- runs of the shipped script that take seconds, and the sandboxes of this machine ---------------------------------


def run_script(data: Path, *options: str, script: Path = SCRIPT) -> subprocess.CompletedProcess:
    env = {**os.environ, "NIGHTSHIFT_DATA": str(data), "PYTHONPATH": python_path(PROJECT)}
    return subprocess.run([sys.executable, script, *options], env=env, capture_output=True, text=True, timeout=600)


def with_dials(tmp_path: Path, **values: object) -> Path:
    """The script with some dials overwritten, as an edit would."""
    text = SCRIPT.read_text()
    marker = "# ---------------------------------------------------------------------------\n# The model"
    assert marker in text
    dials = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    path = tmp_path / "train_mlx.py"
    path.write_text(text.replace(marker, dials + marker))
    return path


def bubblewrap() -> Bubblewrap | None:
    """Return bubblewrap with the most isolation that works here."""
    sandboxes = (
        [sandbox for sandbox in candidates() if isinstance(sandbox, Bubblewrap)] if shutil.which("bwrap") else []
    )
    nothing = ("--ro-bind", "/", "/", "--", "/bin/true")
    return next(
        (sandbox for sandbox in sandboxes if subprocess.run([*sandbox.namespaces(), *nothing]).returncode == 0), None
    )


def kernels_own() -> Landlock | None:
    return Landlock(landlock.abi()) if landlock.abi() else None


def usable(sandbox: Sandbox | None) -> Sandbox:
    return sandbox or pytest.skip("this sandbox does not work here")
