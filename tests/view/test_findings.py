"""How sure the gain of a night is, is said in one way."""

from dataclasses import replace

import pytest
from samples import attempt, findings, night

from agent.experiment import Ending, Kind, Run, Summary
from agent.findings import EditEffect, Interval
from agent.records.summary import summary_of
from agent.view.words import belief, confirmation_lines

FIRST = attempt(0, Kind.BASELINE, 1.5, seeds=3)
CLEAR = night(FIRST, attempt(1, Kind.KEPT, 1.2))
SURE = findings(Interval(0.2, 0.1, 0.3), best=1)


@pytest.mark.parametrize(
    ("record", "confirmation", "words"),
    [
        (CLEAR, None, "gains +0.300000 [+0.290947, +0.309053] bits per byte. The best of many attempts looks better"),
        (night(FIRST, attempt(1, Kind.KEPT, 1.499)), None, "The interval includes zero, so all of it may be luck."),
        (night(FIRST, attempt(1, Kind.WORSE, 1.9)), None, "No idea has brought a gain yet."),
        (night(FIRST, attempt(1, Kind.KEPT, 1.2), sigma_bpb=None), None, "The noise is not known, so it may be luck."),
        (night(FIRST, attempt(1, Kind.KEPT, 1.2), sigma_bpb=0.0), None, "Seeds change no score here."),
        (CLEAR, SURE, "on fresh seeds, #1 gains +0.200000 [+0.100000, +0.300000] bits per byte: confirmed."),
        (CLEAR, replace(SURE, script=30), "Edits that brought nothing were removed: #30 is confirmed."),
        (CLEAR, replace(SURE, script=None), "that may be luck, so it is not confirmed."),
        (CLEAR, findings(Interval(-0.2, -0.3, -0.1), best=1, script=None), "it is worse, so it"),
        (night(), None, ""),
    ],
)
def test_what_was_kept_is_believed_as_far_as_its_interval_or_the_confirmation_says(record, confirmation, words):
    assert words in belief(replace(summary_of(record), confirmation=confirmation))


@pytest.mark.parametrize(("confirming_steps", "is_said"), [(100, False), (70, True)])
def test_confirmation_runs_that_were_slower_than_the_nights_are_counted(confirming_steps, is_said):
    def run(seed: int, steps: int, confirmation: int) -> Run:
        return Run(
            seed,
            Ending.FINISHED,
            0,
            12.0,
            Summary(training_seconds=10.0, num_steps=steps),
            "",
            confirmation=confirmation,
        )

    best = replace(CLEAR.attempts[1], runs=(run(0, 100, 0), run(1000, confirming_steps, 1)))
    lines = confirmation_lines(SURE, [FIRST, best], CLEAR.night)
    assert any("slow: 1 of 1 runs" in line for line in lines) == is_said


@pytest.mark.parametrize(("numbers", "shown"), [((1,), 0), ((1, 2), 3)])
def test_an_edit_that_is_all_of_the_best_script_gets_no_second_number_beside_the_honest_gain(numbers, shown):
    edits = tuple(EditEffect(number, Interval(0.1, 0.0, 0.2), 0.1, 2) for number in numbers)
    history = [*CLEAR.attempts, attempt(2, Kind.KEPT, 1.1)]
    lines = confirmation_lines(replace(SURE, edits=edits, dropping=Interval(-0.1, -0.2, 0.0)), history, CLEAR.night)
    assert sum(" brings " in line or " it gains " in line for line in lines) == shown
