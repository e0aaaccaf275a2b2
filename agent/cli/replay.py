"""An attempt once more, beside what the night measured: nightshift replay.

It runs in a fresh folder, under the night's conditions, in the same box, and is scored alike. Nothing of the night is
written to: neither its journal, nor its branch, nor its run folders.
"""

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from agent.cli.answer import Answer
from agent.cli.find import attempt_meant, script_of
from agent.cli.options import Seed
from agent.clock import kept_awake
from agent.errors import MachineError, NightError
from agent.experiment import TITLE_CHARS, WHOLE, Attempt, Doing, Ending, Lease, Night, Run, Terms
from agent.files import ignore_all, read_end, remove
from agent.judging.failures import run_failure
from agent.lab.hardware import cache_root
from agent.model import weights
from agent.night.lock import NOW, Stop, handling, like_ctrl_c, only_night
from agent.night.opening import check_disk
from agent.pools.leases import leases_of_night
from agent.records import checksums
from agent.records.place import Place
from agent.records.record import Record
from agent.runs.execute import execute
from agent.runs.fixed import lay_out_fixed, probe, protocol
from agent.runs.jobs import Measure, Trial
from agent.runs.outputs import METRICS, METRICS_BYTES, SUMMARY_BYTES
from agent.runs.runner import WEIGHTS, Runner, Stopped, weights_bytes
from agent.runs.score import FIRST_LIMIT_S, audit, scoring_limit_s, usual_scoring_s
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s
from agent.sandbox.box import Mode, choose
from agent.sandbox.process import LOG
from agent.sandbox.watch import limits_of_machine
from agent.script.contract import check_script, fixed_files
from agent.text import SCORE_DECIMALS, one_line
from agent.view.answer import Replay, ReplayAnswer, plain
from agent.view.live import RunScreen
from agent.view.replayed import replayed
from agent.view.screen import steadfast

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
LOG_BYTES = 16 << 20
COMPILED = ("kernels", "blas")  # machine code in the user's cache


def replay(attempt: str, /, *, seed: Seed | None = None, out: Path | None = None) -> Answer:
    """Run an attempt of a night once more, and compare its score with the night's own.

    It runs in a fresh folder: its committed script, its seed, the night's budget, sandbox and scoring. The night's
    journal and branch stay as they are.

    Args:
        attempt: its number, best or confirmed, as in 4, wide:4, wide:best
        seed: another seed (default: that of its first run)
        out: keep weights, curve and logs there (default: experiments/nights/TAG/replays/N-TIME)
    """
    place, record, chosen = attempt_meant(attempt)
    script = script_of(place, record, chosen)
    check_script(script, place.script)
    if record.budget_s <= 0:
        raise NightError(f"night {record.tag} has no known budget, so its attempts cannot be run again as they ran")
    if record.is_here:
        place.check_own(record.tag)
    seed = seed if seed is not None else next((run.seed for run in chosen.runs), 0)
    terms = record.night.terms if record.is_here else Terms()  # a record from elsewhere turns no sandbox off
    lease = _lease(record)
    screen = RunScreen(Console(file=steadfast(sys.stdout)), record.budget_s)
    with ExitStack() as undo:
        tell = undo.enter_context(only_night(place.repo.common_dir))
        check_disk(place.repo.root)
        work, kept = undo.enter_context(_folders(place, record.tag, chosen.number, out))
        tell(f"{record.tag}/replays/{work.parent.name}", work.parent)
        undo.callback(screen.close)
        screen.said(f"replay of attempt {chosen.number} of night {record.tag}, seed {seed}: {chosen.title}")
        with like_ctrl_c():
            night = _prepared(place, record, script, seed, work, lease)
        stop = Stop(work.parent)
        undo.enter_context(handling(lambda number, frame: stop.wish(NOW), *ENDING))
        undo.enter_context(kept_awake())
        box, limits = choose(Mode(terms.sandbox)), limits_of_machine(lease.share)
        runner = Runner(
            *(night, work, box, limits, terms.allowance_s, lambda: stop.now, screen.progressed), place.repo.root, lease
        )
        screen.said(f"  {record.budget_s:g} s of training on {night.device}, sandbox: {box.name}")
        try:
            run, failure = _run_again(runner, place, record, chosen, script, screen)
        except Stopped:
            sentence = "the replay was ended early, and nothing of it is kept"
            return Answer({"state": "unfinished"}, error=sentence, exit_code=130)
        finally:
            screen.close()
        _take_out(runner, chosen.number, script, run, kept)
        score = None if run.score is None else run.score.val_bpb
        changed = _changed_files(record, night)
        again = Replay(seed, score, failure, run.tokens_s, night.device, night.protocol, changed)
        compared = replayed(record, chosen, again)
        answer = ReplayAnswer(
            tag=record.tag,
            attempt=chosen.number,
            title=chosen.title,
            commit=chosen.commit,
            budget_s=record.budget_s,
            verdict=compared.verdict,
            sentence=compared.sentence,
            now=again,
            then=compared.before,
            difference_bpb=compared.difference_bpb,
            noise_bpb=compared.noise_bpb,
            device_then=record.device,
            protocol_then=record.protocol,
            ending=run.ending,
            wall_s=run.wall_s,
            folder=str(kept),
        )
        (kept / weights.REPLAY).write_text(json.dumps(plain(answer), indent=1) + "\n")
        for line in _lines(answer, chosen, kept):
            screen.said(line)
    return Answer(plain(answer))


def _lease(record: Record) -> Lease:
    """Return the part of this machine that a worker of the night would have; all of it where that is not known."""
    with suppress(NightError, MachineError):  # fewer cores or GPUs than the night had
        if record.is_here:
            return leases_of_night(record.night)[0]
    return WHOLE


@contextmanager
def _folders(place: Place, tag: str, number: int, out: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield a folder to work in, which is gone afterwards, and the one to keep, gone where nothing was put there."""
    if out is not None and (out.exists() or out.is_symlink()) and not (out.is_dir() and not any(out.iterdir())):
        raise NightError(f"{out} holds something already; name a new folder with --out")
    home = place.folder(tag) / "replays" / f"{number}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    work, kept = home / "work", out or home
    work.mkdir(parents=True)
    ignore_all(place.nights)
    kept.mkdir(parents=True, exist_ok=True)  # before minutes are spent on what could not be written
    try:
        yield work, kept
    finally:
        remove(work)
        (home / "stop").unlink(missing_ok=True)
        for folder in (kept, home, home.parent, home.parent.parent):
            with suppress(OSError):
                folder.rmdir()  # only an empty one


def _prepared(place: Place, record: Record, script: str, seed: int, work: Path, lease: Lease) -> Night:
    """Fill a folder with the fixed files and compiled code, and return the night that the replay is a run of.

    The fixed files are the night's own, or else those beside the script here: those of a commit from another machine
    would run outside the sandbox.
    """
    folder, beside, fixed = place.folder(record.tag), place.script_path.parent, work / "fixed"
    if record.is_here and (folder / "fixed").is_dir():
        shutil.copytree(folder / "fixed", fixed, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        lay_out_fixed(beside, fixed_files(beside, script), fixed)
    compiled = {f"cache/{name}": cache_root() / name for name in COMPILED}
    for name, source in ({"": folder / "warm"} if (folder / "warm").is_dir() else compiled).items():
        if source.is_dir():
            shutil.copytree(source, work / "warm" / name)
    data = record.night.data if record.is_here and Path(record.night.data).is_dir() else None
    here = probe(fixed, data, lease=lease)
    return replace(
        record.night,
        script=record.night.script if record.is_here else place.script,
        seed=seed,
        device_kind=here["device_kind"],
        device=here["device"],
        protocol=protocol(here, record.budget_s),
        data=here["data"],
        pins=checksums.take(fixed, Path(here["data"])),
    )


def _changed_files(record: Record, night: Night) -> tuple[str, ...]:
    """Return the fixed files that differ from those that the night took checksums of; none where it took none."""
    then, now = record.night.pins.get("fixed", {}), night.pins.get("fixed", {})
    return tuple(sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))) if then else ()


def _run_again(
    runner: Runner, place: Place, record: Record, attempt: Attempt, script: str, screen: RunScreen
) -> tuple[Run, str | None]:
    """Train, score and audit once; return the run and why it has no score, or none that is believed.

    Raise Stopped if the user stopped it.
    """
    night, number, allowance_s, usual_s = runner.night, attempt.number, runner.allowance_s, None
    # with cold caches, a start takes longer than the night's times say
    if number and (place.folder(record.tag) / "warm").is_dir() and night.device == record.device:
        usual_s = usual_scoring_s(record.attempts)
        allowance_s = allowance_s or learnt_allowance_s(record.attempts, night.budget_s)
    allowance_s = allowance_s or FIRST_ALLOWANCE_S
    title = one_line(f"#{number} {attempt.title}", TITLE_CHARS)
    machine = Trial(attempt=number, script=script, allowance_s=allowance_s, scoring_s=FIRST_LIMIT_S)
    job = Measure(
        attempt=number,
        script=script,
        seed=night.seed,
        allowance_s=allowance_s,
        machine=machine,
        usual_scoring_s=usual_s,
    )
    while True:
        screen.begin(title, f"{Doing.TRAINING}, seed {night.seed}")
        run = execute(job, runner)
        assert isinstance(run, Run)
        if run.ending is Ending.STOPPED:
            raise Stopped
        if run.ending is Ending.SPOILT:
            job = replace(job, may_be_void=False, wait_s=runner.rest_s)
        elif run.ending is not Ending.SLEPT:
            break
    failure = run_failure(run)
    if failure is None and number:
        screen.begin(title, Doing.AUDITING)
        limit_s = scoring_limit_s(usual_s, max(0.0, run.wall_s - night.budget_s), allowance_s)
        verdict = audit(runner, number, script, run.seed, limit_s, None)
        failure = f"audit: {verdict.failure}" if verdict.failure is not None else None
    return run, failure


def _take_out(runner: Runner, number: int, script: str, run: Run, folder: Path) -> None:
    """Move weights, curve, summary, log and script of the run into a folder.

    A script may have left links and pipes beside them: only plain files are taken.
    """
    ran, scored = runner.run_folder(number, run.seed), runner.score_folder(number, run.seed)
    (folder / runner.script_name).write_bytes(script.encode())
    if weights_bytes(ran) is not None:
        shutil.move(ran / WEIGHTS, folder / Path(WEIGHTS).name)
    for inside, name, most_bytes, becomes in (
        (ran / "out", METRICS, METRICS_BYTES, METRICS),
        (ran / "out", "summary.json", SUMMARY_BYTES, "summary.json"),
        (ran, LOG, LOG_BYTES, "train.log"),
        (scored, LOG, LOG_BYTES, "score.log"),
    ):
        with suppress(OSError):  # it left none
            (folder / becomes).write_bytes(read_end(inside, name, most_bytes))


def _lines(answer: ReplayAnswer, attempt: Attempt, kept: Path) -> list[str]:
    now, then, lines = answer.now, answer.then, []
    if then is not None:
        how = f"seed {then.seed}" if then.seed is not None else f"the mean of {then.runs} runs"
        lines = [f"  then  {_score(then.val_bpb)}  {how}, {attempt.started[:10]}"]
    lines += [f"  now   {_score(now.val_bpb)}  seed {now.seed}, {answer.budget_s:g} s on {now.device}"]
    names = ", ".join(sorted(path.name for path in kept.iterdir() if path.is_file() and path.name != "stop"))
    shown = kept.relative_to(Path.cwd()) if kept.is_relative_to(Path.cwd()) else kept
    return [*lines, answer.sentence, f"kept in {shown}: {names}"]


def _score(val_bpb: float | None) -> str:
    return "no score" if val_bpb is None else f"{val_bpb:.{SCORE_DECIMALS}f}"
