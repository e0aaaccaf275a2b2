"""What an agent reads of an answer is bounded and harmless."""

import json

import pytest

from agent.mcp import MOST_CHARS, history_of, progress_words, result_of

OK = {"schema_version": 1, "error": None, "exit_code": 0}


def bounded(answer):
    return result_of(OK | answer).structured_content


def test_a_long_text_and_a_long_list_are_cut_and_say_so():
    found = bounded({"text": "x" * 10_000_000, "runs": [{"words": "y" * 50_000}] * 5000})
    assert len(found["text"]) < MOST_CHARS + 100
    assert "characters are left out]" in found["text"]
    assert found["runs"][-1] == "and 4,700 more"
    assert len(found["runs"][0]["words"]) < MOST_CHARS + 100


def test_a_log_is_cut_at_its_beginning_and_a_script_at_its_end():
    found = bounded({"log_text": "a" * 100_000 + "last words", "script": "first lines" + "b" * 100_000})
    assert found["log_text"].endswith("last words")
    assert found["script"].startswith("first lines")


def test_what_fits_is_left_as_it_is():
    answer = OK | {"script": "x = 1\n" * 2000, "rows": [1, 2.5, None, True]}
    assert bounded(answer) == answer
    assert json.loads(result_of(answer).content[0].text) == answer


def test_signs_that_cannot_be_seen_are_shown_as_codes():
    assert bounded({"title": "a\x1b[2Jb\u200bc\td\ne"})["title"] == "a\\x1b[2Jb\\u200bc\td\ne"


def test_a_refusal_has_its_sentence_first_and_the_facts_after_it():
    result = result_of(OK | {"error": "it lacks an edit", "exit_code": 2, "missing_edits": [{"attempt": 3}]})
    assert result.is_error
    assert result.content[0].text == 'it lacks an edit\n{"missing_edits": [{"attempt": 3}]}'


def test_the_history_is_short_and_compares_with_the_parent():
    row = {"status": "keep", "gain_bpb": None, "sure": None, "description": "t", "source": "you", "reason": "secret"}
    rows = [
        row | {"attempt": 0, "commit": "a", "parent": None, "val_bpb": 2.0},
        row | {"attempt": 1, "commit": "b", "parent": "a", "val_bpb": 1.5},
        row | {"attempt": 2, "commit": None, "parent": "b", "val_bpb": None},
    ]
    found = history_of(OK | {"tag": "t", "rows": rows}, limit=2)
    assert (found["tag"], found["attempts"], found["earlier"]) == ("t", 3, 1)
    assert [(one["parent"], one["gain_bpb"]) for one in found["history"]] == [(0, 0.5), (1, None)]
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"state": "waiting", "in_line": 2}, "waiting, 2 before it"),
        ({"state": "waiting", "in_line": 0}, "waiting"),
        ({"state": "running", "doing": None, "fraction": None}, "at work"),
        ({"state": "running", "doing": "training", "attempt": 3, "fraction": 0.414, "loss": 3.21},
         "training of attempt 3, 41% of its budget, loss 3.210"),
        ({"state": "running", "doing": "scoring", "attempt": 3, "loss": None}, "scoring of attempt 3"),
    ],
)  # fmt: skip
def test_progress_is_a_line(answer, words):
    assert progress_words(answer) == words
