"""A queued patch edits the script alone, is applied to the best script, and is merged if it is older."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queued import SCRIPT, aside, brief, patch, put

from agent.errors import NoIdea, ScriptError
from agent.proposers.queue import Queue
from agent.script.merge import apply_patch


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "experiments" / "queue"


@pytest.fixture
def queue(folder):
    return Queue(folder, folder.parent / "nights")


def test_a_patch_of_an_earlier_best_is_merged_with_what_was_kept_since(folder, queue):
    put(folder, patch(SCRIPT, SCRIPT.replace("LR = 0.04", "LR = 0.02")))
    better = SCRIPT.replace("WIDTH = 64", "WIDTH = 96")
    assert queue.proposals(brief(SCRIPT, better, best=1))[0].script == better.replace("LR = 0.04", "LR = 0.02")


def test_a_patch_against_what_was_kept_since_is_refused_with_the_reason(folder):
    said: list[str] = []
    put(folder, patch(SCRIPT, SCRIPT.replace("LR = 0.04", "LR = 0.02")))
    with pytest.raises(NoIdea):
        Queue(folder, folder, said.append).proposals(brief(SCRIPT, SCRIPT.replace("LR = 0.04", "LR = 0.03"), best=1))
    why = "the patch conflicts with edits kept since attempt 0; make it again, of the best script so far"
    assert aside(folder, "refused") == {"0001": why}
    assert said == [f"0001.patch of the queue was refused: {why}"]


def test_a_patch_that_copies_from_elsewhere_brings_nothing_in(tmp_path, folder):
    (tmp_path / "secret").write_text(SCRIPT)
    text = f"diff --git a/x b/train_mlx.py\ncopy from {tmp_path}/secret\ncopy to train_mlx.py\n"
    with pytest.raises(ScriptError, match="nothing else"):
        put(folder, text + patch(SCRIPT, SCRIPT.replace("4", "5")).replace("a/train_mlx.py", "a/x"))


LINES = st.lists(st.sampled_from(["x = 1", "y = 2", "", "# z", "  w = 'ü€'"]), min_size=1, max_size=12)


@given(LINES, LINES)
@settings(max_examples=12, deadline=None)
def test_any_diff_of_two_texts_makes_the_one_into_the_other(before, after):
    old, new = ("\n".join(lines) + "\nend = 0\n" for lines in (before, after))
    if old != new:
        assert apply_patch(patch(old, new), "train_mlx.py", [(0, old)]) == new


def test_a_line_number_longer_than_python_reads_is_a_far_place():
    far = patch(SCRIPT, SCRIPT.replace("4", "5")).replace("@@ -", f"@@ -{'9' * 5000}", 1)
    assert apply_patch(far, "train_mlx.py", [(0, SCRIPT)]) == SCRIPT.replace("4", "5")
