"""Write what became of one edit, for the program or the person who made it, and what to do next."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.experiment import Attempt, Ending, History, Kind, Night, Noise, Run, Status, attempt_ref, incumbent, short
from agent.files import open_plain
from agent.invocation import typed
from agent.judging.failures import training_failure
from agent.proposers.author.attempts import reason_for_author
from agent.records.place import run_folder
from agent.records.record import Record
from agent.records.summary import Scored, gain_bpb
from agent.sandbox.process import LOG, last_lines
from agent.script.merge import Basis
from agent.text import harmless
from agent.view.answer import MissingEdit, TryAnswer

TRACEBACK = "Traceback (most recent call last)"
# What to do after a decision of this kind, beside going back.
ADVICE = {
    Kind.TOO_SLOW: "it took too long: make it faster or smaller",
    Kind.STOPPED_EARLY: "its loss fell clearly behind the incumbent's: try another idea",
    Kind.QUARANTINED: "its gain is too large to be believed: look for a way in which the script deceives its score",
    Kind.FAILED_AUDIT: "its score is not believed: make the model's logits deterministic, causal and normalised",
    Kind.IGNORES_SEED: "two seeds gave the same score: let the seed decide the first weights and the order of the data",
    Kind.TIE: "it makes no difference that can be told from luck: try another idea",
    Kind.OVERTAKEN: "it is made again in the best script, by another attempt that names it: wait for its verdict",
    Kind.LUCK: "its lower score may be luck: try another idea",
}


@dataclass(frozen=True, slots=True)
class TriedEdit:
    """Hold an attempt that was decided, and the night around it."""

    night: Night
    history: History
    number: int
    folder: Path  # of the night
    noise: Noise | None
    basis: Basis
    merged_onto: int | None = None  # the best attempt, which was kept while the edit waited; None: tried as submitted

    @property
    def attempt(self) -> Attempt:
        return self.history[self.number]

    @property
    def best(self) -> Attempt | None:
        return incumbent(self.history)

    @property
    def way_back(self) -> str | None:
        """Return the command that restores the best script to the working tree; None if the attempt is the best.

        It names the attempt's ref, because a branch that is checked out is not moved.
        """
        if self.best is None or self.best.number == self.number:
            return None
        return f"git restore -s {attempt_ref(self.night.tag, self.best.number)} {self.night.script}"

    def answer(self, id_of_try: str, state: str) -> TryAnswer:
        """Return what `nightshift try --json` prints."""
        attempt, best, log = self.attempt, self.best, self._log()
        parent = None if attempt.parent is None else self.history[attempt.parent]
        record = Record(self.night, tuple(self.history), noise=self.noise)
        return TryAnswer(
            id=id_of_try,
            state=state,
            tag=self.night.tag,
            attempt=self.number,
            parent=attempt.parent,
            commit=attempt.commit,
            title=attempt.title,
            status=attempt.status,
            reason=reason_for_author(attempt),
            next=self.next(),
            traceback=self._traceback(),
            val_bpb=attempt.val_bpb,
            noise=self.noise,
            seeds=attempt.seeds,
            gain_bpb=gain_bpb(attempt, parent),
            sure=attempt.sure,
            summary=attempt.summary,
            tokens_s=attempt.tokens_s,
            budget_s=self.night.budget_s,
            spent_s=attempt.spent_s,
            best=Scored.of(record, best),
            best_ref=attempt_ref(self.night.tag, best.number) if best else None,
            branch=short(self.night.branch),
            go_back_with=self.way_back,
            based_on=self.basis.number,
            missing_edits=missing_edits(self.basis),
            merged_onto=self.merged_onto,
            run_folder=None if log is None else str(log.parent),
            log=None if log is None else str(log),
        )

    def lines(self) -> list[str]:
        """Return the verdict as lines for people, with the next commands."""
        best = self.best
        lines = [f"{self.attempt.status}: {reason_for_author(self.attempt) or ''}"]
        if best is not None and best.val_bpb is not None:
            lines.append(f"best so far: #{best.number} {best.proposal.title}, val_bpb {best.val_bpb:.6f}")
        lines.append(f"next: {self.next()}")
        lines.append(f"more: {typed('show', f'{self.night.tag}:{self.number}')}, {typed('results')}")
        return [harmless(line) for line in lines]

    def next(self) -> str:
        """Return what to do now, in a sentence."""
        if self.best is None or self.way_back is None:
            if self.merged_onto is None:
                return f"edit on from here: attempt {self.number} is the best script now"
            merged = f"attempt {self.number}, your edit merged onto attempt {self.merged_onto}, is the best script now"
            return f"{merged}: take it with: {typed('take', str(self.number))}, and edit on from there"
        advice = ADVICE.get(self.attempt.kind, "it is not better: try another idea") if self.attempt.kind else ""
        if self.attempt.status is Status.CRASH:
            advice = "it crashed: read traceback and log, repair the script and try it again"
        return f"{advice}; go back with: {typed('take', f'{self.night.tag}:{self.best.number}')}"

    def _log(self) -> Path | None:
        """Return the log of the training that failed, or of the last one; None where no training left one."""
        dry = self.folder / "runs" / f"{self.number:04d}" / "dry"
        run = _telling(self.attempt)
        folder = dry if run is None else run_folder(self.folder, self.number, run.seed)
        return folder / LOG if (folder / LOG).is_file() else None

    def _traceback(self) -> str | None:
        """Return the end of the log of a training that crashed; of a dry run only a traceback."""
        run = _telling(self.attempt)
        if run is not None:
            return run.last_lines or None if run.ending is Ending.CRASHED else None
        dry_run, log = self.attempt.dry_run, self._log()
        if dry_run is not None and dry_run.failure is not None and log is not None:
            with suppress(OSError), open_plain(log.parent, log.name) as file:
                lines = last_lines(file)
                return lines if TRACEBACK in lines else None
        return None


def missing_edits(basis: Basis) -> tuple[MissingEdit, ...]:
    """Return the kept edits that a script lacks."""
    return tuple(MissingEdit(attempt.number, attempt.title) for attempt in basis.missing)


def _telling(attempt: Attempt) -> Run | None:
    """Return the night's run whose training failed, or else the last."""
    runs = attempt.done_runs
    return next((run for run in runs if training_failure(run) is not None), runs[-1] if runs else None)
