"""Make the jobs that an attempt needs, each with all that a worker has to know, from the state alone."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import count
from typing import Any

from agent.experiment import Attempt, Ending, Run, Split
from agent.judging.early_stop import Bound
from agent.night.context import NightContext
from agent.night.state import State
from agent.runs.jobs import Evaluate, Measure, Reexamine, Rehearse, Trial
from agent.runs.score import scoring_limit_s, too_heavy
from agent.runs.speed import usual_steps_s
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s, learnt_bounds

COOL_SHARE = 0.2  # of the budget: the pause before a run that was slowed is done again
DAWN_SEED = 1000  # from one dawn to the next: each confirms with seeds that no choice before it has seen


@dataclass(frozen=True, slots=True)
class Jobs:
    """Make jobs of a night as it stands now."""

    context: NightContext
    state: State

    def measure(self, attempt: Attempt, dawn: int = 0, *, in_flight: Collection[int] = ()) -> Measure:
        """Return the job of the attempt's next run; at night and at each dawn, all attempts use the same seeds.

        in_flight: seeds of its runs that have begun.
        """
        runner = self.context.runner
        taken = {*in_flight, *(run.seed for run in (attempt.dawn_runs(dawn) if dawn else attempt.done_runs))}
        seed = next(seed for seed in count(runner.night.seed + DAWN_SEED * dawn) if seed not in taken)
        was_spoilt = bool(attempt.runs) and attempt.runs[-1].ending is Ending.SPOILT
        return Measure(
            attempt=attempt.number,
            script=attempt.proposal.script,
            seed=seed,
            allowance_s=self.allowed_s(attempt.number),
            machine=self.trial(self.state.first),
            dawn=dawn,
            bounds=() if dawn else self._bounds_ahead(attempt),
            has_run_well=bool(dawn) or has_run_well(attempt),
            may_be_void=attempt.may_be_void(seed),
            usual_steps_s=usual_steps_s(attempt),
            wait_s=runner.rest_s if was_spoilt else 0.0,
        )

    def evaluation(self, attempt: Attempt, run: Run, split: Split = "validation") -> Evaluate:
        """Return the job of scoring a run on a text."""
        return Evaluate(
            **self._of_weights(attempt, run, split),
            refusal=too_heavy(run, self.state.attempts),
            has_run_well=bool(run.dawn) or has_run_well(attempt),
        )

    def reexamination(self, attempt: Attempt, run: Run, split: Split = "validation") -> Reexamine:
        """Return the job of an audit against the committed losses of the parent, hardest at the largest gains."""
        reference = self.audit_reference(attempt, run, split)
        return Reexamine(**self._of_weights(attempt, run, split), has_run_well=True, reference=reference)

    def rehearsal(self, attempt: Attempt) -> Rehearse:
        """Return the job of an attempt's trial run; that of attempt 0 shows whether this machine still trains."""
        return Rehearse(trial=self.trial(attempt), machine=self.trial(self.state.first) if attempt.number else None)

    def trial(self, attempt: Attempt) -> Trial:
        return Trial(
            attempt=attempt.number,
            script=attempt.proposal.script,
            allowance_s=self.allowed_s(attempt.number),
            scoring_s=self.scoring_allowed_s(attempt.number),
        )

    def _of_weights(self, attempt: Attempt, run: Run, split: Split) -> dict[str, Any]:
        """Return the fields of jobs.OfWeights."""
        beyond_s = max(0.0, run.wall_s - self.context.runner.night.budget_s)
        return {
            "attempt": attempt.number,
            "script": attempt.proposal.script,
            "seed": run.seed,
            "limit_s": self.scoring_allowed_s(attempt.number, beyond_s),
            "machine": self.trial(self.state.first),
            "split": split,
        }

    def allowed_s(self, number: int) -> float:
        """Return the seconds that a run may take beyond its budget: the user's choice, else learnt from attempt 0.

        Attempt 0 itself gets FIRST_ALLOWANCE_S, since the machine may become busy. The others get little more than its
        slowest run took.
        """
        runner = self.context.runner
        if runner.allowance_s is not None:
            return runner.allowance_s
        return learnt_allowance_s(self.state.attempts, runner.night.budget_s) if number else FIRST_ALLOWANCE_S

    def scoring_allowed_s(self, number: int, beyond_s: float = 0.0) -> float:
        """Return the seconds for each process that scores or audits a run that took so much beyond its budget."""
        return scoring_limit_s(self.state.attempts, number, beyond_s, self.allowed_s(number))

    def _bounds_ahead(self, attempt: Attempt) -> tuple[Bound, ...]:
        """Return the bounds that may stop an idea's first run early; further seeds are run to the end."""
        state = self.state
        if not self.context.early_stop or attempt.number == 0 or attempt.decision is not None or attempt.done_runs:
            return ()
        return learnt_bounds(self.context.runner, state.others(attempt.number), state.parent_of(attempt))

    def audit_reference(self, attempt: Attempt, run: Run, split: Split) -> tuple[int, int] | None:
        """Return the attempt and seed of the run that an audit counts gains from; None if no losses are there.

        It is a run of the attempt's parent, else of attempt 0. Only runs at dawn have losses on the holdout; there
        it is a run of the same dawn, at which attempt 0 always runs first.
        """
        parent = self.state.parent_of(attempt)
        for before in (parent, self.state.first) if parent is not None else ():
            for other in before.counted_runs if split == "validation" else before.dawn_runs(run.dawn):
                if self.context.runner.losses(before.number, other.seed, split).is_file():
                    return before.number, other.seed
        return None


def has_run_well(attempt: Attempt) -> bool:
    """Return whether a run of the attempt was scored."""
    return any(run.score is not None and run.score.val_bpb is not None for run in attempt.counted_runs)
