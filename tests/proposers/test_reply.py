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


EDIT = HEAD + block(OLD, NEW)
WORDS = {
    "all in one fence": f"```\n{EDIT}```",
    "all in one fence of a language": f"Here it is:\n```text\n{EDIT}```\nGood luck!",
    "all in a fence of four": f"````markdown\n{HEAD}\n```python\n{block(OLD, NEW)}```\n````",
    "all in a fence of tildes": f"~~~\n{EDIT}~~~",
    "a fence in a fence": f"```\n{HEAD}\n```python\n{block(OLD, NEW)}```\n```",
    "a fence that is not closed": f"```\n{EDIT}",
    "fields in one fence, edits in another": f"```\n{HEAD}```\n\n```python\n{block(OLD, NEW)}```\n",
    "the whole script beside fields in a fence": f"```\n{HEAD}```\n\n~~~python\n{WANTED}~~~\n",
    "the whole script in a fence in a fence": f"````\n{HEAD}\n```python\n{WANTED}```\n````",
    "the whole script below fields in one fence": f"```python\n{HEAD}\n{WANTED}```",
    "numbered fields": EDIT.replace("TITLE", "1. TITLE").replace("HYPO", "2) HYPO"),
    "fields with numbers or letters in brackets": EDIT.replace("TITLE", "(1) TITLE").replace("HYPO", "b) HYPO"),
    "a picture before a field": EDIT.replace("TITLE:", "🎯 **TITLE:**").replace("HYPO", "💡 HYPO"),
    "blanks that are not seen": EDIT.replace("TITLE", "\u200b\xa0TITLE"),
    "fields of a list": EDIT.replace("TITLE", "- TITLE").replace("HYPO", "* HYPO"),
    "bold fields": EDIT.replace("TITLE:", "**TITLE:**").replace("HYPOTHESIS:", "**HYPOTHESIS**:"),
    "a bold line": EDIT.replace("TITLE: less smoothing", "**TITLE: less smoothing**"),
    "fields in code": EDIT.replace("TITLE:", "`TITLE`:").replace("HYPOTHESIS:", "`HYPOTHESIS:`"),
    "headings": EDIT.replace("TITLE:", "## TITLE\n").replace("HYPOTHESIS:", "\n## **Hypothesis**\n\n"),
    "headings with colons": EDIT.replace("TITLE:", "## TITLE:").replace("HYPOTHESIS:", "### Hypothesis:\n"),
    "bold headings": EDIT.replace("TITLE:", "**TITLE**\n").replace("HYPOTHESIS:", "\n**HYPOTHESIS**\n"),
    "values on their own line": EDIT.replace("TITLE:", "TITLE:\n\n").replace("HYPOTHESIS:", "\nHYPOTHESIS:\n"),
    "lower case": EDIT.replace("TITLE", "title").replace("HYPOTHESIS", "Hypothesis"),
    "full-width colons": EDIT.replace("TITLE: ", "TITLE：").replace("HYPOTHESIS:", "HYPOTHESIS ："),
    "a tag around it": f"<answer>\n{EDIT}</answer>",
    "a tag on the lines": f"<answer>{EDIT.rstrip()}</answer>",
    "tags for fields": EDIT.replace("TITLE: less smoothing", "<title>less smoothing</title>"),
    "tags on lines of their own": EDIT.replace("TITLE: less smoothing", "<title>\nless smoothing\n</title>"),
    "words before it": f"Sure! I would lower it.\n\n{EDIT}\nThis keeps all else.",
    "thoughts": f"<think>TITLE: no\n{block('nothing', 'of this')}```\n</think>\n{EDIT}",
    "thoughts without a beginning": f"TITLE: no\n{block(OLD, 'SMOOTHING = 9')}</think>\n{EDIT}",
    "the same title twice": f"{EDIT}\n**TITLE:** Less smoothing",
    "the file's name after the marks": EDIT.replace("SEARCH", f"SEARCH {NAME}").replace("REPLACE", f"REPLACE {NAME}"),
    "the file's name from its folder": EDIT.replace("SEARCH", f"SEARCH ./{NAME}"),
    "words after the last mark": EDIT.replace("REPLACE", "REPLACE (end of block 1)"),
    "a tag after the last mark": EDIT.replace("REPLACE\n", "REPLACE</edit>"),
    "marks in lower case": EDIT.replace("SEARCH", "search").replace("REPLACE", "Replace"),
    "marks without a blank": EDIT.replace(" SEARCH", "SEARCH").replace(" REPLACE", "REPLACE:"),
    "indented marks": EDIT.replace("<<<", "  <<<", 1).replace("===", "  ===", 1).replace(">>>", "\t>>>", 1),
    "an indented block": HEAD + "".join(f"   {line}\n" for line in block(OLD, NEW).splitlines()),
    "an indented fence": HEAD + "".join(f"  {line}\n" for line in f"```python\n{block(OLD, NEW)}```".splitlines()),
    "fences in a block": HEAD + block(f"```python\n{OLD}\n```", f"```python\n{NEW}\n```"),
    "lines of Windows": EDIT.replace("\n", "\r\n"),
    "lines of old Macs": EDIT.replace("\n", "\r"),
    "a byte order mark": f"\ufeff{EDIT}",
}  # fmt: skip


@pytest.mark.parametrize("words", WORDS)
def test_an_answer_whose_meaning_is_certain_is_read(words):
    edited = read_reply(WORDS[words], SCRIPT, NAME)
    assert (edited.script, edited.title) == (WANTED, "less smoothing")
    assert edited.hypothesis == "Counts are large."


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
    "two ideas": (f"{EDIT}TITLE: a longer warm-up\nHYPOTHESIS: It starts slowly.\n", "has two titles"),
    "two scripts": (f"{HEAD}```\n{WANTED}```\n```\n{SCRIPT}```\n", "2 code blocks"),
    "an empty title": (EDIT.replace("less smoothing", "\n"), "begins with TITLE:"),
    "a heading alone": (EDIT.replace("TITLE: less smoothing\n", "## TITLE\n\n"), "begins with TITLE:"),
    "another file for the second block": (EDIT + "FILE: prepare.py\n" + block("x", "y"), "edit train_mlx.py alone"),
    "another file after a mark": (EDIT.replace("SEARCH", "SEARCH prepare.py"), "edit train_mlx.py alone"),
    "another file after the last mark": (EDIT.replace("REPLACE", "REPLACE `prepare.py`"), "edit train_mlx.py alone"),
    "code after a mark": (EDIT.replace("SEARCH\n", "SEARCH "), "is not whole"),
    "code after the last mark": (EDIT.replace(f"{NEW}\n>>>>>>> REPLACE", f">>>>>>> REPLACE {NEW}"), "is not whole"),
    "words after the first mark": (EDIT.replace("SEARCH", "SEARCH the line of the dial"), "is not whole"),
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
        f"TITLE:{' ' * LONG}x\n{'<a> ' * (LONG // 4)}x",
        f"{'<a>' * (LONG // 3)}x\n## {'1.' * (LONG // 2)}\n{'#' * LONG}",
        f"{HEAD}```{' ' * LONG}x\n{'<<<<<<< SEARCH' * (LONG // 14)}\n",
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
    assert set(Path().iterdir()) == before  # the answer's file name was not used
