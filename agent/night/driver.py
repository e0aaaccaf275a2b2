"""The loop: propose → commit → run → score → judge → keep or not, and think again.

Every step is a question to the journal (what is known?) and an entry in it (what is known now), so there is no
difference between going on and resuming: after a kill the same questions find the first step without an answer.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from agent.clock import boot_id, utc_now
from agent.errors import Exhausted, NoIdea, ScriptError
from agent.experiment import (
    TITLE_CHARS,
    Attempt,
    Briefing,
    Decision,
    Ending,
    History,
    Kind,
    Proposal,
    Review,
    Run,
    Status,
    incumbent,
)
from agent.invocation import typed
from agent.judging.confirmation import QUESTION, adoption
from agent.judging.failures import failure, fault, too_slow
from agent.judging.judge import trusted
from agent.judging.noise import noise
from agent.night.lab import Lab
from agent.night.notes import read_notes, read_program
from agent.night.opening import check_disk
from agent.night.steps import audit_once, commit, dry_run_once, hopeless, run_once, score_once, settle, why_and_where
from agent.night.streak import check_streak
from agent.proposers.checked import check_proposal
from agent.records.place import read_script
from agent.script.dials import only_dials_differ
from agent.text import one_line
from agent.view.terminal import noise_lines

Step = Callable[[], bool]  # False: the user stopped it, or there is nothing more to do

WAITS_S = (30.0, 120.0, 600.0)  # before nobody is asked any more
POLL_S = 0.2
REPAIRED = ", repaired"


def run_night(lab: Lab) -> None:
    """Until a limit is reached, the user stops it or the proposer has nothing left; raises NightshiftError."""
    lab.journal.mark_lost_runs(boot_id())
    known = sum(attempt.settled for attempt in lab.journal.attempts())
    while (step := next_step(lab)) is not None and step():
        check_streak(lab, lab.journal.attempts()[known:])


def next_step(lab: Lab) -> Step | None:
    """What the journal lacks; None when the night is over."""
    if lab.stop.after_run:
        return None
    check_disk(lab.place.repo.root)
    history = lab.journal.attempts()
    unsettled = next((attempt for attempt in history if not attempt.settled), None)
    if unsettled is not None:
        return partial(bring_to_an_end, lab, unsettled)
    loose = loose_end(lab, history)
    if loose is not None:
        return loose
    review = second_thoughts(lab, history)
    if review.decisions:
        return partial(reconsider, lab, review.decisions)
    pace = lab.pace(history)
    if lab.limits.has_enough_ideas(history):
        return None
    confirmed = adoption(history, next(reversed(lab.journal.dawns()), None))
    if confirmed:
        return None if lab.limits.reached(history, pace) else partial(go_on_from_confirmed, lab, confirmed)
    unmeasured = adopted_and_unmeasured(lab, history)
    again = review.again if unmeasured is None else unmeasured.number
    if again is not None:
        return partial(run_again, lab, history[again]) if lab.limits.allows_run(again, pace) else None
    return None if lab.limits.reached(history, pace) else partial(begin, lab, history)


# ---- an attempt ------------------------------------------------------------------------------------------------------


def begin(lab: Lab, history: History) -> bool:
    """Enter the next attempt into the journal; False when nobody has an idea any more."""
    proposal = ask_patiently(lab, history)
    if proposal is None:
        return False
    best = incumbent(history)
    lab.journal.add_attempt(len(history), best.number if best else None, proposal, utc_now())
    return True


def ask_patiently(lab: Lab, history: History) -> Proposal | None:
    """A server that is down for some minutes, or an empty queue, is no reason to end a night; None when it stays so."""
    for wait_s in (*WAITS_S, None):
        try:
            return propose(lab, history)
        except Exhausted as error:
            lab.watcher.said(str(error))
            return None
        except NoIdea as error:
            lab.watcher.said(str(error))
        if wait_s is None or lab.limits.reached(history, lab.pace(history), wait_s) or not wait(lab, wait_s):
            return None
    return None


def wait(lab: Lab, wait_s: float) -> bool:
    """False when the user stopped the night meanwhile."""
    lab.watcher.said(f"nobody has an idea now; asking again in {wait_s:g} s")
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and not lab.stop.after_run:
        time.sleep(min(POLL_S, wait_s))
    return not lab.stop.after_run


def propose(lab: Lab, history: History) -> Proposal:
    """Attempt 0 is the user's own script; without a score of it there is nothing to improve on."""
    if not history:
        script = (lab.baseline or read_script)(lab.place)
        return Proposal(script, "baseline", "The script that the night began with.", "you")
    best = incumbent(history)
    if best is None:
        raise ScriptError(_without_baseline(lab, history[0]))
    lab.watcher.asking_began(len(history))
    proposal = lab.proposer.propose(brief(lab, history, best))
    check_proposal(proposal, history, lab.place.script)
    return proposal if proposal.repairs is None else as_repair(proposal, history[proposal.repairs].proposal)


def as_repair(proposal: Proposal, broken: Proposal) -> Proposal:
    """Under the name of the idea that it repairs: "fix the crash", as its author calls it, says nothing of the idea."""
    title = one_line(broken.title, TITLE_CHARS - len(REPAIRED)) + REPAIRED
    return replace(proposal, title=title, hypothesis=broken.hypothesis)


def _without_baseline(lab: Lab, first: Attempt) -> str:
    night, what = lab.shop.night, "attempt 0, the script as it stands, has no score that counts: "
    what += why_and_where(lab, first)
    if too_slow(first) is None:
        return f"{what}; repair it and start a new night"
    return (
        f"{what}; nothing in it is broken, but it or this machine is too slow: see where its time goes with "
        f"python {night.script} --budget-s {night.budget_s:g}, end what else is running, or allow more with "
        f"--allowance-s, in a new night"
    )


def brief(lab: Lab, history: History, best: Attempt) -> Briefing:
    last = history[-1]
    return Briefing(
        night=lab.shop.night,
        history=history,
        parent=best,
        noise=noise(history),
        program=read_program(lab.place.script_path.parent / "program.md"),
        notes=read_notes(lab.shop.folder),
        asks=lab.journal.asks(),
        broken=last if last.status is Status.CRASH and last.is_idea and last.proposal.repairs is None else None,
    )


def bring_to_an_end(lab: Lab, attempt: Attempt) -> bool:
    """Commit, measure, decide, settle; of one that was decided before, only what follows from the new decision."""
    if attempt.decision is None:
        lab.watcher.attempt_began(attempt)
        commit(lab, attempt)
        if not measure(lab, attempt.number):
            return False
    settled = settle(lab, attempt.number)
    parent = None if attempt.parent is None else lab.journal.attempt(attempt.parent)
    lab.watcher.attempt_settled(settled, parent)
    found = noise(lab.journal.attempts()) if attempt.number == 0 else None
    if found is not None:
        for line in noise_lines(found):
            lab.watcher.said(line)
    return True


def measure(lab: Lab, number: int) -> bool:
    """Run, score, judge and audit until there is a decision; False when the user stopped it before."""
    while (step := next_measurement(lab, number)) is not None:
        lab.journal.check_in_place()  # before minutes are spent that nobody would know of
        if not step():
            return False
    return True


def next_measurement(lab: Lab, number: int) -> Step | None:
    """What the journal lacks to decide about the attempt."""
    history = lab.journal.attempts()
    attempt = history[number]
    if attempt.decision is not None:
        return None
    if not attempt.is_idea:
        lab.journal.record_decision(number, Decision(Kind.QUESTION, QUESTION))
        return None
    if attempt.dry_run is None and wants_dry_run(lab, attempt, history):
        return in_time(lab, attempt, partial(dry_run_once, lab, attempt), lab.pace(history).dry_run_s)
    slow = too_slow(attempt)
    if slow is not None:
        lab.journal.record_decision(number, Decision(Kind.TOO_SLOW, slow))
        return None
    if attempt.dry_run is not None and attempt.dry_run.failure is not None:
        lab.journal.record_decision(number, Decision(Kind.CRASHED, failure(attempt) or "dry run"))
        return None
    unscored = _unscored(attempt)
    if unscored is not None:
        return partial(score_once, lab, attempt, unscored)
    if not attempt.done_runs:
        return in_time(lab, attempt, partial(run_once, lab, attempt))
    given_up = hopeless(lab, attempt)
    if given_up is not None:
        lab.journal.record_decision(number, given_up)
        return None
    decision = lab.judge.judge(attempt, history[:number])
    if decision.status is None:
        return in_time(lab, attempt, lambda: not lab.stop.after_run and run_once(lab, attempt))
    if decision.status is Status.KEEP:
        unaudited = _unaudited(attempt)
        if unaudited is not None:
            return partial(audit_once, lab, attempt, unaudited)
        decision = trusted(decision, attempt, incumbent(history[:number]), lab.plausible_gain)
    lab.journal.record_decision(number, decision)
    return None


def in_time(lab: Lab, attempt: Attempt, step: Step, before_s: float = 0.0) -> Step:
    """The step, if a run of the attempt would still end within the hours; else it is left as it is, for another call.

    Attempt 0 is begun in any case: a night whose hours are less than a run was refused.
    """
    begins = attempt.number == 0 and not attempt.runs
    if begins or lab.limits.allows_run(attempt.number, lab.pace(lab.journal.attempts()), before_s):
        return step
    return partial(leave_unfinished, lab, attempt)


def leave_unfinished(lab: Lab, attempt: Attempt) -> bool:
    wants = "another seed" if attempt.done_runs else "its run"
    lab.watcher.said(
        f"no time is left for {wants} of #{attempt.number} ({attempt.proposal.title}): it stays unfinished and goes on "
        f"with: {typed('run', '--tag', lab.shop.night.tag)}"
    )
    return False


def wants_dry_run(lab: Lab, attempt: Attempt, history: History) -> bool:
    """Turned dials break nothing that did not break before; whatever else was edited may."""
    if not lab.dry_runs or attempt.parent is None or attempt.done_runs:
        return False
    return not only_dials_differ(
        history[attempt.parent].proposal.script, attempt.proposal.script, lab.shop.night.device_kind
    )


def _unscored(attempt: Attempt) -> Run | None:
    return next((run for run in attempt.done_runs if run.ending is Ending.FINISHED and run.score is None), None)


def _unaudited(attempt: Attempt) -> Run | None:
    """Every run of an edit, since one alone may cheat; of attempt 0, the user's own script, the first."""
    runs = attempt.done_runs if attempt.number else attempt.done_runs[:1]
    return next((run for run in runs if run.score and run.score.val_bpb is not None and run.score.audit is None), None)


# ---- second thoughts -------------------------------------------------------------------------------------------------


def loose_end(lab: Lab, history: History) -> Step | None:
    """What is left to do about a further run of the night's own, of an attempt that was settled before."""
    for attempt in history:
        unscored = _unscored(attempt)
        if unscored is not None:
            return partial(score_once, lab, attempt, unscored)
        unaudited = _unaudited(attempt) if attempt.status is Status.KEEP else None
        if unaudited is not None:
            return partial(audit_once, lab, attempt, unaudited)
    return None


def second_thoughts(lab: Lab, history: History) -> Review:
    """The judge's, but an edit whose further run crashed, or failed its audit, is not kept whatever its score."""
    if incumbent(history) is None:
        return Review()
    fallen = fallen_keeps(history)
    if fallen:
        return Review(decisions=fallen)
    review = lab.judge.review(history)
    again = review.again if review.again is None or failure(history[review.again]) is None else None
    return Review(again, review.decisions)


def fallen_keeps(history: History) -> dict[int, Decision]:
    """Kept attempts that failed in a later run, dawn's too, or in its audit, and those that were built on one."""
    return {attempt.number: verdict for attempt in history[1:] if (verdict := _fall(attempt, history)) is not None}


def _fall(attempt: Attempt, history: History) -> Decision | None:
    if attempt.decision is None or attempt.status is not Status.KEEP:
        return None
    if attempt.parent is not None and history[attempt.parent].status is not Status.KEEP:
        return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, which is kept no more")
    slow = too_slow(attempt)
    if slow is not None:
        return Decision(Kind.TOO_SLOW, f"with another seed: {slow}")
    why = fault(attempt)
    if why is not None:
        return Decision(Kind.CRASHED, f"with another seed: {why}")
    verdict = trusted(attempt.decision, attempt, None)
    return verdict if verdict.status is not Status.KEEP else None


def reconsider(lab: Lab, decisions: Mapping[int, Decision]) -> bool:
    """The latest first: killed in between, what is still kept is not built on something that is kept no more."""
    for number in sorted(decisions, reverse=True):
        lab.journal.record_decision(number, decisions[number])
    return True


def go_on_from_confirmed(lab: Lab, decisions: Mapping[int, Decision]) -> bool:
    for number, decision in decisions.items():
        title = lab.journal.attempt(number).proposal.title
        kept = decision.status is Status.KEEP
        lab.watcher.said(
            f"the night goes on from {f'#{number}, which dawn has confirmed' if kept else f'before #{number}'}: {title}"
        )
    return reconsider(lab, decisions)


def adopted_and_unmeasured(lab: Lab, history: History) -> Attempt | None:
    """The script that dawn has confirmed, while it has fewer runs of the night's own than a fresh edit would get.

    What is made from it is compared with these: dawn's scores are not for the night to choose by.
    """
    best = incumbent(history)
    if best is None or best.is_idea:
        return None
    if best.done_runs:
        fresh = replace(best, decision=None, settled=False)
        if lab.judge.judge(fresh, history[: best.number]).status is not None:
            return None
    return best


def run_again(lab: Lab, attempt: Attempt) -> bool:
    lab.watcher.attempt_began(attempt)
    return run_once(lab, attempt)
