"""What a night does not believe, does over, or lives through: one night of it all, with the reasons that it gives."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nights import Grounds, Nap, Quiet, make_repository, scripted_context, unigram, with_limits

from agent.experiment import Attempt, Ending, Status
from agent.night.loop import run_night
from agent.night.state import NightContext
from agent.sandbox import process
from agent.sandbox.supervisor import GB

pytestmark = pytest.mark.slow

LOADS = "def load_model(weights_path: str) -> Unigram:\n"
NEXT = "mx.concatenate([tokens[:, 1:], tokens[:, :1]], axis=1)"
LOGITS = "mx.broadcast_to(self.logits, (*tokens.shape, self.logits.size))"

PEEKS = unigram(SHARPNESS=0.6).replace(LOGITS, f"{LOGITS} + 5 * mx.eye(self.logits.size)[{NEXT}]")
BOUNDLESS = unigram(SHARPNESS=0.7).replace("    data = ", "    hoard = bytearray(2 << 30)\n    data = ")
SEEDED = unigram(SHARPNESS=0.9, JITTER=0.01)
PLAUSIBLE_GAIN = 0.01


def frail(diary: Path) -> str:
    """Two percent better, and its first scorer dies by SIGKILL, as when memory runs out; each leaves a line."""
    code = f"    diary = {str(diary)!r}\n    with open(diary, 'a') as file:\n        file.write('loaded\\n')\n"
    code += "    if len(open(diary).readlines()) == 1:\n        import os; os.kill(os.getpid(), 9)\n"
    return unigram(SHARPNESS=1.0).replace(LOADS, LOADS + code)


@dataclass(frozen=True)
class Doubts:
    """The morning after: a first part without confirmation, a second with one more seed for each gain."""

    context: NightContext
    grounds: Grounds
    sentences: list[str]
    diary: Path

    def __getitem__(self, number: int) -> Attempt:
        return self.grounds.attempts("t")[number]

    def reason(self, number: int) -> str:
        decision = self[number].decision
        return decision.reason if decision else ""


@pytest.fixture(scope="module")
def doubts(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Doubts]:
    root = tmp_path_factory.mktemp("doubts")
    grounds, diary = Grounds(make_repository(root / "user", unigram())), root / "diary"
    scripts = [frail(diary), PEEKS, BOUNDLESS, SEEDED]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        patch.setattr(process, "Stopwatch", Nap().stopwatch)
        with scripted_context(grounds.root, "t", scripts[:3], plausible_gain=PLAUSIBLE_GAIN) as context:
            limits = dataclasses.replace(context.runner.resource_limits, memory_bytes=GB)
            run_night(with_limits(context, limits))
            assert isinstance(context.watcher, Quiet)
            sentences = context.watcher.sentences
        with scripted_context(grounds.root, "t", scripts, confirm=1) as context:
            run_night(context)
            yield Doubts(context, grounds, sentences, diary)


# ---- done over -------------------------------------------------------------------------------------------------------


def test_a_run_during_which_the_machine_slept_is_invalid_and_repeated(doubts):
    assert [run.ending for run in doubts[0].runs] == [Ending.SLEPT, Ending.FINISHED]
    assert [run.seed for run in doubts[0].runs] == [0, 0]
    assert (doubts[0].status, len(doubts[0].done_runs)) == (Status.KEEP, 1)
    assert doubts.sentences[0] == "this run of #0 does not count and is done again: the machine slept"


def test_a_scorer_that_a_signal_ended_is_asked_once_more(doubts):
    assert doubts.diary.read_text() == "loaded\n" * 3  # killed, scored, audited
    assert doubts[1].val_bpb is not None


# ---- not believed ----------------------------------------------------------------------------------------------------


def test_a_gain_that_cannot_be_believed_is_shown_and_not_kept(doubts):
    assert doubts[1].status is Status.DISCARD
    assert doubts.reason(1) == "quarantine: better than the incumbent by 2%, more than 1% in one step is not believed"
    assert doubts[1].val_bpb < doubts[0].val_bpb
    assert doubts[2].parent == 0


def test_a_script_that_sees_the_next_token_is_caught_by_the_audit(doubts):
    assert doubts[2].status is Status.DISCARD
    assert doubts.reason(2).startswith("audit: ")
    assert "committed losses are not the model's" in doubts.reason(2)
    audit = doubts[2].runs[0].score.audit
    assert int(audit.failure.split()[0]) > audit.positions // 2
    assert doubts.reason(2) == f"audit: {audit.failure}"
    assert not doubts.context.runner.weights(2, 0).exists()


def test_a_gain_that_another_seed_confirms_is_kept_by_its_mean(doubts):
    attempt = doubts[4]
    assert ([run.seed for run in attempt.runs], attempt.status) == ([0, 1], Status.KEEP)
    assert attempt.val_bpb == pytest.approx(sum(attempt.scores_bpb) / 2)
    assert [run.score.audit.passed for run in attempt.runs] == [True, True]


# ---- lived through ---------------------------------------------------------------------------------------------------


def test_a_run_that_takes_too_much_memory_is_its_own_crash(doubts):
    assert (doubts[3].status, doubts[3].runs[0].ending) == (Status.CRASH, Ending.EXCEEDED)
    assert "out of memory" in doubts.reason(3)
    assert doubts.grounds.rows()[3]["status"] == "crash"
