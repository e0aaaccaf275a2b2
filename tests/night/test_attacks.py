"""A night under attack: killed between two steps, left by its sources, with scripts that misbehave at dawn."""

import dataclasses
import errno
import sqlite3

import pytest
from judged import scored_attempt
from nights import Grounds, Nap, run_once, scripted_context, unigram
from sources import Source, attempt, brief

from agent.errors import MachineError, NoIdea, RepoError
from agent.experiment import Decision, Kind, Score, Status
from agent.night.plan import fallen_keeps
from agent.proposers.outbox import Outbox
from agent.proposers.search.search import Search
from agent.runs.execute import rehearse
from agent.runs.jobs import Trial
from agent.sandbox import process
from agent.script.merge import undone

BETTER, BEST, WORSE = unigram(SHARPNESS=0.8), unigram(SHARPNESS=1.0), unigram(SHARPNESS=0.2)
CRASHES_AT_DAWN = BETTER.replace("data = prepare", "assert options.seed < 1000, 'not at dawn'\n    data = prepare")

pytestmark = pytest.mark.usefixtures("own_cache")


def killed_at_dawn(grounds: Grounds, number: int) -> None:
    """A run at dawn has just ended; nothing else is known of it."""
    with scripted_context(grounds.root, "t", []) as context:
        run_once(context, number, dawn=1)


def test_a_run_of_an_interrupted_dawn_brings_nobody_down(grounds):
    grounds.try_scripts("t", [BEST])
    killed_at_dawn(grounds, 1)
    grounds.try_scripts("t", [BEST, WORSE])
    attempts = grounds.attempts("t")
    assert [one.status for one in attempts] == ["keep", "keep", "discard"]
    assert [run.score.audit.passed for run in attempts[1].done_runs] == [True]
    assert [run.score.audit for run in attempts[1].dawn_runs()] == [None]  # that is dawn's to audit


@pytest.mark.slow
def test_what_was_built_on_an_edit_that_falls_at_dawn_falls_with_it(grounds):
    grounds.try_scripts("t", [CRASHES_AT_DAWN, BEST])
    killed_at_dawn(grounds, 1)
    grounds.try_scripts("t", [CRASHES_AT_DAWN, BEST])
    attempts = grounds.attempts("t")
    assert [one.status for one in attempts] == ["keep", "crash", "discard"]
    assert attempts[2].decision.reason == "made from #1, which is no longer kept"
    assert grounds.git("rev-parse", "refs/heads/experiments/0.05s-t") == attempts[0].commit


def test_what_has_no_score_on_the_holdout_is_kept_no_more():
    refuses = Score(None, 1.0, "scoring crashed: ValueError: a line of the holdout")
    baseline, kept = (
        scored_attempt(number, 1.0, dawn=(1.0,), status=Status.KEEP, parent=None if number == 0 else 0)
        for number in (0, 1)
    )
    assert fallen_keeps([baseline, kept]) == {}
    cheat = dataclasses.replace(kept, runs=(kept.runs[0], dataclasses.replace(kept.runs[1], holdout=refuses)))
    assert fallen_keeps([baseline, cheat]) == {
        1: Decision(Kind.CRASHED, "with another seed: it has no score on the holdout")
    }


def test_dials_that_nobody_can_read_do_not_end_dawn():
    before, after = unigram(), unigram(SMOOTHING=2.0)
    champion = after + "\nRATE = 0.1  # how fast  [5, 1]\n"
    assert undone(champion, before, after, "cpu") == champion.replace("SMOOTHING = 2.0", "SMOOTHING = 1.0")


@pytest.mark.slow
def test_a_machine_that_breaks_at_dawn_brings_nobody_down(grounds, tmp_path):
    guard = f"assert not Path('{tmp_path / 'broken'}').exists(), 'no device'\n    data = prepare"
    first, best = (script.replace("data = prepare", guard) for script in (unigram(), BEST))
    (grounds.root / "train_mlx.py").write_text(first)
    grounds.try_scripts("t", [best])
    (tmp_path / "broken").touch()
    with pytest.raises(MachineError, match=r"not even attempt 0 .* any more: exit code 1: .*no device"):
        killed_at_dawn(grounds, 1)
    (tmp_path / "broken").unlink()
    killed_at_dawn(grounds, 1)
    grounds.try_scripts("t", [best])
    attempt = grounds.attempts("t")[1]
    assert [(run.seed, run.ending) for run in attempt.runs] == [(0, "finished"), (1000, "broken"), (1000, "finished")]
    assert attempt.status is Status.KEEP


def test_a_machine_that_sleeps_in_a_dry_run_breaks_nothing(grounds, monkeypatch):
    with scripted_context(grounds.root, "t", []) as context:
        monkeypatch.setattr(process, "Stopwatch", Nap().stopwatch)
        found = rehearse(Trial(attempt=1, script=BETTER, allowance_s=60.0, scoring_s=60.0), context.runner)
    assert found is not None
    assert found.failure is None


# ---- sources that break ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RepoError("git is gone"), ValueError("\x1b[2J"), PermissionError("no /tmp")])
def test_a_source_that_breaks_is_one_without_an_idea(error):
    with pytest.raises(NoIdea, match=r"git is gone|not foreseen \((ValueError: \\x1b\[2J|PermissionError: no /tmp)\)"):
        Outbox(lambda: False).ask(Source("llm", error), brief([attempt(0, "you")]))


@pytest.mark.parametrize("error", [sqlite3.OperationalError("readonly"), OSError(errno.ENOSPC, "no space left")])
def test_what_the_night_cannot_do_without_is_no_matter_of_a_source(error):
    with pytest.raises(type(error)):
        Outbox(lambda: False).ask(Source("llm", error), brief([attempt(0, "you")]))


@pytest.mark.parametrize("dial", ["LR = 1e999  # none  [0.01, 1.0]", "LR = True  # none  {1, 2}"])
def test_no_dial_that_a_machine_wrote_ends_a_night(dial):
    kept = attempt(0, "you")
    kept = dataclasses.replace(kept, proposal=dataclasses.replace(kept.proposal, script=f"{BETTER}\n{dial}\n"))
    turned = Outbox(lambda: False).ask(Search("cpu", 0), brief([kept]))
    assert f"\n{dial}\n" in turned.proposal.script, "it turns the others"
    alone = dataclasses.replace(kept, proposal=dataclasses.replace(kept.proposal, script=f"{dial}\n"))
    with pytest.raises(NoIdea, match="set it to what is"):
        Outbox(lambda: False).ask(Search("cpu", 0), brief([alone]))


def test_a_link_that_came_with_the_repository_is_not_written_through_when_a_night_opens(grounds, tmp_path):
    (tmp_path / "profile").write_text("the user's")
    grounds.folder("t").parent.mkdir(parents=True)
    (grounds.folder("t").parent / ".gitignore").symlink_to(tmp_path / "profile")
    grounds.try_scripts("t", [])
    assert (tmp_path / "profile").read_text() == "the user's"
