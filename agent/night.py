"""The loop: propose → commit → run → score → judge → keep or not.

Every step is a question to the journal (what is known?) and an entry in it (what is known now), so there is no
difference between going on and resuming: after a kill the same questions find the first step without an answer.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from agent import ledger
from agent.clock import boot_id
from agent.contract import check_script
from agent.dials import normalised
from agent.errors import Exhausted, MachineError, NightError, ScriptError
from agent.experiment import (
    Attempt,
    Briefing,
    Ending,
    History,
    Judge,
    Night,
    Proposal,
    Proposer,
    Run,
    Status,
    Watcher,
    attempt_ref,
    incumbent,
)
from agent.journal import Journal
from agent.judge import PLAUSIBLE_GAIN, trusted
from agent.opening import Place, check_disk, read_script, utc_now
from agent.plain_text import one_line, paragraphs
from agent.run import FIRST_ALLOWANCE_S, learnt_allowance_s, train
from agent.score import audit, learnt_limit_s, score
from agent.stop import Stop
from agent.workshop import Workshop

# A lost GPU or data folder crashes every attempt within seconds, and the night would fill with them; five ideas that
# are bad one after another are rare, and resuming costs a person one command.
CRASHES_IN_A_ROW = 5
TITLE_CHARS, HYPOTHESIS_CHARS, SOURCE_CHARS = 200, 4000, 80


@dataclass(frozen=True, slots=True)
class Limits:
    """When to begin no further attempt; None: never."""

    experiments: int | None = None  # proposals after attempt 0, counted over the whole night
    hours: float | None = None  # of this call, by when the last attempt should have ended
    _start: float = field(default_factory=time.monotonic)

    def reached(self, history: History) -> bool:
        if not history:
            return False  # without attempt 0 there is nothing to look at in the morning
        if self.experiments is not None and len(history) > self.experiments:
            return True
        elapsed_s = time.monotonic() - self._start
        # the budget alone would leave out start, compilation and scoring
        longest_s = max(attempt.spent_s for attempt in history)
        return self.hours is not None and elapsed_s + longest_s > self.hours * 3600


@dataclass(frozen=True, slots=True)
class Lab:
    """All that a night works with."""

    place: Place
    journal: Journal
    shop: Workshop
    proposer: Proposer
    judge: Judge
    watcher: Watcher
    stop: Stop
    limits: Limits
    plausible_gain: float = PLAUSIBLE_GAIN


def run_night(lab: Lab) -> None:
    """Until a limit is reached, the user stops it or the proposer has nothing left; raises NightshiftError."""
    lab.journal.mark_lost_runs(boot_id())
    crashes = 0
    while (attempt := next_attempt(lab)) is not None:
        lab.watcher.attempt_began(attempt)
        commit(lab, attempt)
        if not measure(lab, attempt.number):
            return
        settled = settle(lab, attempt.number)
        crashes = crashes + 1 if settled.status is Status.CRASH else 0
        if crashes == CRASHES_IN_A_ROW:
            raise MachineError(
                f"{crashes} attempts in a row crashed, the last with: {why_and_where(lab, settled)}; "
                f"see what they share, mend it, go on with: nightshift run --tag {lab.shop.night.tag}"
            )


def next_attempt(lab: Lab) -> Attempt | None:
    """The attempt that is not settled yet, else a new one; None when the night is over."""
    history = lab.journal.attempts()
    if lab.stop.after_run:
        return None
    check_disk(lab.place.repo.root)
    if history and not history[-1].settled:
        return history[-1]
    if lab.limits.reached(history):
        return None
    try:
        proposal = presentable(propose(lab, history))
    except Exhausted as error:
        lab.watcher.said(str(error))
        return None
    best = incumbent(history)
    lab.journal.add_attempt(len(history), best.number if best else None, proposal, utc_now())
    return lab.journal.attempt(len(history))


def propose(lab: Lab, history: History) -> Proposal:
    """Attempt 0 is the user's own script; without a score of it there is nothing to improve on."""
    if not history:
        return Proposal(read_script(lab.place), "baseline", "The script as it stands in the working tree.", "you")
    best = incumbent(history)
    if best is None:
        raise ScriptError(
            f"attempt 0, the script as it stands, has no score that counts: {why_and_where(lab, history[0])}; "
            f"mend it and start a new night"
        )
    proposal = lab.proposer.propose(Briefing(lab.shop.night, history, best))
    check_proposal(proposal, history, lab.place.script)
    return proposal


def presentable(proposal: Proposal) -> Proposal:
    """Words fit for the journal, a commit message and a terminal, whoever found them."""
    return replace(
        proposal,
        title=one_line(proposal.title, TITLE_CHARS) or "untitled",
        hypothesis=paragraphs(proposal.hypothesis, HYPOTHESIS_CHARS),
        source=one_line(proposal.source, SOURCE_CHARS) or "unknown",
    )


def check_proposal(proposal: Proposal, history: History, script: str) -> None:
    """Before it costs a run: raises NightError for a script that cannot count as a new attempt."""
    who = presentable(proposal).source
    try:
        check_script(proposal.script, script)
    except ScriptError as error:
        raise NightError(f"{who} proposed a script that cannot be run: {error}") from error
    wanted = normalised(proposal.script)
    known = next((one.number for one in history if normalised(one.proposal.script) == wanted), None)
    if known is not None:
        raise NightError(f"{who} proposed the script of attempt {known} again; it has to be a new one")


def why_and_where(lab: Lab, crashed: Attempt) -> str:
    """The reason of a crash, and the log that says more."""
    reason = crashed.decision.reason if crashed.decision else "no score"
    logs = [lab.shop.log(crashed.number, run) for run in crashed.done_runs]
    return f"{reason} (log: {logs[-1]})" if logs else reason


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


def measure(lab: Lab, number: int) -> bool:
    """Run, score, judge and audit until there is a decision; False when the user stopped it before."""
    while (step := next_step(lab, number)) is not None:
        lab.journal.check_in_place()  # before minutes are spent that nobody would know of
        if not step():
            return False
    return True


def next_step(lab: Lab, number: int) -> Callable[[], bool] | None:
    """What the journal lacks to decide about the attempt; each step returns False when the user stopped it."""
    history = lab.journal.attempts()
    attempt = history[number]
    if attempt.decision is not None:
        return None
    unscored = next((run for run in attempt.done_runs if run.ending is Ending.FINISHED and run.score is None), None)
    if unscored is not None:
        return lambda: score_once(lab, attempt, unscored)
    if not attempt.done_runs:
        return lambda: run_once(lab, attempt)
    before = history[:number]
    decision = lab.judge.judge(attempt, before)
    if decision.status is None:
        return lambda: not lab.stop.after_run and run_once(lab, attempt)
    if decision.status is Status.KEEP:
        unaudited = next((run for run in attempt.done_runs if run.score and run.score.audit is None), None)
        if unaudited is not None:
            return lambda: audit_once(lab, attempt, unaudited)
        decision = trusted(decision, attempt, incumbent(before), lab.plausible_gain)
    lab.journal.record_decision(number, decision)
    return None


def run_once(lab: Lab, attempt: Attempt) -> bool:
    seed = lab.shop.night.seed + len(attempt.done_runs)
    lab.watcher.run_began(attempt, seed)
    allowance_s = lab.shop.allowance_s or allowed_s(lab, attempt)
    run_id = lab.journal.start_run(attempt.number, seed, boot_id())
    run = train(lab.shop, attempt.number, attempt.proposal.script, seed, allowance_s)
    lab.journal.end_run(run_id, run)
    if run.ending is Ending.SLEPT:
        lab.watcher.said("the machine slept during this run: it does not count and is done again")
    return run.ending is not Ending.STOPPED


def allowed_s(lab: Lab, attempt: Attempt) -> float:
    """What attempt 0 needs beyond its budget nobody knows; the others get what it took, and little more."""
    if attempt.number == 0:
        return FIRST_ALLOWANCE_S
    return learnt_allowance_s(lab.journal.attempts(), lab.shop.night.budget_s)


def score_once(lab: Lab, attempt: Attempt, run: Run) -> bool:
    lab.watcher.scoring_began(attempt)
    limit_s = learnt_limit_s(lab.journal.attempts())
    measured = score(lab.shop, attempt.number, attempt.proposal.script, run.seed, limit_s)
    if measured is None:
        return False
    lab.journal.record_score(attempt.number, run.seed, measured)
    return True


def audit_once(lab: Lab, attempt: Attempt, run: Run) -> bool:
    """Against the incumbent's committed losses, where the largest gains are looked at hardest."""
    lab.watcher.audit_began(attempt)
    history = lab.journal.attempts()
    best = incumbent(history[: attempt.number])
    known = (best.number, best.done_runs[0].seed) if best and best.done_runs else None
    found = audit(lab.shop, attempt.number, attempt.proposal.script, run.seed, learnt_limit_s(history), known)
    if found is None:
        return False
    lab.journal.record_audit(attempt.number, run.seed, found)
    return True


def settle(lab: Lab, number: int) -> Attempt:
    """Make branch, ledger and weights follow the decision; each of them may be done twice without harm."""
    history = lab.journal.attempts()
    attempt, before = history[number], incumbent(history[:number])
    if attempt.status is Status.KEEP and attempt.commit is not None:
        advance_branch(lab, attempt.commit, history[:number], f"keep attempt {number}")
    else:
        for run in attempt.runs:
            lab.shop.drop_weights(number, run.seed)
    write_ledger(lab.place, live=(lab.shop.night, history))
    lab.journal.settle(number)
    lab.journal.check_in_place()
    lab.watcher.attempt_settled(attempt, before)
    return attempt


def advance_branch(lab: Lab, commit: str, before: History, why: str) -> None:
    """Move the night's branch, unless somebody has checked it out: HEAD and index are theirs. It catches up later."""
    repo, branch = lab.place.repo, lab.shop.night.branch
    if branch in repo.checked_out():
        lab.watcher.said(
            f"{branch.removeprefix('refs/heads/')} is checked out and stays; the best script is {commit[:7]}"
        )
        return
    now, best = repo.find(branch), incumbent(before)
    kept = [attempt.commit for attempt in before if attempt.status is Status.KEEP]
    repo.move_ref(branch, commit, now if now in kept else best.commit if best else None, why)


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
