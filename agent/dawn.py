"""Dawn: the night's result measured anew, and what brings nothing taken out of it.

The runs have seeds of their own, and are scored on the holdout besides: no choice of the night has seen either. What to
run next, and what the runs have told, is agent/confirmation.py's to say; here it is done, as resumable as the night.
"""

from contextlib import suppress
from functools import partial

from agent.clock import boot_id
from agent.confirmation import Again, Findings, Without, findings, next_trial
from agent.contract import check_script
from agent.dials import only_dials_differ, set_dials, values_of
from agent.errors import ScriptError
from agent.experiment import Attempt, Decision, Ending, History, Proposal, Run, Status, incumbent
from agent.judge import trusted
from agent.lab import Lab
from agent.night import QUESTION, Step, bring_to_an_end, fallen_keeps, loose_end, reconsider
from agent.opening import check_disk, utc_now
from agent.steps import audit_once, commit, point_branch, run_once, score_once, settle
from agent.throwaway import git, throwaway_folder

SOURCE = "dawn"
Edits = tuple[int, ...]


def confirm(lab: Lab, most_runs: int) -> Findings | None:
    """Make up to so many runs, then put the champion without its passengers on the branch …-confirmed.

    None where the night kept nothing to confirm. What an interrupted dawn has measured counts when it goes on.
    """
    lab.journal.mark_lost_runs(boot_id())
    impossible: set[Edits] = set()
    begun = _dawn_runs(lab.journal.attempts())
    while (step := _next_step(lab, impossible, begun + most_runs)) is not None and step():
        pass
    found = findings(lab.journal.attempts(), impossible)
    if found is not None:
        _record(lab, found)
        _point_at_confirmed(lab, found)
    return found


def _next_step(lab: Lab, impossible: set[Edits], until: int) -> Step | None:
    """What dawn lacks; None when it is over."""
    history = lab.journal.attempts()
    loose = loose_end(lab, history) or _loose_end_of_dawn(lab, history)
    if loose is not None:
        return loose  # a wish to end after the run, too, lets the run be scored
    if lab.stop.after_run:
        return None
    check_disk(lab.place.repo.root)
    unsettled = next((attempt for attempt in history if not attempt.settled), None)
    if unsettled is not None:
        return partial(bring_to_an_end, lab, unsettled)
    fallen = fallen_keeps(history)
    if fallen:
        return partial(reconsider, lab, fallen)
    if lab.limits.dawn_is_over(history):
        return None
    match next_trial(history, until - _dawn_runs(history), impossible):
        case Again(number):
            lab.watcher.attempt_began(history[number])
            return partial(run_once, lab, history[number], dawn=True)
        case Without(edits):
            return partial(_add_without, lab, history, edits, impossible)
    return None


def _dawn_runs(history: History) -> int:
    return sum(run.dawn for attempt in history for run in attempt.done_runs)


def _loose_end_of_dawn(lab: Lab, history: History) -> Step | None:
    """A run at dawn is scored on both texts; and audited on both where a machine has written the script."""
    for attempt in history:
        for run in attempt.done_runs:
            if run.dawn and run.ending is Ending.FINISHED:
                step = _measurement_of(lab, attempt, run)
                if step is not None:
                    return step
    return None


def _measurement_of(lab: Lab, attempt: Attempt, run: Run) -> Step | None:
    if run.score is None:
        return partial(score_once, lab, attempt, run)
    if run.score.val_bpb is None:
        return None
    if run.holdout is None:
        return partial(_score_on_holdout, lab, attempt, run)
    if attempt.number == 0:
        return None
    if run.score.audit is None:
        return partial(audit_once, lab, attempt, run)
    if run.holdout.val_bpb is not None and run.holdout.audit is None:
        return partial(audit_once, lab, attempt, run, "holdout")
    return None


def _score_on_holdout(lab: Lab, attempt: Attempt, run: Run) -> bool:
    if not score_once(lab, attempt, run, "holdout"):
        return False
    runs = (one for one in lab.journal.attempt(attempt.number).done_runs if one.dawn and one.seed == run.seed)
    held = next((one.holdout for one in runs if one.holdout is not None), None)
    if run.score is not None and run.score.val_bpb is not None and held is not None:
        on_holdout = held.failure if held.val_bpb is None else f"{held.val_bpb:.6f}"
        bpb = f"val_bpb {run.score.val_bpb:.6f}"
        lab.watcher.said(f"#{attempt.number} · seed {run.seed} · {bpb} · on the holdout {on_holdout}")
    return True


def _add_without(lab: Lab, history: History, edits: Edits, impossible: set[Edits]) -> bool:
    """Enter the champion without these edits as an attempt, committed and settled; it is measured as any other then."""
    champion = incumbent(history)
    assert champion is not None
    script = without(history, champion, edits, lab.shop.night.device_kind)
    names = " and ".join(f"#{number}" for number in edits)
    if script is None:
        lab.watcher.said(f"#{champion.number} cannot be had without {names}: later edits need those lines")
        impossible.add(edits)
        return True
    titles = "; ".join(history[number].proposal.title for number in edits)
    proposal = Proposal(
        script,
        f"#{champion.number} without {names}",
        f"Does the best script of the night miss it? {titles}",
        SOURCE,
        without=edits,
    )
    lab.journal.add_attempt(len(history), champion.number, proposal, utc_now())
    commit(lab, lab.journal.attempt(len(history)))
    lab.journal.record_decision(len(history), Decision(Status.DISCARD, QUESTION))
    settle(lab, len(history))
    return True


def without(history: History, champion: Attempt, edits: Edits, device_kind: str) -> str | None:
    """The champion's script with these edits undone, the latest first; None where later edits are in the way."""
    script: str | None = champion.proposal.script
    for number in sorted(edits, reverse=True):
        edit = history[number]
        if script is None or edit.parent is None:
            return None
        script = undone(script, history[edit.parent].proposal.script, edit.proposal.script, device_kind)
    return script


def undone(script: str, before: str, after: str, device_kind: str) -> str | None:
    """A script with the edit before → after taken back: its dials turned back, or a three-way merge of its lines."""
    if only_dials_differ(before, after, device_kind):
        with suppress(ScriptError):  # a later edit has left dials that nobody can read
            return _turned_back(script, before, after, device_kind)
    with throwaway_folder() as folder:
        for name, text in (("ours", script), ("base", after), ("theirs", before)):
            (folder / name).write_bytes(text.encode())
        merged = git(folder, "merge-file", "-p", "-q", "ours", "base", "theirs")
    try:
        text = merged.stdout.decode()
        check_script(text, "script")
    except (ScriptError, UnicodeDecodeError):
        return None
    return text if merged.returncode == 0 and text != script else None


def _turned_back(script: str, before: str, after: str, device_kind: str) -> str | None:
    """None where a later edit has turned one of the dials again: then it is no longer this edit's."""
    old, new, now = (values_of(text, device_kind) for text in (before, after, script))
    turned = {name: value for name, value in old.items() if new.get(name) != value}
    if not turned or any(name not in now or now[name] != new[name] for name in turned):
        return None
    return set_dials(script, device_kind, turned)


# ---- what follows from it --------------------------------------------------------------------------------------------


def _record(lab: Lab, found: Findings) -> None:
    """The ledger says of every kept edit, and of every question, what dawn has found."""
    history = lab.journal.attempts()
    for edit in found.edits:
        dropped = edit.number in found.passengers
        if edit.runs == 0 and not dropped:
            continue
        how = f"by {edit.runs} run{'s' if edit.runs > 1 else ''} without it" if edit.runs else "by the night's own runs"
        told = f"at dawn {edit.effect.mean_bpb:+.6f} {how}, {'a passenger' if dropped else 'it stays'}"
        kept = history[edit.number].decision
        assert kept is not None
        _record_reason(lab, history[edit.number], f"{kept.reason.partition('; at dawn')[0]}; {told}")
    for attempt in history:
        if attempt.is_idea:
            continue
        for run in attempt.runs:
            if _measurement_of(lab, attempt, run) is None:  # of others, an interrupted dawn needs them when it goes on
                lab.shop.drop_weights(attempt.number, run.seed)
        if attempt.val_bpb is not None:
            names = " and ".join(f"#{number}" for number in attempt.proposal.without)
            _record_reason(lab, attempt, f"{QUESTION}: is #{attempt.parent} as good without {names}?")


def _record_reason(lab: Lab, attempt: Attempt, reason: str) -> None:
    decision = attempt.decision
    assert decision is not None
    if decision.reason != reason:
        told = Decision(decision.status, reason, decision.gain_bpb, decision.sure)
        lab.journal.record_decision(attempt.number, told)
        settle(lab, attempt.number)


def _point_at_confirmed(lab: Lab, found: Findings) -> None:
    """The champion's commit, or that of the champion without its passengers."""
    if found.honest is None:
        return  # nothing was measured that deserves the name
    history = lab.journal.attempts()
    rest = _without_passengers(history, found)
    if rest is not None and trusted(Decision(Status.KEEP, ""), rest, None).status is not Status.KEEP:
        lab.watcher.said("the script without its passengers failed its audit; the confirmed script keeps them")
        rest = None
    target = rest or history[found.champion]
    if target.commit is not None:
        why = f"confirmed: attempt {target.number}"
        point_branch(lab, f"{lab.shop.night.branch}-confirmed", target.commit, why)


def _without_passengers(history: History, found: Findings) -> Attempt | None:
    champion = history[found.champion]
    if found.passengers == (champion.number,) and champion.parent is not None:
        return history[champion.parent]
    made = (one for one in history if one.parent == champion.number and one.proposal.without == found.passengers)
    return next(made, None) if found.passengers else None
