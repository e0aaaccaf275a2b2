"""What a person puts into a night from the command line: an edit in the queue, an agent, a note."""

import shlex

import pytest
from nights import unigram

QUICK = ("--tag", "t", "--sandbox", "off", "--judge", "greedy")
AGENT = r"""
printf '\nTOLD = "%s"\n' "$(cat notes.md)" >> train_mlx.py
printf 'as told\n\nA note said so.\n' > IDEA.md
"""


@pytest.mark.slow
def test_a_queued_edit_is_tried_by_the_next_night_and_an_agent_reads_the_note(grounds, tmp_path):
    (tmp_path / "agent.sh").write_text(AGENT)
    (tmp_path / "sharper.py").write_text(unigram(SHARPNESS=0.9))
    words = ("--edit", str(tmp_path / "sharper.py"), "-m", "sharper\nThe counts are large.")
    queued = grounds.nightshift("try", "--queue", *words).stdout
    assert queued == "t0001: waiting\nwait for the verdict with: nightshift try --wait t0001\n"
    assert not grounds.folder("t").exists()
    first = ("--experiments", "1", "--budget-s", "0.05", "--proposer", "queue")
    assert grounds.nightshift("run", *first, *QUICK).returncode == 0
    assert grounds.nightshift("try", "--wait", "t0001").stdout.startswith("kept: ")
    grounds.nightshift("note", "leave", "the", "smoothing", "alone")
    agent = f"sh {shlex.quote(str(tmp_path / 'agent.sh'))}"
    said = grounds.nightshift("run", "--experiments", "2", "--proposer", "command", "--command", agent, *QUICK).stdout
    assert "night t goes on with --proposer command (it was --proposer queue)" in said

    edit, told = (attempt.proposal for attempt in grounds.attempts("t")[1:])
    assert (edit.title, edit.hypothesis, edit.proposer) == ("sharper", "The counts are large.", "queue: 0001")
    assert (edit.script, told.title) == (unigram(SHARPNESS=0.9), "as told")
    assert told.script.endswith('TOLD = "- leave the smoothing alone"\n')
    status = grounds.nightshift("status", "t").stdout.partition("next:\n")[0].splitlines()
    assert [line.split()[:2] for line in status[-3:]] == [["proposer", "attempts"], ["queue", "1"], ["command", "1"]]
    (tried,) = (line for line in status if line.startswith("3 attempts, "))
    assert tried in said.splitlines(), "the end of a run says the same"
