"""Files of ideas are read as anybody may have written them; a damaged one is skipped, and said to be so."""

import re
from pathlib import Path

import pytest

from agent.proposers.catalogue.files import read_ideas

HEADER = """Title: Warm up longer
Why: The first steps are the noisiest.
  Later ones are not.
Source: a paper, arXiv:1706.03762
Reported: 1 % lower loss
Group: schedule
Gain: cuda 0.6, metal 0.5
Cost: cpu 10, cuda -1.5 %

"""
PATCH = """diff --git a/train_mlx.py b/train_mlx.py
--- a/train_mlx.py
+++ b/train_mlx.py
@@ -1,3 +1,5 @@
-WARMUP_FRACTION = 0.0  # of the budget  [0.0, 0.2]
+WARMUP_FRACTION = 0.1  # of the budget  [0.0, 0.2]
+HOLD_FRACTION = 0.1  # before it  [0.0, 0.2]
 import mlx
+    INDENTED = 3
"""


@pytest.fixture
def folder(tmp_path):
    def made(**texts: str) -> Path:
        (tmp_path / "ideas").mkdir(exist_ok=True)
        for name, text in texts.items():
            (tmp_path / "ideas" / f"{name}.patch").write_text(text)
        return tmp_path / "ideas"

    return made


def test_a_file_tells_what_is_tried_why_and_what_to_expect(folder):
    (idea,), faults = read_ideas(folder(longer=HEADER + PATCH))
    assert faults == ()
    assert (idea.slug, idea.title, idea.group) == ("longer", "Warm up longer", "schedule")
    assert idea.why == "The first steps are the noisiest. Later ones are not."
    assert idea.source == "a paper, arXiv:1706.03762"
    assert idea.gain_percent == {"cuda": 0.6, "metal": 0.5, "cpu": 0.1}
    assert idea.cost_percent == {"cuda": -1.5, "metal": 0.0, "cpu": 10.0}
    assert idea.patch == PATCH


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (PATCH, "has no title; begin it with"),
        ("Title: none\n", "is no patch of one file; make one with"),
        (HEADER + PATCH + PATCH.replace("train_mlx", "prepare"), "is no patch of one file"),
        (HEADER.replace("cuda 0.6", "0.6") + PATCH, "Gain '0.6' cannot be read; write percents as in"),
        (HEADER.replace("Group: schedule", "Title: two") + PATCH, "gives 'Title', .* comes a second time"),
        (HEADER + PATCH + " " * 300_000, "has more bytes than the limit of 262,144; take data out"),
    ],
)
def test_a_damaged_file_is_skipped_with_its_name_and_the_remedy(folder, text, sentence):
    ideas, (fault,) = read_ideas(folder(broken=text, whole=HEADER + PATCH))
    assert [idea.slug for idea in ideas] == ["whole"]
    assert "broken.patch" in fault
    assert re.search(sentence, fault)


def test_an_idea_has_a_name_that_is_harmless_in_commits_and_on_terminals(folder):
    (folder(whole=HEADER + PATCH) / "a\n\x1b[2J.patch").write_text(HEADER + PATCH)
    ideas, (fault,) = read_ideas(folder())
    assert [idea.slug for idea in ideas] == ["whole"]
    assert fault.isprintable()


def test_a_users_idea_replaces_the_shipped_one_of_its_name(folder, tmp_path):
    shipped = folder(longer=HEADER + PATCH, other=HEADER + PATCH).rename(tmp_path / "shipped")
    ideas, _ = read_ideas(folder(longer=HEADER.replace("longer", "twice as long") + PATCH), shipped)
    assert {idea.slug: idea.title for idea in ideas} == {"longer": "Warm up twice as long", "other": "Warm up longer"}
