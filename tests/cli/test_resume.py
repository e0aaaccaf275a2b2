"""Nothing is lost and nothing doubled, wherever the harness dies."""

import subprocess
import sys

import pytest
from nights import SCRIPTS, Grounds, environment, make_repository, unigram

STEPS = ("propose", "objects", "ref", "commit", "start", "train")
STEPS += ("score", "end", "decide", "ledger", "settle")
MOMENTS = [f"after:{step}" for step in STEPS]  # which is before the next one

pytestmark = pytest.mark.usefixtures("own_cache")


def go_on(grounds: Grounds, moment: str) -> int:
    command = [sys.executable, str(SCRIPTS / "killed_night.py"), "t", moment, "1"]
    return subprocess.run(command, cwd=grounds.root, env=environment(), check=False, timeout=600).returncode


def outcome(grounds: Grounds) -> list[tuple[object, ...]]:
    """All that a night leaves, except for what an hour of the day or a kill may change."""
    facts = [
        (attempt.number, attempt.parent, attempt.proposal, attempt.status, attempt.val_bpb, attempt.settled)
        for attempt in grounds.attempts("t")
    ]
    rows = [(row["attempt"], row["val_bpb"], row["status"], row["seeds"]) for row in grounds.rows()]
    tree = grounds.git("rev-parse", "refs/heads/experiments/0.05s-t^{tree}")
    return [*facts, *rows, tree, len(grounds.git("for-each-ref", "refs/experiments").splitlines())]


@pytest.mark.slow  # thirteen calls of a night; tests/test_faults.py kills six times
def test_a_night_killed_at_every_step_ends_like_an_undisturbed_one(tmp_path):
    noisy = unigram(JITTER=0.01)  # as the ideas of killed_night.py are: the judge measures the noise first
    grounds, undisturbed = (Grounds(make_repository(tmp_path / name, noisy)) for name in ("killed", "undisturbed"))
    assert go_on(undisturbed, "never") == 0
    for moment in MOMENTS:
        assert go_on(grounds, moment) == -9, moment
    assert go_on(grounds, "never") == 0
    assert outcome(grounds) == outcome(undisturbed)
    assert [len(attempt.done_runs) for attempt in grounds.attempts("t")] == [3, 1, 1]
    assert grounds.git("fsck", "--strict", "--no-dangling") == ""
    assert grounds.git("status", "--porcelain") == "?? results.tsv"
