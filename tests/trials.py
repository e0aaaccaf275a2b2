"""Tries scripts in a real night, in its box, with its scorer and its audit, and says how each of them ended."""

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from unittest import mock

from arena import TAG, Witness, World
from cheating import Script
from nights import Quiet, scripted_context

from agent.errors import Exhausted
from agent.experiment import Attempt, Decision, Doing, Ending, History, Kind, Proposal, Review, Status, Work
from agent.judging.failures import PLAUSIBLE_GAIN, too_slow
from agent.judging.judges import Greedy
from agent.night import loop as night
from agent.night import plan
from agent.proposers.briefing import Briefing
from agent.runs import execute
from agent.sandbox.box import Box
from agent.sandbox.watch import GB, ResourceLimits

BUDGET_S = 2.0
SHORT_S, LONG_S = 8.0, 200.0  # for those who would take all they get, and for the others, on a busy machine
TAKES_ALL = ("hangs_in_scoring", "ignores_the_budget", "slows_the_clock")
LIMITS = ResourceLimits(
    memory_bytes=2 * GB, spare_memory_bytes=GB // 2, spare_disk_bytes=GB // 2, folder_bytes=GB // 2, folder_files=2000,
    file_bytes=GB, processes=100,
)  # fmt: skip
NEEDS_CONFIRMING = ("lucky_seed",)
ROUNDING_BPB = 1e-5  # the same weights, their losses summed in another order


@dataclass(frozen=True)
class Trial:
    """How one script ended."""

    script: Script
    status: Status | None
    how: str  # in a word
    reason: str
    effects: tuple[str, ...]
    seconds: float
    val_bpb: float | None

    @property
    def is_kept(self) -> bool:
        """Scored, audited and found to be what it says; an honest script need not be a good one."""
        return self.status is Status.KEEP and not self.effects

    @property
    def is_caught(self) -> bool:
        return self.status is not Status.KEEP and not self.effects


class Told:
    """Hears of each trial as it ends."""

    def __call__(self, trial: Trial) -> None: ...


@dataclass(frozen=True)
class Fair:
    """Compares cheats with attempt 0 alone, whatever they were made from, so that none is spared because another was
    kept. Keeps each honest script that has a score, so that all are audited.
    """

    scripts: Sequence[Script]
    calibration: int = 1

    def judge(self, attempt: Attempt, history: History) -> Decision:
        if not history or self.scripts[attempt.number - 1].is_honest:
            return Greedy().judge(attempt, ())
        if attempt.val_bpb and abs(attempt.val_bpb - (history[0].val_bpb or 0)) < ROUNDING_BPB:
            return Decision(Kind.WORSE, "the score is that of the honest script")
        confirm = attempt.proposal.title in NEEDS_CONFIRMING
        return Greedy(confirm=int(confirm)).judge(dataclasses.replace(attempt, parent=0), history[:1])

    def review(self, history: History) -> Review:
        return Review()


@dataclass(frozen=True)
class InTurn:
    """Proposes each script once."""

    world: World
    scripts: Sequence[Script]

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        number = len(briefing.history)
        if number > len(self.scripts):
            raise Exhausted("no more scripts")
        script = self.scripts[number - 1]
        return [Proposal(script.compose(self.world.known(), self.world.base), script.name, script.tries, "cheats")]


@dataclass
class Observer(Quiet):
    """Has the witness look around after every attempt, and times them."""

    witness: Witness
    scripts: Sequence[Script]
    told: Told
    trials: list[Trial] = field(default_factory=list)
    began_s: float = 0.0

    def __post_init__(self) -> None:
        super().__init__()

    def work_began(self, attempt: Attempt, work: Work) -> None:
        if work.doing is Doing.REHEARSING or not attempt.runs:
            self.began_s = time.monotonic()

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        seconds = time.monotonic() - self.began_s
        if attempt.number == 0:
            self.witness.remember()
            return
        effects = self.witness.effects(attempt.number)
        reason = attempt.decision.reason if attempt.decision else ""
        if not reason.replace("\t", "").isprintable():
            effects += ("the record holds what a terminal takes for commands",)
        script, how = self.scripts[attempt.number - 1], in_a_word(attempt, reason)
        trial = Trial(script, attempt.status, how, reason, effects, seconds, attempt.val_bpb)
        self.trials.append(trial)
        self.told(trial)


def try_all(here: World, scripts: Sequence[Script], box: Box, told: Told) -> list[Trial]:
    """One night, honest scripts first: these are kept, and a cheat is an edit of the last of them."""
    scripts = sorted(scripts, key=lambda script: not script.is_honest)
    observer = Observer(Witness(here), scripts, told)
    with ExitStack() as undo:
        # most of these crash, which ends no night of trials; and one of them never answers
        undo.enter_context(mock.patch.object(night, "CRASHES_IN_A_ROW", len(scripts) + 1))
        allowed_s = mock.patch.object(
            plan.Plan, "allowed_s", lambda jobs, number: seconds_for(jobs.state.attempts[number])
        )
        undo.enter_context(allowed_s)
        for module in (execute, plan):  # scoring gets as much
            alike = mock.patch.object(module, "scoring_limit_s", lambda usual_s, beyond_s, allowance_s: allowance_s)
            undo.enter_context(alike)
        context = undo.enter_context(
            scripted_context(here.repo, TAG, [], sandbox=box, budget_s=BUDGET_S, plausible_gain=PLAUSIBLE_GAIN)
        )
        runner = dataclasses.replace(context.runner, resource_limits=LIMITS, allowance_s=None)
        own = {"runner": runner, "proposer": InTurn(here, scripts), "judge": Fair(scripts), "watcher": observer}
        night.run_night(dataclasses.replace(context, **own))
    return observer.trials


def seconds_for(attempt: Attempt) -> float:
    return SHORT_S if attempt.proposal.title in TAKES_ALL else LONG_S


def in_a_word(attempt: Attempt, reason: str) -> str:
    endings = {run.ending for run in attempt.done_runs}
    for beginning in ("audit", "quarantine"):
        if reason.startswith(beginning):
            return beginning
    if attempt.status is Status.KEEP:
        return "kept"
    if too_slow(attempt) is not None:
        return "limit"
    if attempt.status is Status.DISCARD:
        words = {"that of the honest": "no effect", "ignores its seed": "seeds"}
        return next((how for word, how in words.items() if word in reason), "no gain")
    if endings & {Ending.OVERRAN, Ending.EXCEEDED}:
        return "limit"
    return "no score" if Ending.FINISHED in endings else "crash"
