"""Plan what a night does next: pure, except that it reads the clock and the curves and losses of earlier runs.

plan() looks at the whole night, plan_attempt() at one attempt that has no decision yet. Neither writes or prints
anything, so after a kill the same state leads to the same step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.experiment import Attempt, Decision, Ending, History, Kind, Review, Run, Status
from agent.invocation import typed
from agent.judging.confirmation import QUESTION, adoption
from agent.judging.early_stop import Bound
from agent.judging.failures import failure, fault, stopped_early, too_slow
from agent.judging.judge import trusted
from agent.night.context import NightContext
from agent.night.state import State, unaudited, unscored
from agent.runs.jobs import Evaluate, Job, Measure, Reexamine, Rehearse, Trial
from agent.runs.runner import Runner
from agent.runs.score import Split, scoring_limit_s, too_heavy
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s, learnt_bounds, read_losses
from agent.script.dials import only_dials_differ

DAWN_SEED = 1000  # from one dawn to the next: each confirms with seeds that no choice before it has seen


@dataclass(frozen=True, slots=True)
class Finish:
    """Bring an attempt to its end: measured, decided, settled."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Reconsider:
    """Record later decisions about settled attempts."""

    decisions: Mapping[int, Decision]
    sentences: tuple[str, ...] = ()  # to be said before


@dataclass(frozen=True, slots=True)
class MeasureAgain:
    """Measure a settled attempt once more."""

    measure: Measure


@dataclass(frozen=True, slots=True)
class NextIdea:
    """Enter the next idea as an attempt; the first is the user's own script."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Leave the attempt as it is, for another call."""

    why: str


NextStep = Finish | Reconsider | MeasureAgain | NextIdea | Job


def plan(context: NightContext, state: State, *, idea_is_made: bool = False) -> NextStep | None:
    """Return the next step; None when the night is over.

    No time is reserved for asking if an idea is made already.
    """
    if state.unsettled:
        return Finish(min(state.unsettled))
    loose = loose_end(context, state)
    if loose is not None:
        return loose
    review = second_thoughts(context, state)
    if review.decisions:
        return Reconsider(review.decisions)
    pace = state.pace
    if context.limits.has_enough_ideas(state.ideas):
        return None
    confirmed = adoption(state.attempts, state.last_dawn) if state.dawns else {}
    if confirmed:
        return None if context.limits.reached(state.ideas, pace) else _go_on_from(confirmed, state.attempts)
    unmeasured = _adopted_and_unmeasured(context, state)
    again = review.again if unmeasured is None else unmeasured.number
    if again is not None:
        return (
            MeasureAgain(measure(context, state, state.attempts[again]))
            if context.limits.allows_run(again, pace)
            else None
        )
    at_once = replace(pace, asking_s=0.0) if idea_is_made else pace
    return None if context.limits.reached(state.ideas, at_once) else NextIdea()


# ---- an attempt ------------------------------------------------------------------------------------------------------


def plan_attempt(context: NightContext, state: State, attempt: Attempt) -> Job | Decision | Unfinished:
    """Return the next job of an attempt without a decision, or the decision itself."""
    if not attempt.is_idea:
        return Decision(Kind.QUESTION, QUESTION)
    if attempt.dry_run is None and _wants_dry_run(context, state, attempt):
        return in_time(context, state, attempt, _rehearsal(context, state, attempt), state.pace.dry_run_s)
    slow = too_slow(attempt)
    if slow is not None:
        return Decision(Kind.TOO_SLOW, slow)
    if attempt.dry_run is not None and attempt.dry_run.failure is not None:
        return Decision(Kind.CRASHED, failure(attempt) or "dry run")
    finished = unscored(attempt)
    if finished is not None:
        return evaluation(context, state, attempt, finished)
    if not attempt.done_runs:
        return in_time(context, state, attempt, measure(context, state, attempt))
    given_up = _hopeless(context, state, attempt)
    if given_up is not None:
        return given_up
    decision = context.judge.judge(attempt, state.others(attempt.number))
    if decision.status is None:
        return in_time(context, state, attempt, measure(context, state, attempt))
    if decision.status is Status.KEEP:
        suspect = unaudited(attempt)
        if suspect is not None:
            return reexamination(context, state, attempt, suspect)
    if decision.status is Status.KEEP or decision.kind is Kind.OVERTAKEN:
        decision = trusted(decision, attempt, state.parent_of(attempt), context.plausible_gain)
    return decision


def in_time(context: NightContext, state: State, attempt: Attempt, job: Job, before_s: float = 0.0) -> Job | Unfinished:
    """Return the job, if a run of the attempt would still end within the hours.

    Attempt 0 is begun in any case: a night whose hours are less than a run was refused.
    """
    begins = attempt.number == 0 and not attempt.runs
    if begins or context.limits.allows_run(attempt.number, state.pace, before_s):
        return job
    wants = "another seed" if attempt.done_runs else "its run"
    return Unfinished(
        f"no time is left for {wants} of #{attempt.number} ({attempt.proposal.title}): it stays unfinished and goes on "
        f"with: {typed('run', '--tag', context.runner.night.tag)}"
    )


def _wants_dry_run(context: NightContext, state: State, attempt: Attempt) -> bool:
    """Return whether an edit needs a dry run: one that only turns dials breaks nothing."""
    if not context.dry_runs or attempt.parent is None or attempt.done_runs:
        return False
    before = state.attempts[attempt.parent].proposal.script
    return not only_dials_differ(before, attempt.proposal.script, context.runner.night.device_kind)


def _hopeless(context: NightContext, state: State, attempt: Attempt) -> Decision | None:
    """Return the decision on an attempt whose run was stopped early, with a forecast as its gain; else None."""
    why = stopped_early(attempt)
    if why is None:
        return None
    best = state.parent_of(attempt)
    known = read_losses(context.runner.run_folder(attempt.number, attempt.done_runs[0].seed) / "out")
    bounds = learnt_bounds(context.runner, state.others(attempt.number), best)
    exceeded = (bound for bound in bounds if bound.verdict(known) is not None)
    forecast_bpb = next((bound.forecast_bpb(known) for bound in exceeded), None)
    if forecast_bpb is None or best is None or best.val_bpb is None:
        return Decision(Kind.STOPPED_EARLY, why)  # its curve is no longer there
    return Decision(Kind.STOPPED_EARLY, why, gain_bpb=best.val_bpb - forecast_bpb)


# ---- second thoughts -------------------------------------------------------------------------------------------------


def loose_end(context: NightContext, state: State) -> Job | None:
    """Return a missing score or audit of a further run of a settled attempt; dawn's runs are left out."""
    for number in sorted(state.loose):
        attempt = state.attempts[number]
        finished = unscored(attempt)
        if finished is not None:
            return evaluation(context, state, attempt, finished)
        suspect = unaudited(attempt) if attempt.status is Status.KEEP else None
        if suspect is not None:
            return reexamination(context, state, attempt, suspect)
    return None


def second_thoughts(context: NightContext, state: State) -> Review:
    """Return the judge's review, after revoking keeps whose further run crashed or failed its audit."""
    if state.best is None:
        return Review()
    fallen = fallen_keeps(state.attempts, state.kept)
    if fallen:
        return Review(decisions=fallen)
    review = context.judge.review(state.attempts)
    again = review.again if review.again is None or failure(state.attempts[review.again]) is None else None
    return Review(again, review.decisions)


def fallen_keeps(history: History, kept: Iterable[int]) -> dict[int, Decision]:
    """Return decisions that revoke keeps: a later run failed, at dawn too, or its audit, or their parent has fallen."""
    verdicts = {number: _fall(history[number], history) for number in sorted(kept) if number}
    return {number: verdict for number, verdict in verdicts.items() if verdict is not None}


def _fall(attempt: Attempt, history: History) -> Decision | None:
    if attempt.decision is None or attempt.status is not Status.KEEP:
        return None
    if attempt.parent is not None and history[attempt.parent].status is not Status.KEEP:
        return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, which is no longer kept")
    slow = too_slow(attempt)
    if slow is not None:
        return Decision(Kind.TOO_SLOW, f"with another seed: {slow}")
    why = fault(attempt)
    if why is not None:
        return Decision(Kind.CRASHED, f"with another seed: {why}")
    verdict = trusted(attempt.decision, attempt, None)
    return verdict if verdict.status is not Status.KEEP else None


def _go_on_from(decisions: Mapping[int, Decision], history: History) -> Reconsider:
    sentences = []
    for number, decision in decisions.items():
        kept = decision.status is Status.KEEP
        where = f"#{number}, which dawn has confirmed" if kept else f"before #{number}"
        sentences.append(f"the night goes on from {where}: {history[number].proposal.title}")
    return Reconsider(decisions, tuple(sentences))


def _adopted_and_unmeasured(context: NightContext, state: State) -> Attempt | None:
    """Return the script that dawn has confirmed, while it has fewer runs of the night than a fresh edit would get.

    Edits made from it are compared with these runs: the night must not choose by dawn's scores.
    """
    best = state.best
    if best is None or best.is_idea:
        return None
    if best.done_runs:
        fresh = replace(best, decision=None, settled=False)
        if context.judge.judge(fresh, state.others(best.number)).status is not None:
            return None
    return best


# ---- jobs ------------------------------------------------------------------------------------------------------------


def measure(context: NightContext, state: State, attempt: Attempt, dawn: int = 0) -> Measure:
    """Return the job of the attempt's next run; at night and at each dawn, all attempts use the same seeds in order."""
    done = attempt.dawn_runs(dawn) if dawn else attempt.done_runs
    seed = context.runner.night.seed + len(done) + DAWN_SEED * dawn
    return Measure(
        attempt=attempt.number,
        script=attempt.proposal.script,
        seed=seed,
        allowance_s=allowed_s(context, state.attempts, attempt.number),
        usual_bytes=_usual_bytes(state, attempt),
        machine=machine_trial(context, state),
        dawn=dawn,
        bounds=() if dawn else _bounds_ahead(context, state, attempt),
        before=tuple(run.ending for run in attempt.runs if run.seed == seed),
        has_run_well=has_run_well(attempt),
        was_in_time=was_always_in_time(attempt),
    )


def evaluation(
    context: NightContext, state: State, attempt: Attempt, run: Run, split: Split = "validation"
) -> Evaluate:
    """Return the job of scoring a run on a text."""
    return Evaluate(
        **_of_weights(context, state, attempt, run, split),
        refusal=too_heavy(run, state.attempts),
        has_run_well=bool(run.dawn) or has_run_well(attempt),
    )


def reexamination(
    context: NightContext, state: State, attempt: Attempt, run: Run, split: Split = "validation"
) -> Reexamine:
    """Return the job of an audit against the committed losses of the attempt's parent, hardest at the largest gains."""
    facts = _of_weights(context, state, attempt, run, split)
    return Reexamine(**facts, reference=reference_of(context.runner, state, attempt.number, run, split))


def _of_weights(context: NightContext, state: State, attempt: Attempt, run: Run, split: Split) -> dict[str, Any]:
    """Return the fields of jobs.OfWeights."""
    return {
        "attempt": attempt.number,
        "script": attempt.proposal.script,
        "seed": run.seed,
        "limit_s": scoring_allowed_s(context, state.attempts, attempt.number, run),
        "usual_bytes": _usual_bytes(state, attempt),
        "machine": machine_trial(context, state),
        "split": split,
    }


def _rehearsal(context: NightContext, state: State, attempt: Attempt) -> Rehearse:
    return Rehearse(
        trial=_trial(context, state, attempt), machine=machine_trial(context, state) if attempt.number else None
    )


def machine_trial(context: NightContext, state: State) -> Trial:
    """Return the trial run of attempt 0, which shows whether this machine still trains and scores."""
    return _trial(context, state, state.first)


def _trial(context: NightContext, state: State, attempt: Attempt) -> Trial:
    return Trial(
        attempt=attempt.number,
        script=attempt.proposal.script,
        allowance_s=allowed_s(context, state.attempts, attempt.number),
        scoring_s=scoring_allowed_s(context, state.attempts, attempt.number),
        usual_bytes=_usual_bytes(state, attempt),
    )


def _usual_bytes(state: State, attempt: Attempt) -> int | None:
    return (state.first.peak_bytes or None) if attempt.number else None


def allowed_s(context: NightContext, history: History, number: int) -> float:
    """Return the seconds that a run may take beyond its budget: the user's choice, else learnt from attempt 0.

    Attempt 0 itself gets FIRST_ALLOWANCE_S, since the machine may become busy. The others get little more than its
    slowest run took.
    """
    if context.runner.allowance_s is not None:
        return context.runner.allowance_s
    if number == 0:
        return FIRST_ALLOWANCE_S
    return learnt_allowance_s(history, context.runner.night.budget_s)


def scoring_allowed_s(context: NightContext, history: History, number: int, run: Run | None = None) -> float:
    """Return the seconds for each process that scores or audits this run; without a run, for the dry run."""
    beyond_s = max(0.0, run.wall_s - context.runner.night.budget_s) if run is not None else 0.0
    return scoring_limit_s(history, number, beyond_s, allowed_s(context, history, number))


def _bounds_ahead(context: NightContext, state: State, attempt: Attempt) -> tuple[Bound, ...]:
    """Return the bounds that may stop an idea's first run early; further seeds are run to the end."""
    if not context.early_stop or attempt.number == 0 or attempt.decision is not None or attempt.done_runs:
        return ()
    return learnt_bounds(context.runner, state.others(attempt.number), state.parent_of(attempt))


def reference_of(runner: Runner, state: State, number: int, run: Run, split: Split) -> tuple[int, int] | None:
    """Return the attempt and seed of the run that an audit counts gains from; None if no losses are there.

    It is a run of the attempt's parent, else of attempt 0. Only runs at dawn have losses on the holdout; there
    it is a run of the same dawn, at which attempt 0 always runs first.
    """
    best = state.parent_of(state.attempts[number])
    for one in (best, state.first) if best is not None else ():
        for other in one.counted_runs if split == "validation" else one.dawn_runs(run.dawn):
            if runner.losses(one.number, other.seed, split).is_file():
                return one.number, other.seed
    return None


def has_run_well(attempt: Attempt) -> bool:
    """Return whether a run of the attempt was scored."""
    return any(run.score is not None and run.score.val_bpb is not None for run in attempt.counted_runs)


def was_always_in_time(attempt: Attempt) -> bool:
    """Return whether a run of the attempt was scored and none was repeated because it overran.

    A script that got another try with every seed could discard each run that it does not like.
    """
    return has_run_well(attempt) and not any(run.ending is Ending.DELAYED for run in attempt.runs)
