"""How sure the gain of a night is, is said in one way, and dawn's findings come with the next command."""

from dataclasses import replace

import pytest
from charted import attempt, findings, night
from judged import findings as found_by_dawn
from judged import scored_attempt
from samples import NIGHT

from agent.experiment import Interval, Kind, Status
from agent.records.summary import summary_of
from agent.view.words import belief, dawn_lines

HISTORY = [
    scored_attempt(0, 1.0, 1.01, status=Status.KEEP, dawn=(1.0, 1.001, 0.999, 1.0)),
    scored_attempt(1, 0.9, parent=0, status=Status.KEEP, dawn=(0.9, 0.901, 0.899, 0.9)),
]
FOUND = found_by_dawn(HISTORY)


def test_a_confirmed_script_is_named_with_its_gains():
    _, _, honest, holdout, *_, last = dawn_lines(FOUND, HISTORY, NIGHT)
    assert honest.startswith("  honest gain     +0.100000 [+0.09")
    assert holdout.startswith("  on the holdout  ")
    assert last == "  the confirmed script, #1, is on experiments/30s-t-confirmed"


@pytest.mark.parametrize(
    ("honest", "words"),
    [
        (None, "not confirmed yet: too few runs; go on with: nightshift confirm t"),
        (Interval(-0.03, -0.05, -0.01), "it is worse than the baseline; experiments/30s-t-confirmed is not touched"),
        (Interval(0.02, -0.01, 0.05), "its gain may be luck; experiments/30s-t-confirmed is not touched"),
        (
            Interval(0.02, -0.01, 0.05),
            "nightshift confirm t; back to the baseline: nightshift take t:0",
        ),
    ],
)
def test_a_gain_that_is_not_confirmed_comes_with_what_to_do(honest, words):
    assert words in "\n".join(dawn_lines(replace(FOUND, honest=honest, script=None, passengers=()), HISTORY, NIGHT))


def test_what_was_kept_is_believed_as_far_as_its_interval_or_dawn_says():
    first = attempt(0, Kind.BASELINE, 1.5, seeds=3)
    clear = summary_of(night(first, attempt(1, Kind.KEPT, 1.2)))
    doubtful = summary_of(night(first, attempt(1, Kind.KEPT, 1.499)))
    nothing = summary_of(night(first, attempt(1, Kind.WORSE, 1.9)))
    unknown = summary_of(night(first, attempt(1, Kind.KEPT, 1.2), sigma_bpb=None))
    sure = findings(Interval(0.2, 0.1, 0.3), champion=1)
    for now, words in (
        (
            clear,
            "gains +0.300000 [+0.290947, +0.309053] bits per byte. The best of many attempts looks better than it is",
        ),
        (doubtful, "The interval includes zero, so all of it may be luck."),
        (nothing, "No idea has brought a gain yet."),
        (unknown, "gains +0.300000 bits per byte. How sure that is, is not known."),
        (
            replace(clear, dawn=sure),
            "on fresh seeds, #1 gains +0.200000 [+0.100000, +0.300000] bits per byte: confirmed.",
        ),
        (replace(clear, dawn=replace(sure, script=30)), "What brought nothing was taken out: #30 is confirmed."),
        (replace(clear, dawn=replace(sure, script=None)), "that may be luck, so it is not confirmed."),
        (
            replace(clear, dawn=findings(Interval(-0.2, -0.3, -0.1), champion=1, script=None)),
            "it is worse, so it",
        ),
        (summary_of(night()), ""),
    ):
        assert words in belief(now)
