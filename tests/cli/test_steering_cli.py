"""What a person puts into a night from the command line: an edit in the queue, an agent, a note."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nights import Grounds, make_repository, unigram

from agent.experiment import Attempt

QUICK = ("--sandbox", "off", "--judge", "greedy")
NOTE = "leave the smoothing alone"
AGENT = r"""
printf '\nTOLD = "%s"\n' "$(cat notes.md)" >> train_mlx.py
printf 'as told\n\nA note said so.\n' > IDEA.md
"""


@dataclass(frozen=True)
class Night:
    grounds: Grounds
    queued: str  # what try --queue said
    noted: str  # what note said
    said: str  # by the last run
    attempts: tuple[Attempt, ...]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Night]:
    """A night of a queue and an agent, by the command line."""
    folder = tmp_path_factory.mktemp("steering")
    grounds = Grounds(make_repository(folder / "user", unigram()))
    (folder / "agent.sh").write_text(AGENT)
    (folder / "sharper.py").write_text(unigram(SHARPNESS=0.9))

    def run(experiments: int, *options: str) -> str:
        done = grounds.nightshift("run", "--tag", "t", "--experiments", str(experiments), *options, *QUICK)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        words = ("--edit", str(folder / "sharper.py"), "-m", "sharper\nThe counts are large.")
        queued = grounds.nightshift("try", "--queue", *words).stdout
        run(1, "--budget-s", "0.05", "--proposer", "queue")
        noted = grounds.nightshift("note", *NOTE.split()).stdout
        agent = f"sh {shlex.quote(str(folder / 'agent.sh'))}"
        said = run(2, "--proposer", "command", "--command", agent)
        yield Night(grounds, queued, noted, said, grounds.attempts("t"))


def test_an_edit_in_the_queue_starts_nothing_and_is_tried_by_the_next_night(mixed):
    assert mixed.queued == "t0001: waiting\nits verdict: nightshift try --wait t0001\n"
    one = mixed.attempts[1]
    assert (one.proposal.title, one.proposal.hypothesis) == ("sharper", "The counts are large.")
    assert (one.proposal.script, one.proposal.source) == (unigram(SHARPNESS=0.9), "queue: 0001")
    assert mixed.grounds.nightshift("try", "--wait", "t0001").stdout.startswith("keep: ")


def test_an_agent_reads_the_note(mixed):
    assert mixed.noted.startswith("noted; a model or an agent of night t reads it before its next proposal")
    assert mixed.attempts[2].proposal.title == "as told"
    assert mixed.attempts[2].proposal.script.endswith(f'TOLD = "- {NOTE}"\n')


def test_status_and_the_end_of_a_run_say_what_each_source_has_brought(mixed):
    assert "night t goes on with --proposer command (it was --proposer queue)" in mixed.said
    status = mixed.grounds.nightshift("status", "t").stdout.partition("next:\n")[0].splitlines()
    assert [line.split()[:2] for line in status[-3:]] == [["source", "attempts"], ["queue", "1"], ["command", "1"]]
    assert [line for line in mixed.said.splitlines() if line in status] == status
