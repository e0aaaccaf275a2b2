"""An author of scripts reads no words of a process that has read the validation text."""

import json

from agent.view.facts.json import UNSHOWN, without_scoring_words


def test_words_of_a_process_that_has_read_validation_text_are_left_out():
    run = {"seed": 0, "val_bpb": None, "failure": "the secret text"}
    decision = {"kind": "crashed", "words": "scoring failed: the secret text"}
    facts = {"words": decision["words"], "runs": [run, run | {"failure": None}], "decisions": [decision]}
    shown = without_scoring_words(facts)
    assert "secret" not in json.dumps(shown)
    assert (shown["words"], shown["runs"][1]["failure"]) == (UNSHOWN, None)
    honest = {"words": "worse", "runs": [run | {"failure": None}], "decisions": [{"words": "worse"}]}
    assert without_scoring_words(honest) == honest
