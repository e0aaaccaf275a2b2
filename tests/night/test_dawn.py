"""Dawn in a real repository: one night with a lucky edit, confirmed in spite of a stop, a kill and a second stop."""

import dataclasses
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dawns import BEST, LUCKY, SHARPER, START, remember
from judged import findings, next_run
from nights import Grounds, Quiet, make_repository, scripted_context, unigram

from agent.experiment import LOCAL, Attempt, Decision, Ending, Kind, Run, Score, Status, incumbent
from agent.judging.champion import Again, Without
from agent.night.dawn import confirm_night, is_interrupted
from agent.night.limits import Limits
from agent.night.lock import AFTER_RUN, NOW
from agent.night.loop import run_night

SCRIPTS = [SHARPER, LUCKY, BEST]
RUNS = 10
# Of an earlier dawn, above the night's scores: what has been measured counts.
EARLIER = {0: (0.004, 0.001, 0.010), 3: (0.008, 0.002, 0.005)}


class Ends(Quiet):
    """Asks for the end, in one way or another, while attempt `number` is scored."""

    def __init__(self, number: int, end: Any) -> None:
        super().__init__()
        self.number, self.end = number, end

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == self.number:
            self.end()


class Dies(Quiet):
    """Is killed as soon as a run of attempt `number` trains."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self.dying = attempt.number == self.number

    def progressed(self, progress: object, elapsed_s: float, worker: str = LOCAL) -> None:
        if self.dying:
            os.kill(os.getpid(), signal.SIGKILL)


def dawn(grounds: Grounds, watcher: Quiet, runs: int) -> None:
    with scripted_context(grounds.root, "t", []) as context:
        runner = dataclasses.replace(context.runner, progressed=watcher.progressed)
        if isinstance(watcher, Ends):
            wish, watcher.end = watcher.end, lambda: context.stop.wish(wish)
        confirm_night(dataclasses.replace(context, watcher=watcher, runner=runner), runs)
        context.stop.forget()


@dataclass(frozen=True)
class Morning:
    grounds: Grounds
    night: tuple[Attempt, ...]  # before dawn
    stopped: tuple[Attempt, ...]  # after the stop
    killed: tuple[Attempt, ...]
    cut: tuple[Attempt, ...]  # after `stop --now`
    unfinished: bool  # by then
    said: str
    facts: dict[str, Any]  # --json
    attempts: tuple[Attempt, ...]  # when dawn was over
    rows: list[dict[str, str]]
    tips: dict[str, str]  # branch → commit


@pytest.fixture(scope="module")
def morning(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Morning]:
    folder = tmp_path_factory.mktemp("dawn")
    grounds = Grounds(make_repository(folder / "user", START))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        grounds.try_scripts("t", SCRIPTS)
        night = grounds.attempts("t")
        for number in EARLIER:
            remember(grounds, number, EARLIER[number])
        dawn(grounds, Ends(0, AFTER_RUN), RUNS - 6)
        stopped = grounds.attempts("t")
        if (dying := os.fork()) == 0:
            dawn(grounds, Dies(3), RUNS - 7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(dying, 0)[1]) == -signal.SIGKILL
        killed = grounds.attempts("t")
        dawn(grounds, Ends(4, NOW), RUNS - 7)
        cut = grounds.attempts("t")
        with scripted_context(grounds.root, "t", []) as context:
            unfinished = is_interrupted(context)
        done = grounds.nightshift("confirm", "--runs", "2", "--json", "--sandbox", "off", "--allowance-s", "60")
        assert done.returncode == 0, done.stderr
        tips = dict(
            line.split() for line in grounds.git("for-each-ref", "--format=%(refname) %(objectname)").split("\n")
        )
        facts = json.loads(done.stdout)
        attempts, rows = grounds.attempts("t"), grounds.rows()
        yield Morning(grounds, night, stopped, killed, cut, unfinished, done.stderr, facts, attempts, rows, tips)


def kept_weights(grounds: Grounds) -> list[str]:
    return sorted({path.parents[2].name for path in grounds.folder("t").rglob("model.safetensors")})


def fresh(attempt: Attempt) -> list[Run]:
    return list(attempt.dawn_runs())


def test_runs_at_dawn_have_seeds_of_their_own_and_alternate(morning):
    assert [run.seed for run in fresh(morning.attempts[0])] == [1000, 1001, 1002, 1003]
    assert [run.seed for run in fresh(morning.attempts[3])] == [1000, 1001, 1002, 1003]
    assert [run.seed for run in morning.attempts[0].runs if not run.dawn] == [0]


def test_they_are_scored_on_both_texts_and_audited_on_both_where_a_machine_wrote_the_script(morning):
    measured = [fresh(morning.attempts[number])[-1] for number in (0, 3, 4)]
    for run in measured:
        assert isinstance(run.score, Score)
        assert isinstance(run.holdout, Score)
        assert run.score.val_bpb != pytest.approx(run.holdout.val_bpb, abs=0.01)
    assert [run.score.audit is not None and run.score.audit.passed for run in measured] == [False, True, True]
    assert [run.holdout.audit is not None and run.holdout.audit.passed for run in measured] == [False, True, True]


def test_a_stop_lets_the_run_be_scored_and_a_kill_loses_one_run(morning):
    assert [len(fresh(one)) for one in morning.stopped] == [4, 0, 0, 3]
    last = morning.stopped[0].runs[-1]
    assert last.score is not None
    assert last.holdout is not None
    assert [run.ending for run in morning.killed[3].runs if run.seed == 1003] == [Ending.RUNNING]
    assert [run.ending for run in morning.attempts[3].runs if run.seed == 1003] == [Ending.LOST, Ending.FINISHED]


def test_a_run_that_is_cut_off_before_its_score_is_done_again(morning):
    assert [run.ending for run in morning.cut[4].runs] == [Ending.STOPPED]
    assert morning.unfinished
    assert [run.ending for run in morning.attempts[4].runs][:2] == [Ending.STOPPED, Ending.FINISHED]
    assert all(run.holdout.val_bpb is not None for run in fresh(morning.attempts[4]))
    assert "0004" not in kept_weights(morning.grounds)


def test_interruptions_change_neither_the_runs_nor_the_findings(morning):
    """The runs that an undisturbed dawn would have asked for, with the same scores, are those of the journal."""
    known = {number: fresh(morning.attempts[number]) for number in range(len(morning.attempts))}
    history = [
        dataclasses.replace(one, runs=(*one.runs, *known[one.number][:3])) if one.number in EARLIER else one
        for one in morning.night
    ]
    for left in reversed(range(1, RUNS - 5)):
        trial = next_run(history, left)
        assert trial is not None
        if isinstance(trial, Without):
            assert morning.attempts[len(history)].proposal.without == trial.edits
            history.append(dataclasses.replace(morning.attempts[len(history)], runs=()))
            trial = Again(len(history) - 1)
        number = trial.attempt
        done = len(fresh(history[number]))
        history[number] = dataclasses.replace(history[number], runs=(*history[number].runs, known[number][done]))
    assert {one.number: len(fresh(one)) for one in history} == {number: len(runs) for number, runs in known.items()}
    assert sum(map(len, known.values())) == RUNS
    found = findings(history)
    assert found is not None
    facts = json.loads(json.dumps(dataclasses.asdict(found)))
    assert facts == morning.facts["findings"]


def test_the_passenger_is_found_and_the_champion_without_it_is_an_attempt(morning):
    assert (morning.facts["findings"]["champion"], morning.facts["findings"]["passengers"]) == (3, [2])
    question = morning.attempts[4]
    assert question.proposal.without == (2,)
    assert question.proposal.title == "#3 without #2"
    assert question.proposal.script == BEST.replace("options.seed + 10", "options.seed")
    assert (question.parent, question.status, question.settled) == (3, Status.DISCARD, True)
    assert morning.tips["refs/experiments/t/0004"] == question.commit
    assert morning.grounds.git("show", f"{question.commit}:train_mlx.py") + "\n" == question.proposal.script


def test_the_confirmed_branch_is_without_it_and_the_nights_branch_stays(morning):
    assert morning.tips["refs/heads/experiments/0.05s-t-confirmed"] == morning.attempts[4].commit
    assert morning.tips["refs/heads/experiments/0.05s-t"] == morning.night[3].commit
    best = incumbent(morning.attempts)
    assert best is not None
    assert best.number == 3


def test_dawns_scores_have_columns_of_their_own(morning):
    assert [row["dawn_seeds"] for row in morning.rows] == ["4", "", "", "4", "2"]
    assert [row["seeds"] for row in morning.rows] == ["1", "1", "1", "1", "0"]
    assert float(morning.rows[3]["holdout_bpb"]) - float(morning.rows[3]["dawn_bpb"]) > 0.01


def test_what_was_found_is_shown_again(morning):
    told = morning.said.splitlines()
    shown = morning.grounds.nightshift("confirm", "--show").stdout.splitlines()
    piped = morning.grounds.nightshift("confirm", "--show", "--json")
    assert shown[1:] == told[told.index("dawn: #3 script 3, against the baseline") :]
    assert json.loads(piped.stdout) == morning.facts


@pytest.fixture(scope="module")
def day(morning: Morning) -> tuple[Attempt, ...]:
    """The night went on: its attempts."""
    with scripted_context(morning.grounds.root, "t", [*SCRIPTS, "", unigram(SHARPNESS=0.2)]) as context:
        run_night(dataclasses.replace(context, limits=Limits(experiments=4)))  # dawn's questions are no ideas
    return morning.grounds.attempts("t")


def test_the_night_goes_on_from_the_confirmed_script(morning, day):
    attempts = day
    assert [one.number for one in attempts] == [0, 1, 2, 3, 4, 5]
    assert (attempts[5].proposal.script, attempts[5].parent) == (unigram(SHARPNESS=0.2), 4)
    assert attempts[:4] == morning.attempts[:4]
    assert attempts[4].decision == Decision(Kind.ADOPTED, "confirmed at dawn: #3 without #2")
    assert incumbent(attempts) == attempts[4]
    assert morning.grounds.git("rev-parse", "refs/heads/experiments/0.05s-t") == attempts[4].commit


def test_what_is_made_from_it_is_compared_with_runs_of_the_nights_own(morning, day):
    adopted = day[4]
    assert morning.attempts[4].val_bpb is None
    assert [run.seed for run in adopted.done_runs] == [0]
    assert adopted.val_bpb == adopted.done_runs[0].score.val_bpb
    assert adopted.done_runs[0].score.audit.passed
    assert fresh(adopted) == fresh(morning.attempts[4])


@pytest.mark.slow  # a third dawn and a fourth
def test_the_next_dawn_has_seeds_of_its_own_and_its_runs_are_counted_over_the_night(morning, day):
    grounds = morning.grounds
    with scripted_context(grounds.root, "t", []) as context:
        limits = Limits(experiments=4, dawn_runs=RUNS + 2)
        run_night(dataclasses.replace(context, limits=limits))
        assert limits.runs_at_dawn(context.state().pace) == 2
        confirm_night(context, 2)
        run_night(dataclasses.replace(context, limits=limits))
        assert limits.runs_at_dawn(context.state().pace) == 0
        dawns = context.journal.dawns()
    attempts = grounds.attempts("t")
    assert [(dawn.number, dawn.champion, dawn.ended is None) for dawn in dawns] == [(1, 3, False), (2, 4, False)]
    assert [run.seed for run in attempts[4].dawn_runs(2)] == [2000]
    assert [run.seed for run in attempts[0].dawn_runs(2)] == [2000]
    assert [one.val_bpb for one in attempts] == [one.val_bpb for one in day]
