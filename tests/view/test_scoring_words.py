"""An author of scripts reads no words of a process that has read the validation text."""

import json
from dataclasses import replace

from charted import an_attempt

from agent.experiment import Audit, Ending, Kind, Run, Score
from agent.view.answer import UNSHOWN, for_author, plain

SECRET = "the secret text"


def test_words_of_a_process_that_has_read_validation_text_are_left_out():
    audit = Audit(4, 1.0, 2.0, SECRET)
    run = Run(0, Ending.FINISHED, 0, 300.0, None, f"the log quotes {SECRET}", Score(1.0, 2.0, audit=audit))
    unscored, held = replace(run, score=Score(None, 2.0, SECRET)), replace(run, holdout=Score(None, 2.0, SECRET))
    whole = replace(run, score=Score(1.0, 2.0, audit=replace(audit, failure=None)))
    for failed in (run, unscored, held):
        shown = for_author(an_attempt(failed, whole, kind=Kind.CRASHED, words=f"scoring failed: {SECRET}"))
        assert "secret" not in json.dumps(plain(shown))
        assert (shown.words, shown.decisions[0].reason, shown.runs[1]) == (UNSHOWN, UNSHOWN, whole)
    honest = an_attempt(whole, words="worse")
    assert for_author(honest) == honest
    assert "secret" not in json.dumps(plain(honest))  # the end of a log is in no answer
