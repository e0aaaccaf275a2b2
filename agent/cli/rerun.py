"""Run an attempt of a night again: in a fresh folder, under the night's conditions, in the same box, scored alike.

Nothing of the night is written to: neither its journal, nor its branch, nor its run folders.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent.clock import utc_now
from agent.errors import MachineError, NightError
from agent.experiment import LOCAL, WHOLE, Attempt, Doing, History, Lease, Night, Progress, Proposal, Run, Terms, Work
from agent.files import read_end
from agent.judging.failures import run_failure, training_failure
from agent.lab.hardware import cache_root
from agent.pools.leases import leases_of_night
from agent.records import checksums
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Record
from agent.runs.fixed import lay_out_fixed, probe, protocol
from agent.runs.outputs import METRICS, METRICS_BYTES, SUMMARY_BYTES
from agent.runs.runner import WEIGHTS, Repeats, Runner, weights_bytes
from agent.runs.score import FIRST_LIMIT_S, audit, score, scoring_limit_s, usual_scoring_s
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s, train
from agent.sandbox.box import Mode, choose
from agent.sandbox.process import LOG
from agent.sandbox.watch import limits_of_machine
from agent.script.contract import check_script, fixed_files
from agent.view.answer import Replay
from agent.view.live.screen import Screen

LOG_BYTES = 16 << 20
COMPILED = ("kernels", "blas")  # machine code in the user's cache
KEPT = ((METRICS, METRICS_BYTES), ("summary.json", SUMMARY_BYTES))  # of what a run leaves, beside its weights


@dataclass(frozen=True, slots=True)
class Original:
    """Hold an attempt, its script, and all that is known here of how it ran."""

    place: Place
    facts: Record
    attempt: Attempt
    script: str
    night: Night | None  # None: its journal is not here
    history: History  # empty without a journal

    @classmethod
    def of(cls, place: Place, facts: Record, attempt: Attempt, script: str) -> "Original":
        """Add the journal's facts, if it is here."""
        check_script(script, place.script)
        if facts.budget_s <= 0:
            raise NightError(f"night {facts.tag} has no known budget, so its attempts cannot be run again as they ran")
        if not place.journal(facts.tag).exists():
            return cls(place, facts, attempt, script, None, ())
        place.check_own(facts.tag)
        with Journal.read(place.journal(facts.tag)) as journal:
            return cls(place, facts, attempt, script, journal.night(), journal.attempts())

    @property
    def folder(self) -> Path:
        """Return the night's folder, which need not exist."""
        return self.place.folder(self.facts.tag)

    @property
    def terms(self) -> Terms:
        """Return the night's terms; the defaults without a journal: a record from elsewhere turns no sandbox off."""
        return self.night.terms if self.night is not None else Terms()

    @property
    def lease(self) -> Lease:
        """Return the part of this machine that a worker of the night would have; all of it where that is not known."""
        with suppress(NightError, MachineError):  # fewer cores or GPUs than the night had
            if self.night is not None:
                return leases_of_night(self.night)[0]
        return WHOLE

    @property
    def as_attempt(self) -> Attempt:
        """Return the attempt as it was before it had any run."""
        proposal = Proposal.of(self.script, self.attempt.title, self.attempt.proposal.hypothesis, self.attempt.source)
        return Attempt(self.attempt.number, self.attempt.parent, proposal, utc_now())


def prepared(original: Original, seed: int, folder: Path) -> Night:
    """Fill a folder with the fixed files and compiled code, and return the night that the replay is a run of.

    The fixed files are the night's own, or else those beside the script here: those of a commit from another machine
    would run outside the sandbox.
    """
    fixed, warm, beside = folder / "fixed", original.folder / "warm", original.place.script_path.parent
    if original.night is not None and (original.folder / "fixed").is_dir():
        shutil.copytree(original.folder / "fixed", fixed, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        lay_out_fixed(beside, fixed_files(beside, original.script), fixed)
    if warm.is_dir():
        shutil.copytree(warm, folder / "warm")
    for name in () if warm.is_dir() else COMPILED:
        if (cache_root() / name).is_dir():
            shutil.copytree(cache_root() / name, folder / "warm" / "cache" / name)
    data = original.night.data if original.night is not None and Path(original.night.data).is_dir() else None
    here = probe(fixed, data, lease=original.lease)
    return Night(
        tag=original.facts.tag,
        branch="",
        script=original.night.script if original.night is not None else original.place.script,
        base=original.attempt.commit or "",
        budget_s=original.facts.budget_s,
        seed=seed,
        device_kind=here["device_kind"],
        device=here["device"],
        protocol=protocol(here, original.facts.budget_s),
        data=here["data"],
        started=utc_now(),
        pins=checksums.take(fixed, Path(here["data"])),
    )


def changed_files(original: Original, night: Night) -> tuple[str, ...]:
    """Return the fixed files that differ from those that the night took checksums of; none where it took none."""
    then, now = (one.pins.get("fixed", {}) if one else {} for one in (original.night, night))
    return tuple(sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))) if then else ()


def run_again(original: Original, seed: int, runner: Runner, screen: Screen) -> tuple[Replay, Run]:
    """Train, score and audit once; raise Stopped if the user stopped it."""
    number, attempt = original.attempt.number, original.as_attempt
    allowance_s = _allowance_s(original, runner.night)

    def begins(doing: Doing) -> None:
        screen.work_began(attempt, Work(LOCAL, doing, number, utc_now(), seed))

    screen.attempt_began(attempt)
    repeats = Repeats(runner)
    while True:
        begins(Doing.TRAINING)
        run, spoilt = train(runner, number, original.script, seed, allowance_s)
        if not repeats.wanted(run.ending, spoilt):
            break
    failure = training_failure(run)
    if failure is None:
        begins(Doing.SCORING)
        limit_s = FIRST_LIMIT_S
        if _is_alike(original, runner.night):
            beyond_s = max(0.0, run.wall_s - runner.night.budget_s)
            usual_s = usual_scoring_s(original.history) if number else None
            limit_s = scoring_limit_s(usual_s, beyond_s, allowance_s)
        run = replace(run, score=score(runner, number, original.script, seed, limit_s))
        failure = run_failure(run)
    if failure is None and number > 0:
        begins(Doing.AUDITING)
        found = audit(runner, number, original.script, seed, limit_s, None)
        failure = f"audit: {found.failure}" if found.failure is not None else None
    return _again(original, runner.night, run, failure), run


def _again(original: Original, night: Night, run: Run, failure: str | None) -> Replay:
    return Replay(
        seed=run.seed,
        val_bpb=run.score.val_bpb if run.score is not None else None,
        failure=failure,
        tokens_s=run.tokens_s,
        device=night.device,
        protocol=night.protocol,
        changed_files=changed_files(original, night),
    )


def runner_for(original: Original, night: Night, folder: Path, screen: Screen, stopped: Callable[[], bool]) -> Runner:
    """Return the runner for one run in this folder."""
    box = choose(Mode(original.terms.sandbox))
    root, allowance_s = original.place.repo.root, original.terms.allowance_s
    limits, lease = limits_of_machine(original.lease.share), original.lease

    def progressed(progress: Progress | None, elapsed_s: float) -> None:
        screen.progressed(None if progress and progress.is_scoring else progress, elapsed_s)

    return Runner(night, folder, box, limits, allowance_s, stopped, progressed, root, lease)


def _is_alike(original: Original, night: Night) -> bool:
    """Return whether times of the night say how long this may take."""
    warm = (original.folder / "warm").is_dir()  # with cold caches, a start takes longer
    return bool(original.history) and warm and night.device == original.facts.device


def _allowance_s(original: Original, night: Night) -> float:
    """Return the seconds beyond the budget: the night's own rule where its times say something here."""
    if original.terms.allowance_s is not None:
        return original.terms.allowance_s
    if original.attempt.number == 0 or not _is_alike(original, night):
        return FIRST_ALLOWANCE_S
    return learnt_allowance_s(original.history, night.budget_s)


def taken_out(runner: Runner, original: Original, run: Run, folder: Path) -> None:
    """Move weights, curve, summary, log and script of the run into a folder.

    A script may have left links and pipes beside them: only plain files are taken.
    """
    number = original.attempt.number
    ran = runner.run_folder(number, run.seed)
    (folder / runner.script_name).write_bytes(original.script.encode())
    if weights_bytes(ran) is not None:
        shutil.move(ran / WEIGHTS, folder / Path(WEIGHTS).name)
    logs = [(ran, LOG, LOG_BYTES, "train.log"), (runner.score_folder(number, run.seed), LOG, LOG_BYTES, "score.log")]
    for inside, name, most_bytes, becomes in (*((ran / "out", *one, one[0]) for one in KEPT), *logs):
        with suppress(OSError):  # it left none
            (folder / becomes).write_bytes(read_end(inside, name, most_bytes))
