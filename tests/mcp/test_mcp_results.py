"""What an agent reads of an answer is bounded and harmless."""

import json

from agent.mcp import MOST_CHARS, result_of

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
    found = bounded({"text": "a" * 100_000 + "last words", "script": "first lines" + "b" * 100_000})
    assert found["text"].endswith("last words")
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
