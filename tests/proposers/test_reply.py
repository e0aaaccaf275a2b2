"""A clear reply is accepted, any other refused with a sentence that tells the model how to correct it."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
from asking import HEAD, NEW, OLD, SCRIPT, WANTED, block, edit
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.proposers.llm.reply import REPLY_CHARS, BadReply, read_reply
from agent.script.dials import fingerprint

NAME = "train_mlx.py"


def read(text: str, base: str = SCRIPT) -> str:
    return read_reply(text, base, NAME).script


def refusal(text: str, base: str = SCRIPT) -> str:
    with pytest.raises(BadReply) as caught:
        read_reply(text, base, NAME)
    return str(caught.value)


def test_an_edit_a_title_and_a_hypothesis_come_out():
    edited = read_reply(f"TITLE: t\nHYPOTHESIS: Counts are large\nas they are.\n\n{block(OLD, NEW)}", SCRIPT, NAME)
    assert (edited.script, edited.title, edited.hypothesis) == (WANTED, "t", "Counts are large\nas they are.")


@pytest.mark.parametrize(
    "body",
    [
        block(OLD, NEW),
        f"```python\n{block(OLD, NEW)}```\n",
        f"```python:{NAME}\n{block(OLD, NEW)}```",
        f"### `{NAME}`\n{block(OLD + '   ', NEW)}",
        block(OLD, NEW).replace("\n", "\r\n"),
        block(OLD, NEW).replace("<<<<<<<", "<<<<<").replace("=======", "========").replace(">>>>>>>", ">>>>>>>>>"),
        f"```python\n{WANTED}```\nThat is all.",
        f"````\n\n{WANTED}\n\n````",
    ],
)
def test_models_write_the_same_edit_in_many_ways(body):
    assert read(f"**Title:** less\n\n**Hypothesis:** it may help\n\n{body}") == WANTED


def test_what_a_model_thought_aloud_is_not_read():
    thought = f"<think>TITLE: no\n{block('nothing', 'of this')}```\n</think>\n"
    assert read(thought + HEAD + block(OLD, NEW)) == WANTED


REFUSED = {
    "no title": (f"HYPOTHESIS: why\n{block(OLD, NEW)}", "begins with TITLE:"),
    "no hypothesis": (f"TITLE: what\n{block(OLD, NEW)}", "begins with HYPOTHESIS:"),
    "no such lines": (HEAD + block("SMOOTHING = 9", NEW), '"SMOOTHING = 9", is not in'),
    "empty search": (HEAD + block("", "x = 1"), "is not in"),
    "same lines twice": (HEAD + block(OLD, NEW) + block(OLD, NEW), "two blocks edit the same lines"),
    "nothing": (HEAD + block(OLD, OLD), "changes nothing"),
    "no divider": (f"{HEAD}<<<<<<< SEARCH\n{OLD}\n>>>>>>> REPLACE\n", "is not whole"),
    "block in a block": (f"{HEAD}<<<<<<< SEARCH\n{OLD}\n=======\n{block(OLD, NEW)}", "is not whole"),
    "a part as the whole": (f"{HEAD}```python\n{NEW}\n```", "breaks the contract"),
    "a syntax error": (HEAD + block(OLD, "SMOOTHING = = 1"), "does not parse"),
    "a library": (HEAD + block(OLD, f"import torch\n{OLD}"), "line 15 imports torch; do without it"),
    "deep nesting": (HEAD + block(OLD, f"SMOOTHING = {'-' * 5000}1"), "nested"),
    "too long": ("x" * (REPLY_CHARS + 1), "more than"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_clear_is_refused_with_what_to_do(name):
    text, why = REFUSED[name]
    sentence = refusal(text)
    assert why in sentence
    assert "\n" not in sentence
    assert len(sentence) < 600


def test_lines_that_stand_in_several_places_are_refused():
    base = SCRIPT.replace("NOTE =", f"{OLD}\nNOTE =")
    assert "is in several places" in refusal(HEAD + block(OLD, NEW), base)


@pytest.mark.parametrize("name", ["prepare.py", "../train_mlx.py", "TRAIN_MLX.PY"])
def test_no_other_file_is_edited(name):
    assert f"edit {NAME} alone" in refusal(edit(OLD, NEW, file=name))


LONG = 200_000  # signs, in a reply or a script that takes long to look through


@pytest.mark.parametrize(
    "text",
    [
        " " * LONG + "x",
        "<think>" * (LONG // 7),
        "```\n" * (LONG // 4),
        HEAD + block("\n" * (LONG // 2) + "x", "y"),
    ],
)
def test_no_reply_takes_long_to_be_refused(text):
    base = SCRIPT + "\n" * LONG
    start = time.process_time()
    refusal(text, base)
    assert time.process_time() - start < 2.0


# ---- whatever comes --------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "```", "```python", "````", "TITLE: t", "HYPOTHESIS: h",
     "FILE: train_mlx.py", "FILE: ../x", OLD, NEW, "", "    ", "<think>", "</think>", "def main():", "..", "a.py"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=30), max_size=30).map("\n".join))
@settings(max_examples=150, deadline=None)
def test_no_reply_does_more_than_edit_or_be_refused(text):
    before = set(Path().iterdir())
    with suppress(BadReply):
        edited = read_reply(text, SCRIPT, NAME)
        assert fingerprint(edited.script) != fingerprint(SCRIPT)
        assert edited.title
        assert edited.hypothesis
    assert set(Path().iterdir()) == before  # where the answer named a file
