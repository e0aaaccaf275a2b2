"""An author of scripts reads no words of a process that has read the validation text."""

import json

from agent.view.facts.json import UNSHOWN, without_scoring_words


def test_words_of_a_process_that_has_read_validation_text_are_left_out():
    audit = {"failure": "the secret text", "wrong": 1}
    run = {"seed": 0, "score": {"val_bpb": 1.0, "failure": None, "audit": audit}, "holdout": None}
    unscored = run | {"score": {"val_bpb": None, "failure": "the secret text", "audit": None}}
    held = run | {"score": None, "holdout": {"val_bpb": None, "failure": "the secret text", "audit": None}}
    whole = run | {"score": {"val_bpb": 1.0, "failure": None, "audit": audit | {"failure": None}}}
    decision = {"kind": "crashed", "words": "scoring failed: the secret text"}
    facts = {"words": decision["words"], "runs": [run, unscored, held, whole], "decisions": [decision]}
    shown = without_scoring_words(facts)
    assert "secret" not in json.dumps(shown)
    assert (shown["words"], shown["runs"][3]) == (UNSHOWN, whole)
    honest = {"words": "worse", "runs": [whole], "decisions": [{"words": "worse"}]}
    assert without_scoring_words(honest) == honest
