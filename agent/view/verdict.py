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
from agent.sandbox.process import LOG, last_lines
from agent.script.merge import Basis
from agent.text import harmless
from agent.view.facts.overview import estimated_gain_bpb

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

    def facts(self) -> dict[str, object]:
        """Return the facts that `nightshift try --json` prints (docs/agents.md)."""
        attempt, best, noise = self.attempt, self.best, self.noise
        decision, summary, log = attempt.decision, attempt.summary, self._log()
        parent = None if attempt.parent is None else self.history[attempt.parent]
        return {
            "tag": self.night.tag,
            "attempt": self.number,
            "parent": attempt.parent,
            "commit": attempt.commit,
            "title": attempt.proposal.title,
            "status": attempt.status,
            "reason": reason_for_author(attempt),
            "next": self.next(),
            "traceback": self._traceback(),
            "val_bpb": attempt.val_bpb,
            "sigma_bpb": noise.sigma_bpb if noise else None,
            "smallest_bpb": noise.smallest_bpb if noise else None,
            "seeds": attempt.seeds,
            "gain_bpb": _rounded(estimated_gain_bpb(attempt, parent), 6),
            "sure": _rounded(decision.sure, 4) if decision else None,
            "num_steps": summary.num_steps if summary else None,
            "total_tokens_M": summary.total_tokens_M if summary else None,
            "tokens_s": _rounded(attempt.tokens_s, 0),
            "peak_vram_mb": summary.peak_vram_mb if summary else None,
            "budget_s": self.night.budget_s,  # of training, in each run
            "spent_s": round(attempt.spent_s, 1),  # training, scoring and audit, of all its runs
            "best_attempt": best.number if best else None,
            "best_val_bpb": best.val_bpb if best else None,
            "best_ref": attempt_ref(self.night.tag, best.number) if best else None,
            "branch": short(self.night.branch),
            "go_back_with": self.way_back,
            **basis_facts(self.basis),
            "merged_onto": self.merged_onto,
            "run_folder": None if log is None else str(log.parent),
            "log": None if log is None else str(log),
        }

    def lines(self) -> list[str]:
        """Return the verdict as lines for people, with the next commands."""
        attempt, best = self.attempt, self.best
        lines = [f"{attempt.status}: {reason_for_author(attempt) or ''}"]
        if best is not None and best.val_bpb is not None:
            lines.append(f"best so far: #{best.number} {best.proposal.title}, val_bpb {best.val_bpb:.6f}")
        if self.way_back is not None:
            lines.append(f"go back to it with: {self.way_back}")
        lines.append(f"more: {typed('show', f'{self.night.tag}:{self.number}')}, {typed('results')}")
        return [harmless(line) for line in lines]

    def next(self) -> str:
        """Return what to do now, in a sentence."""
        if self.way_back is None and self.merged_onto is not None:
            number = str(self.number)
            merged = f"attempt {number}, your edit merged onto attempt {self.merged_onto}"
            return f"{merged}, is the best script now: take it with: {typed('take', number)}, and edit on from there"
        if self.best is None or self.way_back is None:
            return f"edit on from here: attempt {self.number} is the best script now"
        take_best = typed("take", f"{self.night.tag}:{self.best.number}")  # a tool has the same name
        if self.attempt.status is Status.CRASH:
            read = "read traceback" if self._traceback() else "see reason and log"
            return f"it crashed: {read}, repair the script and try it again; or go back with: {take_best}"
        advice = ADVICE.get(self.attempt.kind) if self.attempt.kind else None
        if self.attempt.kind is Kind.TOO_SLOW and any(run.ending is Ending.SPOILT for run in self.attempt.runs):
            advice = (
                f"other programs kept the machine busy, so it may not be too slow: once they have ended, see with: "
                f"{typed('replay', str(self.number))}"
            )
        return f"{advice or 'it is not better: try another idea'}; go back with: {take_best}"

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
        found, log = self.attempt.dry_run, self._log()
        if found is not None and found.failure is not None and log is not None:
            with suppress(OSError), open_plain(log.parent, log.name) as file:
                lines = last_lines(file)
                return lines if TRACEBACK in lines else None
        return None


def basis_facts(basis: Basis) -> dict[str, object]:
    """Return what a script was made from, and the kept edits that it lacks."""
    missing = [{"attempt": one.number, "title": one.proposal.title} for one in basis.missing]
    return {"based_on": basis.number, "missing_edits": missing}


def _telling(attempt: Attempt) -> Run | None:
    """Return the night's run whose training failed, or else the last."""
    runs = attempt.done_runs
    return next((run for run in runs if training_failure(run) is not None), runs[-1] if runs else None)


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals) + 0.0  # no minus zero
