"""What is done to one attempt: committed, tried dry, run, scored, audited, settled.

Each step writes to the journal what it found before the next begins, and may be done twice without harm.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent import ledger
from agent.clock import boot_id
from agent.curve import Bound
from agent.dry_run import rehearse
from agent.errors import MachineError, NightError
from agent.experiment import Attempt, Decision, Ending, History, Night, Run, Score, Status, attempt_ref, incumbent
from agent.failures import stopped_early
from agent.journal import Journal
from agent.lab import Lab
from agent.opening import Place
from agent.process import LOG
from agent.run import FIRST_ALLOWANCE_S, learnt_allowance_s, learnt_bounds, read_losses, train
from agent.score import Split, audit, score, scoring_limit_s, too_heavy
from agent.workshop import Workshop

DAWN_SEED = 1000  # from one dawn to the next: each confirms with seeds that no choice before it has seen
FAILED = frozenset({Ending.CRASHED, Ending.OVERRAN, Ending.EXCEEDED})


def commit(lab: Lab, attempt: Attempt) -> None:
    """The attempt's own commit and ref; made from recorded facts alone, so that doing it twice is doing it once."""
    if attempt.commit is not None:
        return
    night, repo = lab.shop.night, lab.place.repo
    parent = night.base if attempt.parent is None else lab.journal.attempt(attempt.parent).commit
    if parent is None:
        raise NightError(f"attempt {attempt.parent} of night {night.tag} has no commit; its journal was edited by hand")
    proposal = attempt.proposal
    facts = f"Source: {proposal.source}\nNight: {night.tag}\nAttempt: {attempt.number}\n"
    message = f"{proposal.title}\n\n{proposal.hypothesis}\n\n{facts}"
    sha = repo.commit_script(parent, night.script, proposal.script, message, when=attempt.started)
    ref = attempt_ref(night.tag, attempt.number)
    repo.move_ref(ref, sha, repo.find(ref), f"attempt {attempt.number}")
    lab.journal.record_commit(attempt.number, sha)


def dry_run_once(lab: Lab, attempt: Attempt) -> bool:
    """False when the user stopped it, as with all that follow."""
    lab.watcher.dry_run_began(attempt)
    limits_s = allowed_s(lab, attempt), scoring_allowed_s(lab, attempt)
    found = rehearse(lab.shop, attempt.number, attempt.proposal.script, *limits_s)
    if found is None:
        return False
    lab.journal.record_dry_run(attempt.number, found)
    return True


def run_once(lab: Lab, attempt: Attempt, *, dawn: int = 0) -> bool:
    """With the next seed of the night, or of this dawn: the k-th run of every attempt has the same.

    What was kept has run before. Where it fails now and attempt 0 does too, that is no run: raises MachineError.
    """
    done = attempt.dawn_runs(dawn) if dawn else attempt.done_runs
    seed = lab.shop.night.seed + len(done) + DAWN_SEED * dawn
    lab.watcher.run_began(attempt, seed)
    allowance_s = lab.shop.allowance_s or allowed_s(lab, attempt)
    run_id = lab.journal.start_run(attempt.number, seed, boot_id(), dawn=dawn)
    ahead = bounds_ahead(lab, attempt) if not dawn else ()
    run = train(lab.shop, attempt.number, attempt.proposal.script, seed, allowance_s, ahead)
    if attempt.status is Status.KEEP and run.ending in FAILED:
        run = unless_machine_is_broken(lab, run)
    lab.journal.end_run(run_id, run)
    if run.ending is Ending.LOST:
        raise MachineError(f"{run.last_lines}; mend that and give the same command: the run is done again")
    if run.ending is Ending.SLEPT:
        lab.watcher.said("the machine slept during this run: it does not count and is done again")
    return run.ending is not Ending.STOPPED


def unless_machine_is_broken(lab: Lab, run: Run) -> Run:
    """A failed run of something that was kept: it counts only where a dry run of attempt 0 still comes to its end."""
    first = lab.journal.attempt(0)
    limits_s = allowed_s(lab, first), scoring_allowed_s(lab, first)
    found = rehearse(lab.shop, 0, first.proposal.script, *limits_s)
    if found is None:
        return replace(run, ending=Ending.STOPPED)
    if found.failure is None:
        return run
    why = f"not even attempt 0 trains here any more: {found.failure} (log: {lab.shop.dry_folder(0) / LOG})"
    return replace(run, ending=Ending.LOST, last_lines=why)


def allowed_s(lab: Lab, attempt: Attempt) -> float:
    """What attempt 0 needs beyond its budget nobody knows; the others get what it took, and little more."""
    history = lab.journal.attempts()
    if attempt.number == 0 and not any(run.ending is Ending.FINISHED for run in history[0].done_runs):
        return FIRST_ALLOWANCE_S
    return learnt_allowance_s(history, lab.shop.night.budget_s)


def scoring_allowed_s(lab: Lab, attempt: Attempt, run: Run | None = None) -> float:
    """Each process that scores or audits this run of the attempt; without one, of its dry run."""
    beyond_s = max(0.0, run.wall_s - lab.shop.night.budget_s) if run is not None else 0.0
    allowance_s = lab.shop.allowance_s or allowed_s(lab, attempt)
    return scoring_limit_s(lab.journal.attempts(), attempt.number, beyond_s, allowance_s)


def bounds_ahead(lab: Lab, attempt: Attempt) -> tuple[Bound, ...]:
    """Where an idea's first run may be stopped early; a further seed was asked for, and its run is finished."""
    if not lab.early_stop or attempt.number == 0 or attempt.decision is not None or attempt.done_runs:
        return ()
    before = lab.journal.attempts()[: attempt.number]
    return learnt_bounds(lab.shop, before, incumbent(before))


def hopeless(lab: Lab, attempt: Attempt) -> Decision | None:
    """About an attempt whose run was stopped early, which is a discard with a forecast for a score; None for others."""
    why = stopped_early(attempt)
    if why is None:
        return None
    before = lab.journal.attempts()[: attempt.number]
    best, known = incumbent(before), read_losses(lab.shop.run_folder(attempt.number, attempt.done_runs[0].seed) / "out")
    exceeded = (bound for bound in learnt_bounds(lab.shop, before, best) if bound.verdict(known) is not None)
    forecast_bpb = next((bound.forecast_bpb(known) for bound in exceeded), None)
    if forecast_bpb is None or best is None or best.val_bpb is None:
        return Decision(Status.DISCARD, why)  # its curve is no longer there
    return Decision(Status.DISCARD, why, gain_bpb=best.val_bpb - forecast_bpb)


def score_once(lab: Lab, attempt: Attempt, run: Run, split: Split = "validation") -> bool:
    lab.watcher.scoring_began(attempt)
    why, limit_s = too_heavy(run, lab.journal.attempts()), scoring_allowed_s(lab, attempt, run)
    measured: Score | None = Score(None, 0.0, why)
    if why is None:
        measured = score(lab.shop, attempt.number, attempt.proposal.script, run.seed, limit_s, split)
    if measured is None:
        return False
    record = lab.journal.record_score if split == "validation" else lab.journal.record_holdout
    record(attempt.number, run.seed, measured)
    return True


def audit_once(lab: Lab, attempt: Attempt, run: Run, split: Split = "validation") -> bool:
    """Against committed losses of what it was made from, where the largest gains are looked at hardest."""
    lab.watcher.audit_began(attempt)
    history = lab.journal.attempts()
    known = reference_of(lab.shop, attempt, run, history, split)
    limit_s = scoring_allowed_s(lab, attempt, run)
    found = audit(lab.shop, attempt.number, attempt.proposal.script, run.seed, limit_s, known, split)
    if found is None:
        return False
    if split == "validation":
        lab.journal.record_audit(attempt.number, run.seed, found)
    elif run.holdout is not None:
        lab.journal.record_holdout(attempt.number, run.seed, replace(run.holdout, audit=found))
    return True


def reference_of(shop: Workshop, attempt: Attempt, run: Run, history: History, split: Split) -> tuple[int, int] | None:
    """The attempt and the seed of the run whose losses the gains are counted from; None where there are none.

    The incumbent's of that time, else attempt 0's. Only runs at dawn have losses on the holdout: there they are of the
    same dawn, for which attempt 0 always runs first.
    """
    best = incumbent(history[: attempt.number])
    for one in (best, history[0]) if best is not None else ():
        for other in one.counted_runs if split == "validation" else one.dawn_runs(run.dawn):
            if shop.losses(one.number, other.seed, split).is_file():
                return one.number, other.seed
    return None


def settle(lab: Lab, number: int) -> Attempt:
    """Make branch, ledger and weights follow the decision; the weights of dawn's questions are dawn's to drop."""
    history = lab.journal.attempts()
    attempt, best = history[number], incumbent(history)
    if attempt.status is not Status.KEEP:
        for run in attempt.runs:
            if attempt.is_idea or not run.dawn:
                lab.shop.drop_weights(number, run.seed)
    if best is not None and best.commit is not None:
        point_branch(lab, lab.shop.night.branch, best.commit, f"best is attempt {best.number}")
    write_ledger(lab.place, live=(lab.shop.night, history))
    lab.journal.settle(number)
    lab.journal.check_in_place()
    return attempt


def point_branch(lab: Lab, branch: str, commit: str, why: str) -> None:
    """Move a branch of the night, unless somebody has it checked out: HEAD and index are theirs. It catches up later.

    Raises RepoError where it is at a commit that this night did not make.
    """
    repo = lab.place.repo
    now = repo.find(branch)
    if now == commit:
        return
    if branch in repo.checked_out():
        lab.watcher.said(
            f"{branch.removeprefix('refs/heads/')} is checked out and stays; the best script is {commit[:7]}"
        )
        return
    ours = {attempt.commit for attempt in lab.journal.attempts()}
    repo.move_ref(branch, commit, now if now in ours else commit, why)


def why_and_where(lab: Lab, crashed: Attempt) -> str:
    """The reason of a crash, and the log that says more."""
    reason = crashed.decision.reason if crashed.decision else "no score"
    logs: list[Path] = [lab.shop.log(crashed.number, run) for run in crashed.counted_runs]
    return f"{reason} (log: {logs[-1]})" if logs else reason


def write_ledger(place: Place, live: tuple[Night, History] | None = None) -> None:
    """Render results.tsv from every journal here; the rows of one that cannot be read stay as they are.

    A running night brings its own attempts: its journal may have been swept away under it.
    """
    nights = [] if live is None else [live]
    for tag in place.tags():
        if live is not None and tag == live[0].tag:
            continue
        with suppress(NightError), Journal.read(place.journal(tag)) as journal:
            nights.append((journal.night(), journal.attempts()))
    nights.sort(key=lambda pair: pair[0].started)
    ledger.write(place.ledger, ledger.render(ledger.read(place.ledger), nights))
