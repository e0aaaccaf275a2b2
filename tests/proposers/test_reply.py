"""A clear reply is accepted, any other refused with a sentence that tells the model how to correct it."""

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nights import unigram

from agent.proposers.author.attempts import Combinable
from agent.proposers.llm.reply import MAX_EDITS, REPLY_CHARS, BadReply, combined, read_ideas, read_reply
from agent.script.dials import fingerprint

SCRIPT = unigram()
NAME = "train_mlx.py"
HEAD = "TITLE: less smoothing\nHYPOTHESIS: Counts are large\nenough as they are.\n"
OLD = "SMOOTHING = 1.0  # added to every count  [0.01, 100.0] log"
NEW = "SMOOTHING = 0.5  # added to every count  [0.01, 100.0] log"
WANTED = SCRIPT.replace(OLD, NEW)


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def read(text: str, base: str = SCRIPT) -> str:
    return read_reply(text, base, NAME).script


def refusal(text: str, base: str = SCRIPT) -> str:
    with pytest.raises(BadReply) as caught:
        read_reply(text, base, NAME)
    return str(caught.value)


def test_an_edit_a_title_and_a_hypothesis_come_out():
    edited = read_reply(f"{HEAD}\nFILE: {NAME}\n{block(OLD, NEW)}", SCRIPT, NAME)
    assert edited.script == WANTED
    assert edited.title == "less smoothing"
    assert edited.hypothesis == "Counts are large\nenough as they are."


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


def test_the_order_of_blocks_does_not_matter_and_neighbours_do_not_touch():
    first, second = "SHARE = 0.25", 'NOTE = "unigram"'
    old = [line for line in SCRIPT.split("\n") if line.startswith((first, second))]
    blocks = [block(old[0], "SHARE = 0.5"), block(old[1], 'NOTE = "more"')]
    assert read(HEAD + "".join(blocks)) == read(HEAD + "".join(reversed(blocks)))


def test_lines_can_be_deleted():
    note = 'NOTE = "unigram"  # not searched'
    assert read(f"{HEAD}<<<<<<< SEARCH\n{note}\n=======\n>>>>>>> REPLACE\n") == SCRIPT.replace(note + "\n", "")


REFUSED = {
    "empty": ("", "no SEARCH/REPLACE block"),
    "prose": ("I would rather not.", "no SEARCH/REPLACE block and no code block"),
    "no title": (f"HYPOTHESIS: why\n{block(OLD, NEW)}", "begins with TITLE:"),
    "no hypothesis": (f"TITLE: what\n{block(OLD, NEW)}", "begins with HYPOTHESIS:"),
    "no such lines": (HEAD + block("SMOOTHING = 9", NEW), 'no line there is "SMOOTHING = 9"'),
    "lines apart": (HEAD + block(f"{OLD}\nNOTE = \"unigram\"  # not searched", NEW), "without leaving one out"),
    "empty search": (HEAD + block("", "x = 1"), "does not stand"),
    "same lines twice": (HEAD + block(OLD, NEW) + block(OLD, NEW), "two blocks edit the same lines"),
    "two scripts": (f"{HEAD}```python\n{WANTED}```\n```python\n{WANTED}```", "2 code blocks"),
    "nothing": (HEAD + block(OLD, OLD), "changes nothing"),
    "no divider": (f"{HEAD}<<<<<<< SEARCH\n{OLD}\n>>>>>>> REPLACE\n", "is not whole"),
    "block in a block": (f"{HEAD}<<<<<<< SEARCH\n{OLD}\n=======\n{block(OLD, NEW)}", "is not whole"),
    "a part as the whole": (f"{HEAD}```python\n{NEW}\n```", "breaks the contract"),
    "a syntax error": (HEAD + block(OLD, "SMOOTHING = = 1"), "does not parse"),
    "deep nesting": (HEAD + block(OLD, f"SMOOTHING = {'-' * 5000}1"), "nested"),
    "too long": ("x" * (REPLY_CHARS + 1), "more than"),
    "too many": (HEAD + block(OLD, NEW) * (MAX_EDITS + 1), "at most 50 blocks"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_clear_is_refused_with_what_to_do(name):
    text, why = REFUSED[name]
    sentence = refusal(text)
    assert why in sentence
    assert "\n" not in sentence
    assert len(sentence) < 600


def test_lines_that_stand_in_several_places_are_refused_with_their_numbers():
    base = SCRIPT.replace("NOTE =", f"{OLD}\nNOTE =")
    first, second = (at for at, line in enumerate(base.split("\n"), 1) if line == OLD)
    assert f"stands in {NAME} at lines {first} and {second}" in refusal(HEAD + block(OLD, NEW), base)


@pytest.mark.parametrize(
    "name", ["prepare.py", "../train_mlx.py", "/etc/passwd", "./train_mlx.py", "C:\\train_mlx.py", "TRAIN_MLX.PY"]
)
def test_no_other_file_is_edited(name):
    assert f"edit {NAME} alone" in refusal(f"{HEAD}FILE: {name}\n{block(OLD, NEW)}")


LONG = 200_000  # signs, in a reply or a script that wants to be looked at for ever


@pytest.mark.parametrize(
    "text",
    [
        " " * LONG + "x",
        "<think>" * (LONG // 7),
        f"TITLE: x{'* ' * (LONG // 2)}x",
        f"{'a.b:' * (LONG // 4)}!",
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
        (edited, *_) = read_ideas(text, SCRIPT, NAME)
        assert fingerprint(edited.script) != fingerprint(SCRIPT)
    with suppress(BadReply):
        edited = read_reply(text, SCRIPT, NAME)
        assert fingerprint(edited.script) != fingerprint(SCRIPT)
        assert edited.title
        assert edited.hypothesis
    assert set(Path().iterdir()) == before  # where the answer named a file


SAFE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=20)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_edit_of_whole_lines_comes_out_as_it_was_meant(data):
    lines = SCRIPT.split("\n")
    start = data.draw(st.integers(0, len(lines) - 1))
    stop = data.draw(st.integers(start + 1, len(lines)))
    comments = [f"# {text}".rstrip() for text in data.draw(st.lists(SAFE, max_size=3))]
    added = data.draw(st.integers(2, 10**6))
    kept = lines[start:stop]
    assume(any(kept))
    assume(not any(lines[at : at + len(kept)] == kept for at in range(len(lines)) if at != start))
    indent = re.match(" *", next((line for line in lines[stop:] if line.strip()), ""))[0]  # type: ignore[index]
    new = [*kept, *(f"{indent}{line}" for line in comments), f"{indent}pass; {added}"]
    wanted = "\n".join([*lines[:start], *new, *lines[stop:]])
    try:
        compile(wanted, NAME, "exec")
    except SyntaxError:
        assert "does not parse" in refusal(HEAD + block("\n".join(kept), "\n".join(new)))
    else:
        assert read(HEAD + block("\n".join(kept), "\n".join(new))) == wanted


# ---- several ideas, and combinations ---------------------------------------------------------------------------------

SHARE, NOTE = "SHARE = 0.25  # of the training text that is counted  {0.125, 0.25, 0.5, 1.0}", 'NOTE = "unigram"'
NOTE_LINE = next(line for line in SCRIPT.split("\n") if line.startswith(NOTE))


def idea(title: str, search: str, replace: str) -> str:
    return f"TITLE: {title}\nHYPOTHESIS: It may help.\nFILE: {NAME}\n{block(search, replace)}"


FIRST, SECOND = idea("one", OLD, NEW), idea("two", SHARE, "SHARE = 0.5")
THIRD = idea("three", NOTE_LINE, 'NOTE = "more"')
UNFINISHED = SECOND.replace(">>>>>>> REPLACE\n", "")
PLAN = "A plan:\nIdea 1: less smoothing.\nIdea 2: more text.\n\n"


def titles(text: str, **more: bool) -> list[str]:
    return [one.title for one in read_ideas(text, SCRIPT, NAME, **more)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FIRST + SECOND + THIRD, "one two three"),
        (f"IDEA 1\n{FIRST}\nIDEA 2\n{SECOND}\nIDEA 3\n{THIRD}", "one two three"),
        (f"<think>IDEA 1\n{THIRD}</think>\nHere they are.\nIDEA 1\n{FIRST}\nIDEA 2\n{SECOND}", "one two"),
        (f"{PLAN}IDEA 1\n{FIRST}\nIDEA 2\n{SECOND}\nIDEA 3\n{THIRD}", "one two three"),
        (f"IDEA 1\n{FIRST}\nIDEA 2\n{UNFINISHED}\nIDEA 3\n{THIRD}", "one three"),
        (f"IDEA 1\n{FIRST}\nIDEA 2\n{block(SHARE, 'SHARE = 0.5')}\nIDEA 3\n{THIRD}", "one three"),
        (FIRST + idea("nowhere", "x = 1", "x = 2") + THIRD, "one three"),
        (FIRST + FIRST.replace("one", "again") + THIRD, "one three"),
        (FIRST + SECOND + THIRD + idea("four", OLD, "SMOOTHING = 0.1"), "one two three"),
        (idea("one", OLD, "# TITLE: of a plot\n# IDEA 2: later\nSMOOTHING = 0.5") + SECOND, "one two"),
    ],
)
def test_each_idea_of_an_answer_is_read_by_itself(text, found):
    assert " ".join(titles(text)) == found


def test_what_is_wrong_is_told_where_no_idea_is_sound():
    with pytest.raises(BadReply, match=r"idea 1: block 1 is not whole.*; idea 2: the SEARCH of block 1 does not"):
        titles(UNFINISHED + idea("nowhere", "x = 1", "x = 2"))


def test_the_last_idea_of_an_answer_that_was_cut_off_is_not_read():
    assert titles(FIRST + SECOND + THIRD, is_whole=False) == ["one", "two"]
    with pytest.raises(BadReply, match="cut off"):
        titles(FIRST, is_whole=False)


PARTS = Combinable(near=(3, 7), keeps=(2,))


@pytest.mark.parametrize("said", ["3, 7", "#3 and #7", "attempts 3, 7", "7 + 3"])
def test_a_combination_names_its_parts(said):
    edited = combined(read_reply(FIRST.replace("HYPO", f"COMBINES: {said}\nHYPO"), SCRIPT, NAME), PARTS)
    assert (edited.script, edited.hypothesis) == (WANTED, "Combines #3 and #7. It may help.")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "has no line COMBINES:"),
        ("the best ones", "has no line COMBINES:"),
        ("3, 4", "two or more attempts of [2, 3, 7], at least one of them of [3, 7]"),
        ("9" * 5000, "of [2, 3, 7]"),
        ("3", "two or more"),
        ("2", "two or more"),
        ("2, 2", "two or more"),
    ],
)
def test_a_combination_of_anything_else_is_refused(said, why):
    text = FIRST if said is None else FIRST.replace("HYPO", f"COMBINES: {said}\nHYPO")
    with pytest.raises(BadReply, match=re.escape(why)):
        combined(read_reply(text, SCRIPT, NAME), PARTS)
