"""Nights of which dawn confirms little or nothing, and the time that is kept for it."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from dawns import BEST, SHARPER, START, remember
from nights import Grounds, make_repository, run_once, scripted_context, unigram

from agent.experiment import Decision, Kind, Proposal, Status
from agent.night.dawn import confirm_night
from agent.night.limits import Limits
from agent.night.loop import at_work, run_night

PEEKS_AT_DAWN = (
    unigram(SHARPNESS=0.8, JITTER=0.05)
    .replace('{"logits": mx.array(logits, mx.float32)}', '{"logits": mx.array(logits, mx.float32), "peeks": PEEKS}')
    .replace("    mx.save_", "    PEEKS = mx.array(float(options.seed >= 1000))\n    mx.save_")
    .replace('Unigram(mx.load(str(weights_path))["logits"])', "Unigram(**mx.load(str(weights_path)))")
    .replace("logits: mx.array) -> None:", "logits: mx.array, peeks: mx.array) -> None:\n        self.peeks = peeks")
    .replace(
        "        return mx.broadcast_to(self.logits, (*tokens.shape, self.logits.size))  # (B, T, V)",
        "        ahead = mx.concatenate([tokens[:, 1:], tokens[:, :1]], axis=1)\n"
        "        seen = ahead[..., None] == mx.arange(self.logits.size)\n"
        "        return self.logits + self.peeks * seen",
    )
)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_run_at_dawn_that_fails_its_audit_revokes_the_champion_and_then_there_is_nothing_to_confirm(grounds):
    grounds.try_scripts("t", [PEEKS_AT_DAWN])
    assert [one.status for one in grounds.attempts("t")] == ["keep", "keep"]
    with scripted_context(grounds.root, "t", []) as context:
        run_once(context, 1, dawn=1)
    done = grounds.nightshift("confirm", "--sandbox", "off", "--allowance-s", "60")
    told = "nightshift: night t has kept no edit, so there is nothing to confirm; see: nightshift results\n"
    assert (done.returncode, done.stderr) == (2, told)
    attempts = grounds.attempts("t")
    assert [one.status for one in attempts] == ["keep", "discard"]
    assert attempts[1].decision.reason.startswith("audit: ")
    assert grounds.rows()[1]["reason"].startswith("audit: ")
    assert "discard (it failed the audit: " in done.stdout  # an agent reads it: no words of the auditing process
    branches = grounds.git("for-each-ref", "refs/heads/experiments", "--format=%(refname:short) %(objectname)")
    assert branches == f"experiments/0.05s-t {attempts[0].commit}"


@pytest.fixture(scope="module")
def one_keep(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Grounds:
    """A night that has kept one edit."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("one_keep") / "user", START))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        grounds.try_scripts("t", [SHARPER])
    assert [one.status for one in grounds.attempts("t")] == ["keep", "keep"]
    return grounds


@pytest.fixture
def kept(one_keep: Grounds, tmp_path: Path, own_cache: None) -> Grounds:
    """Its copy, for one test."""
    return Grounds(shutil.copytree(one_keep.root, tmp_path / "user"))


def refs(grounds: Grounds) -> list[str]:
    return grounds.git("for-each-ref", "refs/heads/experiments", "--format=%(refname:short)").split()


def test_what_fresh_seeds_do_not_confirm_gets_no_branch_and_what_stands_there_is_left(kept):
    for number, aboves in enumerate(((0.0, 0.01, 0.02, 0.03), (0.2, -0.3, 0.3, -0.1))):
        remember(kept, number, aboves)
    with scripted_context(kept.root, "t", []) as context:
        confirm_night(context, 0)
        first, context.watcher.sentences = context.watcher.sentences, []  # type: ignore[attr-defined]
        assert refs(kept) == ["experiments/0.05s-t"]
        kept.git("branch", "experiments/0.05s-t-confirmed", "main")
        confirm_night(context, 0)
        second = context.watcher.sentences  # type: ignore[attr-defined]
    assert [line for line in first if line.startswith("  NOT confirmed: on fresh seeds #1 gains +")]
    assert "no branch is made" in first[-3]
    assert first[-1].endswith("git restore -s refs/experiments/t/0000 train_mlx.py")
    assert "  experiments/0.05s-t-confirmed stays as an earlier dawn left it" in second
    assert kept.git("rev-parse", "experiments/0.05s-t-confirmed") == kept.git("rev-parse", "main")
    assert "dawn: #1 is not confirmed (a gain of +" in kept.nightshift("status").stdout


def test_a_confirmed_script_is_measured_by_the_night_even_after_a_kill_right_when_it_was_taken_over(kept):
    with scripted_context(kept.root, "t", []) as context:
        context.journal.add_attempt(
            2, 1, Proposal(BEST, "#1 without #1", "", "dawn", without=(1,)), "2026-01-02T03:04:05Z"
        )
        context.journal.record_decision(2, Decision(Kind.ADOPTED, "confirmed at dawn: #1 without #1"))
        with at_work(context, context.state()) as driver:
            driver.commit(2)
        run_night(dataclasses.replace(context, limits=Limits(experiments=2)))
    adopted = kept.attempts("t")[2]
    assert (adopted.status, adopted.settled, [run.seed for run in adopted.done_runs]) == (Status.KEEP, True, [0])
    assert kept.git("rev-parse", "refs/heads/experiments/0.05s-t") == adopted.commit
