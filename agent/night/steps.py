"""What is done to one attempt: committed, tried dry, run, scored, audited, settled.

Each step writes to the journal what it found before the next begins, and may be done twice without harm.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.clock import boot_id
from agent.errors import MachineError, NightError, Starved
from agent.experiment import (
    Attempt,
    Audit,
    Decision,
    DryRun,
    Ending,
    History,
    Kind,
    Night,
    Run,
    Score,
    Status,
    attempt_ref,
    incumbent,
    short,
)
from agent.files import read_plain, write_plain
from agent.invocation import typed
from agent.judging.early_stop import Bound
from agent.judging.failures import stopped_early
from agent.night.lab import Lab
from agent.records import ledger
from agent.records.journal import Journal
from agent.records.place import Place
from agent.runs.score import Split, audit, score, scoring_limit_s, too_heavy
from agent.runs.train import FIRST_ALLOWANCE_S, learnt_allowance_s, learnt_bounds, read_losses, train
from agent.runs.trial import rehearse
from agent.runs.workshop import STARVED_TRIES, STARVED_WAIT_S, Workshop
from agent.sandbox.limits import fair_to
from agent.sandbox.process import LOG

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
    try:
        found = rehearse(fair_shop(lab, attempt), attempt.number, attempt.proposal.script, *limits_s)
    except Starved as error:
        why = unless_machine_is_full(lab, attempt, error)
        found = None if why is None else DryRun(0.0, why)
    if found is None:
        return False
    lab.journal.record_dry_run(attempt.number, found)
    return True


def run_once(lab: Lab, attempt: Attempt, *, dawn: int = 0) -> bool:
    """With the next seed of the night, or of this dawn: the k-th run of every attempt has the same.

    Raises MachineError where not even attempt 0 runs on this machine any more.
    """
    done = attempt.dawn_runs(dawn) if dawn else attempt.done_runs
    seed = lab.shop.night.seed + len(done) + DAWN_SEED * dawn
    lab.watcher.run_began(attempt, seed)
    allowance_s = allowed_s(lab, attempt)
    run_id = lab.journal.start_run(attempt.number, seed, boot_id(), dawn=dawn)
    ahead = bounds_ahead(lab, attempt) if not dawn else ()
    run = train(fair_shop(lab, attempt), attempt.number, attempt.proposal.script, seed, allowance_s, ahead)
    before = [one for one in attempt.runs if one.seed == seed]
    run = given_a_second_chance(run, before, was_in_time=was_always_in_time(attempt))
    if (run.ending in FAILED and (dawn or has_run_well(attempt))) or is_starved_again(run, before):
        run = unless_machine_is_broken(lab, attempt, run)
    lab.journal.end_run(run_id, run)
    return is_to_go_on(lab, attempt, run, before)


def has_run_well(attempt: Attempt) -> bool:
    """Whether a run of it was scored."""
    return any(run.score is not None and run.score.val_bpb is not None for run in attempt.counted_runs)


def was_always_in_time(attempt: Attempt) -> bool:
    """Whether its runs were scored, and none is done again for its time.

    A script that is given another try with every seed could throw away each run that it does not like.
    """
    return has_run_well(attempt) and not any(run.ending is Ending.DELAYED for run in attempt.runs)


def given_a_second_chance(run: Run, before: Sequence[Run], *, was_in_time: bool) -> Run:
    """An overrun counts unless others kept the machine busy, or the script was in time before; the second counts."""
    if run.ending not in (Ending.OVERRAN, Ending.DELAYED):
        return run
    if any(one.ending is Ending.DELAYED for one in before):
        return replace(run, ending=Ending.OVERRAN)
    if run.ending is Ending.OVERRAN and was_in_time:
        return replace(run, ending=Ending.DELAYED, last_lines=f"{run.last_lines}\nwith another seed it was in time")
    return run


def is_starved_again(run: Run, before: Sequence[Run]) -> bool:
    """Whether others had taken the room of the last few runs, too: it is time to see who does."""
    last = [one.ending for one in (*before, run)][-STARVED_TRIES:]
    return last == [Ending.STARVED] * STARVED_TRIES


def is_to_go_on(lab: Lab, attempt: Attempt, run: Run, before: Sequence[Run]) -> bool:
    """Say why a run is void; False where the user stopped it. Raises MachineError where all others would be void."""
    reason = run.last_lines.rpartition("\n")[2]
    if run.ending is Ending.BROKEN:
        raise MachineError(f"{reason}; repair that and give the same command: the run is done again")
    if is_starved_again(run, before):
        raise MachineError(f"{reason}; {_remedy(lab)}")
    if run.ending is Ending.SLEPT:
        lab.watcher.said("the machine slept during this run: it does not count and is done again")
    if run.ending is Ending.DELAYED:
        why = "; ".join(run.last_lines.split("\n")[-2:])
        lab.watcher.said(f"this run of #{attempt.number} overran and is done again, once: {why}")
        return not lab.stop.after_run
    if run.ending is Ending.STARVED:
        again = f"is done again in {STARVED_WAIT_S:.0f} s: other programs took its room"
        lab.watcher.said(f"this run of #{attempt.number} does not count and {again} ({reason})")
        if lab.stop.after_run:
            return False
        lab.shop.wait(STARVED_WAIT_S)
    return run.ending is not Ending.STOPPED


def _remedy(lab: Lab) -> str:
    again = typed("run", "--tag", lab.shop.night.tag)
    return f"free some and go on with: {again} (what was cut off does not count and is done again)"


# ---- whose fault it is -----------------------------------------------------------------------------------------------


def fair_shop(lab: Lab, attempt: Attempt) -> Workshop:
    """Where the machine runs short, attempt 0 is never to blame within its cap, and others by what attempt 0 took."""
    usual_bytes = (lab.journal.attempt(0).peak_bytes or None) if attempt.number else None
    return replace(lab.shop, resource_limits=fair_to(lab.shop.resource_limits, usual_bytes))


def check_machine(lab: Lab) -> DryRun | None:
    """Whether attempt 0 still trains here and is scored, for some seconds; None when the user stopped it."""
    first = lab.journal.attempt(0)
    limits_s = allowed_s(lab, first), scoring_allowed_s(lab, first)
    try:
        return rehearse(fair_shop(lab, first), 0, first.proposal.script, *limits_s)
    except Starved as error:
        return DryRun(0.0, str(error))


def broken_by(lab: Lab, found: DryRun) -> str | None:
    """In a sentence; None where attempt 0 came to its end."""
    if found.failure is None:
        return None
    return f"not even attempt 0 trains here any more: {found.failure} (log: {lab.shop.dry_folder(0) / LOG})"


def unless_machine_is_broken(lab: Lab, attempt: Attempt, run: Run) -> Run:
    """A failed run of something that has run before: it counts only where attempt 0 still comes to its end.

    So does one without room, where there is room for attempt 0.
    """
    if run.ending is Ending.STARVED and attempt.number == 0:
        return run
    found = check_machine(lab)
    if found is None:
        return replace(run, ending=Ending.STOPPED)
    why = broken_by(lab, found)
    if run.ending is Ending.STARVED:
        return replace(run, ending=Ending.EXCEEDED) if why is None else run
    return run if why is None else replace(run, ending=Ending.BROKEN, last_lines=f"{run.last_lines}\n{why}".strip())


def unless_machine_is_full(lab: Lab, attempt: Attempt, error: Starved) -> str | None:
    """Why a process that had no room failed, where attempt 0 has some; None when the user stopped it.

    Raises MachineError where attempt 0 has none either.
    """
    found = check_machine(lab) if attempt.number else DryRun(0.0, str(error))
    if found is not None and found.failure is not None:
        raise MachineError(f"{error}; {_remedy(lab)}") from error
    return None if found is None else str(error)


def machine_scores(lab: Lab) -> bool:
    """False when the user stopped it; raises MachineError where attempt 0 is not scored either: nothing is recorded."""
    found = check_machine(lab)
    why = None if found is None else broken_by(lab, found)
    if why is not None:
        raise MachineError(f"{why}; repair that and give the same command: the scoring is done again")
    return found is not None


def allowed_s(lab: Lab, attempt: Attempt) -> float:
    """The seconds that a run may take beyond its budget: as many as the user said, else as attempt 0 needed.

    What attempt 0 itself needs is never known in advance, since the machine may become busy. The others get what it
    took at most, and little more.
    """
    if lab.shop.allowance_s is not None:
        return lab.shop.allowance_s
    if attempt.number == 0:
        return FIRST_ALLOWANCE_S
    return learnt_allowance_s(lab.journal.attempts(), lab.shop.night.budget_s)


def scoring_allowed_s(lab: Lab, attempt: Attempt, run: Run | None = None) -> float:
    """Each process that scores or audits this run of the attempt; without one, of its dry run."""
    beyond_s = max(0.0, run.wall_s - lab.shop.night.budget_s) if run is not None else 0.0
    allowance_s = allowed_s(lab, attempt)
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
        return Decision(Kind.STOPPED_EARLY, why)  # its curve is no longer there
    return Decision(Kind.STOPPED_EARLY, why, gain_bpb=best.val_bpb - forecast_bpb)


def score_once(lab: Lab, attempt: Attempt, run: Run, split: Split = "validation") -> bool:
    lab.watcher.scoring_began(attempt)
    why, limit_s = too_heavy(run, lab.journal.attempts()), scoring_allowed_s(lab, attempt, run)
    measured: Score | None = Score(None, 0.0, why)
    if why is None:
        shop, script = fair_shop(lab, attempt), attempt.proposal.script
        try:
            measured = score(shop, attempt.number, script, run.seed, limit_s, split)
        except Starved as error:
            why = unless_machine_is_full(lab, attempt, error)
            measured = None if why is None else Score(None, 0.0, why)
    if measured is None:
        return False
    if measured.val_bpb is None and (run.dawn or has_run_well(attempt)) and not machine_scores(lab):
        return False
    record = lab.journal.record_score if split == "validation" else lab.journal.record_holdout
    record(attempt.number, run.seed, measured)
    return True


def audit_once(lab: Lab, attempt: Attempt, run: Run, split: Split = "validation") -> bool:
    """Against committed losses of what it was made from, where the largest gains are looked at hardest."""
    lab.watcher.audit_began(attempt)
    history = lab.journal.attempts()
    known = reference_of(lab.shop, attempt, run, history, split)
    shop, limit_s = fair_shop(lab, attempt), scoring_allowed_s(lab, attempt, run)
    try:
        found = audit(shop, attempt.number, attempt.proposal.script, run.seed, limit_s, known, split)
    except Starved as error:
        why = unless_machine_is_full(lab, attempt, error)
        found = None if why is None else Audit(0, 0, 0.0, 0.0, 0.0, f"it could not be done: {why}")
    if found is None:
        return False
    no_answer = not found.passed and found.worst_nats == 0.0
    if no_answer and not machine_scores(lab):
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
        lab.watcher.said(f"{short(branch)} is checked out and stays; the best script is {commit[:7]}")
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
    write_plain(place.ledger, ledger.render(read_plain(place.ledger), nights))
