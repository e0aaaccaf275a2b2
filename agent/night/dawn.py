"""Dawn: the night's result measured again, and what brings nothing taken out of it.

The runs have seeds of their own, and are scored on the holdout besides: no choice of the night has seen either.
agent/judging/confirmation.py says what to run next and what the runs have told; here it is done, as resumable as the
night.
"""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np

import prepare
from agent.clock import boot_id, utc_now
from agent.experiment import (
    Attempt,
    Dawn,
    Decision,
    Ending,
    History,
    Kind,
    Night,
    Proposal,
    Run,
    Status,
    incumbent,
    runs_at_dawns,
)
from agent.judging.confirmation import (
    FRESH,
    QUESTION,
    SOURCE,
    Again,
    Findings,
    Text,
    Without,
    findings,
    names,
    next_trial,
)
from agent.judging.intervals import Pieces, over_pieces
from agent.night.driver import Step, bring_to_an_end, fallen_keeps, loose_end, reconsider
from agent.night.lab import Lab
from agent.night.opening import check_disk
from agent.night.steps import audit_once, commit, point_branch, run_once, score_once, settle
from agent.records.place import Place
from agent.runs.score import Rows, Split, read_committed
from agent.script.merge import without_edits
from agent.view.findings import confirmed_branch, findings_lines

SPLITS: tuple[Split, ...] = ("validation", "holdout")
Edits = tuple[int, ...]


def confirm(lab: Lab, most_runs: int) -> Findings | None:
    """Make up to so many runs, then put the champion without its passengers on the branch …-confirmed.

    None where the night kept nothing to confirm. What this champion's dawn has measured before counts.
    """
    lab.journal.mark_lost_runs(boot_id())
    _go_on(lab, most_runs)
    impossible: set[Edits] = set()
    begun = runs_at_dawns(lab.journal.attempts())
    while (step := _next_step(lab, impossible, begun + most_runs)) is not None and step():
        pass
    history = lab.journal.attempts()
    dawn = dawn_of(lab, history)
    if dawn is None:
        return None
    found = findings(history, impossible, dawn.number, _texts(lab, history, dawn))
    assert found is not None
    _record(lab, found, dawn)
    known = replace(dawn, findings=asdict(found))
    lab.journal.put_dawn(known)  # whoever stands in the branch's way: hours were spent on this
    _point_at_confirmed(lab, found)
    if not lab.stop.after_run:
        lab.journal.put_dawn(replace(known, ended=utc_now()))
    return found


def confirm_aloud(lab: Lab, most_runs: int) -> Findings | None:
    """The same, and say what was found."""
    found = confirm(lab, most_runs)
    if found is not None:
        for line in in_words(lab.place, lab.shop.night, lab.journal.attempts(), found):
            lab.watcher.said(line)
    return found


def in_words(place: Place, night: Night, history: History, found: Findings) -> list[str]:
    is_there = place.repo.find(confirmed_branch(night)) is not None
    return findings_lines(found, history, night, is_branch_there=is_there)


def dawn_of(lab: Lab, history: History) -> Dawn | None:
    """The champion's own; a champion that no dawn has measured yet begins another, with seeds of its own."""
    champion, dawns = incumbent(history), lab.journal.dawns()
    if champion is None or champion.number == 0:
        return None
    if not dawns or dawns[-1].champion != champion.number:
        lab.journal.put_dawn(Dawn(len(dawns) + 1, champion.number, FRESH, utc_now()))
    return lab.journal.dawns()[-1]


def is_interrupted(lab: Lab) -> bool:
    """Whether the champion's dawn was begun and has not come to its end."""
    best, last = incumbent(lab.journal.attempts()), next(reversed(lab.journal.dawns()), None)
    return last is not None and last.ended is None and best is not None and best.number == last.champion


def _go_on(lab: Lab, runs: int) -> None:
    """Whoever asks again after its end wants the gain more exactly; where none was found, all runs are for that."""
    dawn = dawn_of(lab, lab.journal.attempts())
    if dawn is not None and dawn.ended is not None and runs > 0:
        confirmed = dawn.findings is not None and dawn.findings["script"] is not None
        more = FRESH if confirmed else max(FRESH, runs // 2)
        lab.journal.put_dawn(replace(dawn, ended=None, fresh=dawn.fresh + more))


def _next_step(lab: Lab, impossible: set[Edits], until: int) -> Step | None:
    """What dawn lacks; None when it is over."""
    history = lab.journal.attempts()
    dawn = dawn_of(lab, history)
    loose = loose_end(lab, history) or (_loose_end_of_dawn(lab, history, dawn) if dawn else None)
    if loose is not None:
        return loose  # a wish to end after the run, too, lets the run be scored
    if lab.stop.after_run:
        return None
    check_disk(lab.place.repo.root)
    # an idea without a verdict is the night's to go on with
    decided = (attempt for attempt in history if attempt.decision is not None or not attempt.is_idea)
    unsettled = next((attempt for attempt in decided if not attempt.settled), None)
    if unsettled is not None:
        return partial(bring_to_an_end, lab, unsettled)
    fallen = fallen_keeps(history)
    if fallen:
        return partial(reconsider, lab, fallen)
    if dawn is None or lab.limits.dawn_is_over(lab.pace(history)):
        return None
    match next_trial(history, until - runs_at_dawns(history), impossible, dawn.fresh, dawn.number):
        case Again(number):
            lab.watcher.attempt_began(history[number])
            return partial(run_once, lab, history[number], dawn=dawn.number)
        case Without(edits):
            return partial(_add_without, lab, history, edits, impossible)
    return None


def _loose_end_of_dawn(lab: Lab, history: History, dawn: Dawn) -> Step | None:
    """A run at dawn is scored on both texts; and audited on both where a machine has written the script."""
    for attempt in history:
        if attempt.is_idea and attempt.status is not Status.KEEP:
            continue  # it has fallen, and its weights are gone
        for run in attempt.dawn_runs(dawn.number):
            if run.ending is Ending.FINISHED:
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
    runs = (one for one in lab.journal.attempt(attempt.number).dawn_runs(run.dawn) if one.seed == run.seed)
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
    script = without_edits(history, champion, edits, lab.shop.night.device_kind)
    if script is None:
        lab.watcher.said(f"#{champion.number} cannot be had without {names(edits)}: later edits need those lines")
        impossible.add(edits)
        return True
    titles = "; ".join(history[number].proposal.title for number in edits)
    proposal = Proposal.of(
        script,
        f"#{champion.number} without {names(edits)}",
        f"Does the best script of the night miss it? {titles}",
        SOURCE,
        without=edits,
    )
    lab.journal.add_attempt(len(history), champion.number, proposal, utc_now())
    commit(lab, lab.journal.attempt(len(history)))
    lab.journal.record_decision(len(history), Decision(Kind.QUESTION, QUESTION))
    settle(lab, len(history))
    return True


# ---- what follows from it --------------------------------------------------------------------------------------------


def _texts(lab: Lab, history: History, dawn: Dawn) -> dict[str, Text]:
    """How far the champion's gain moves with the documents of each text, by the losses that both were scored by."""
    found: dict[str, Text] = {}
    for split in SPLITS:
        text = _text(lab, (history[0], history[dawn.champion]), dawn, split)
        if text is not None:
            found[split] = text
    return found


def _text(lab: Lab, pair: tuple[Attempt, Attempt], dawn: Dawn, split: Split) -> Text | None:
    """None where one of the two has no losses there."""
    data = Path(lab.shop.night.data)
    rows = Rows.of(data, split)
    pieces = Pieces.of(rows.targets, rows.token_bytes, prepare.load_data(data, verify=False).bos)
    nats = []
    for attempt in pair:
        files = (lab.shop.losses(attempt.number, run.seed, split) for run in attempt.dawn_runs(dawn.number))
        sums = [
            pieces.nats(losses, rows.counted) for file in files if (losses := read_committed(file, rows)) is not None
        ]
        if not sums:
            return None
        nats.append(np.mean(sums, axis=0))
    spread = over_pieces(nats[0] - nats[1], pieces.bytes)
    return Text(spread, f"{pieces.count:,} {pieces.unit}") if spread is not None else None


def _record(lab: Lab, found: Findings, dawn: Dawn) -> None:
    """The ledger says of every kept edit, and of every question, what dawn has found."""
    history = lab.journal.attempts()
    for edit in found.edits:
        dropped = edit.number in found.passengers
        if edit.runs == 0 and not dropped:
            continue
        how = f"by {edit.runs} run{'s' if edit.runs > 1 else ''} without it" if edit.runs else "by the night's own runs"
        told = f"at dawn {edit.effect.mean_bpb:+.6f} {how}, {'a passenger' if dropped else 'it stays'}"
        kept = history[edit.number]
        assert kept.decision is not None
        _record_words(lab, kept, replace(kept.decision, at_dawn=told))
    for attempt in history:
        if attempt.is_idea or attempt.status is Status.KEEP:
            continue
        for run in attempt.runs:
            # of others, an interrupted dawn needs them when it goes on
            if run.dawn and (run.dawn != dawn.number or _measurement_of(lab, attempt, run) is None):
                lab.shop.drop_weights(attempt.number, run.seed)
        if attempt.decision and attempt.kind is Kind.QUESTION and attempt.dawn_runs():
            asked = f"{QUESTION}: is #{attempt.parent} as good without {names(attempt.proposal.without)}?"
            _record_words(lab, attempt, replace(attempt.decision, reason=asked))


def _record_words(lab: Lab, attempt: Attempt, told: Decision) -> None:
    """Record an attempt's decision in other words, where they differ."""
    if told != attempt.decision:
        lab.journal.record_decision(attempt.number, told)
        settle(lab, attempt.number)


def _point_at_confirmed(lab: Lab, found: Findings) -> None:
    """Where a gain was found, at the champion's commit, or that of the champion without its passengers."""
    commit = lab.journal.attempt(found.script).commit if found.script is not None else None
    if commit is not None:
        point_branch(lab, confirmed_branch(lab.shop.night), commit, f"confirmed: attempt {found.script}")
