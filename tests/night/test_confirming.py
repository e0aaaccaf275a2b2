"""The confirmation in a real repository: a night with a lucky edit, confirmed in spite of a stop and a kill."""

import dataclasses
import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nights import Grounds, Quiet, make_repository, scripted_context, unigram

from agent.experiment import Attempt, Ending, Run, Score, Status, best_of
from agent.night.confirmation import confirm_night, is_interrupted
from agent.night.lock import AFTER_RUN, Stop
from agent.records.journal import Journal
from agent.work import LOCAL

START = unigram(JITTER=0.05, SHARPNESS=0.5)
SHARPER = unigram(JITTER=0.05, SHARPNESS=0.6)
LUCKY = SHARPER.replace("default_rng(options.seed)", "default_rng(options.seed + 10)")  # other luck, and nothing else
BEST = LUCKY.replace("SHARPNESS = 0.6", "SHARPNESS = 0.8").replace("SHARE = 0.25", "SHARE = 1.0")
SCRIPTS = [SHARPER, LUCKY, BEST]
RUNS = 10
# Of an earlier confirmation, above the night's scores: what has been measured counts.
EARLIER = {0: (0.004, 0.001, 0.010), 3: (0.008, 0.002, 0.005)}


class Ends(Quiet):
    """Asks for the end while attempt 0 is scored."""

    stop: Stop

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 0:
            self.stop.wish(AFTER_RUN)


class Dies(Quiet):
    """Is killed as soon as a run of attempt `number` trains."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self.dying = attempt.number == self.number

    def progressed(self, progress: object, worker: str = LOCAL) -> None:
        if self.dying:
            os.kill(os.getpid(), signal.SIGKILL)


def confirmation(grounds: Grounds, watcher: Quiet, runs: int) -> None:
    with scripted_context(grounds.root, "t", []) as context:
        if isinstance(watcher, Ends):
            watcher.stop = context.stop
        confirm_night(dataclasses.replace(context, watcher=watcher), runs)
        context.stop.forget()


@dataclass(frozen=True)
class Morning:
    grounds: Grounds
    night: tuple[Attempt, ...]  # attempts before the confirmation
    stopped: tuple[Attempt, ...]  # attempts after the stop
    killed: tuple[Attempt, ...]
    facts: dict[str, Any]  # --json
    attempts: tuple[Attempt, ...]  # attempts after the confirmation
    rows: list[dict[str, str]]
    tips: dict[str, str]  # branch → commit


@pytest.fixture(scope="module")
def morning(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Morning]:
    folder = tmp_path_factory.mktemp("confirmation")
    grounds = Grounds(make_repository(folder / "user", START))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        grounds.try_scripts("t", SCRIPTS)
        night = grounds.attempts("t")
        for number in EARLIER:
            remember(grounds, number, EARLIER[number])
        confirmation(grounds, Ends(), RUNS - 6)
        stopped = grounds.attempts("t")
        if (dying := os.fork()) == 0:
            confirmation(grounds, Dies(3), RUNS - 7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(dying, 0)[1]) == -signal.SIGKILL
        killed = grounds.attempts("t")
        with scripted_context(grounds.root, "t", []) as context:
            assert is_interrupted(context)
        done = grounds.nightshift("confirm", "--runs", "3", "--json", "--sandbox", "off", "--allowance-s", "60")
        assert done.returncode == 0, done.stderr
        tips = dict(
            line.split() for line in grounds.git("for-each-ref", "--format=%(refname) %(objectname)").split("\n")
        )
        facts = json.loads(done.stdout)
        attempts, rows = grounds.attempts("t"), grounds.rows()
        yield Morning(grounds, night, stopped, killed, facts, attempts, rows, tips)


def remember(grounds: Grounds, number: int, aboves: Sequence[float]) -> None:
    """What was measured of this attempt in the confirmation before."""
    with Journal.resume(grounds.folder("t") / "journal.sqlite") as journal:
        attempt = journal.attempt(number)
        first = attempt.done_runs[0]
        assert attempt.val_bpb is not None
        assert first.score is not None
        for seed, above in enumerate(aboves, 1000):
            score = dataclasses.replace(first.score, val_bpb=attempt.val_bpb + above)
            held = dataclasses.replace(score, val_bpb=attempt.val_bpb + above + 0.2)
            run = dataclasses.replace(first, seed=seed, score=score, holdout=held)
            journal.end_run(journal.start_run(number, seed, confirmation=1), run)


def kept_weights(grounds: Grounds) -> list[str]:
    return sorted({path.parents[2].name for path in grounds.folder("t").rglob("model.safetensors")})


def fresh(attempt: Attempt) -> list[Run]:
    return list(attempt.confirmation_runs())


def test_confirmation_runs_have_seeds_of_their_own_and_alternate(morning):
    assert [run.seed for run in fresh(morning.attempts[0])] == [1000, 1001, 1002, 1003]
    assert [run.seed for run in fresh(morning.attempts[3])] == [1000, 1001, 1002, 1003]
    assert [run.seed for run in morning.attempts[0].runs if not run.confirmation] == [0]


def test_they_are_scored_on_both_texts_and_audited_on_both_where_a_machine_wrote_the_script(morning):
    measured = [fresh(morning.attempts[number])[-1] for number in (0, 3, 4)]
    for run in measured:
        assert isinstance(run.score, Score)
        assert isinstance(run.holdout, Score)
        assert run.score.val_bpb != pytest.approx(run.holdout.val_bpb, abs=0.01)
    assert [run.score.audit is not None and run.score.audit.passed for run in measured] == [False, True, True]
    assert [run.holdout.audit is not None and run.holdout.audit.passed for run in measured] == [False, True, True]


def test_a_stop_lets_the_run_be_scored_and_a_kill_loses_one_run(morning):
    assert [len(fresh(attempt)) for attempt in morning.stopped] == [4, 0, 0, 3]
    last = morning.stopped[0].runs[-1]
    assert last.score is not None
    assert last.holdout is not None
    assert [run.ending for run in morning.killed[3].runs if run.seed == 1003] == [Ending.RUNNING]
    assert [run.ending for run in morning.attempts[3].runs if run.seed == 1003] == [Ending.LOST, Ending.FINISHED]


def test_the_edit_without_effect_is_found_and_the_best_script_without_it_is_an_attempt(morning):
    assert "0004" not in kept_weights(morning.grounds)
    assert (morning.facts["findings"]["best"], morning.facts["findings"]["without_effect"]) == (3, [2])
    question = morning.attempts[4]
    assert question.proposal.without == (2,)
    assert question.proposal.title == "#3 without #2"
    assert question.proposal.script == BEST.replace("options.seed + 10", "options.seed")
    assert (question.parent, question.status, question.settled) == (3, Status.DISCARD, True)
    assert [row["confirmation_seeds"] for row in morning.rows] == ["4", "", "", "4", "2"]


def test_the_confirmed_branch_is_without_it_and_the_nights_branch_stays(morning):
    assert morning.tips["refs/heads/experiments/0.05s-t-confirmed"] == morning.attempts[4].commit
    assert morning.tips["refs/heads/experiments/0.05s-t"] == morning.night[3].commit
    best = best_of(morning.attempts)
    assert best is not None
    assert best.number == 3


# ---- nothing to confirm ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_what_fresh_seeds_do_not_confirm_gets_no_branch_and_what_stands_there_is_left(grounds):
    (grounds.root / "train_mlx.py").write_text(START)
    grounds.try_scripts("t", [SHARPER])
    for number, aboves in enumerate(((0.0, 0.01, 0.02, 0.03), (0.2, -0.3, 0.3, -0.1))):
        remember(grounds, number, aboves)
    with scripted_context(grounds.root, "t", []) as context:
        confirm_night(context, 0)
        branches = grounds.git("for-each-ref", "refs/heads/experiments", "--format=%(refname:short)")
        assert branches == "experiments/0.05s-t"
        grounds.git("branch", "experiments/0.05s-t-confirmed", "main")
        confirm_night(context, 0)
        said = context.watcher.sentences  # type: ignore[attr-defined]
    assert [line for line in said if line.startswith("  NOT confirmed: its gain may be luck")]
    assert grounds.git("rev-parse", "experiments/0.05s-t-confirmed") == grounds.git("rev-parse", "main")
