"""What is said of an edit: first the difference that a reader can check, then what it is worth, everywhere alike."""

from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text
from samples import a_run, attempt, findings, night

from agent.experiment import Attempt, Kind, Noise
from agent.findings import EditEffect, Interval
from agent.judging.judges import Balanced
from agent.proposers.proposer import Left
from agent.records.record import Record
from agent.records.summary import confirmed_gain, lower_than_best, summary_of
from agent.text import two_digits
from agent.view.live import panel
from agent.view.page import page
from agent.view.terminal import attempt_lines, tried_lines, verdict_line
from agent.view.words import lowest_words, noise_lines, others_words, verdict_on

FIRST = attempt(0, Kind.BASELINE, 1.5, "baseline", runs=[a_run(0, 1.5), a_run(1, 1.6), a_run(2, 1.4)])
LUCKY = attempt(1, Kind.WORSE, 1.45, "lucky", gain_bpb=-0.01, sure=0.27)  # the judge's estimate is a loss
LOWER = night(FIRST, LUCKY)
KEPT = attempt(1, Kind.PROVISIONAL, 1.25, "wider", gain_bpb=0.07, sure=0.52)
HONEST = Interval(0.53, 0.4, 0.66)


def confirmed(*edits: EditEffect) -> Record:
    return night(FIRST, KEPT, attempt(2, Kind.KEPT, 1.2, "deeper", parent=1, gain_bpb=0.05, sure=0.95),
                 confirmation=replace(findings(HONEST, best=len(edits)), edits=edits))  # fmt: skip


def screens(record: Record, edit: Attempt) -> dict[str, str]:
    """What each view says of an edit and its night, in words."""
    said = {"verdict": [verdict_line(record, edit)], "table": tried_lines(record, 200, room=13)}
    said["show"] = attempt_lines(record, edit, None)
    words = {view: "\n".join(line.plain for line in lines) for view, lines in said.items()}
    return words | {"page": page(record)}


def test_a_lower_score_is_called_lower_and_luck_and_never_worse_in_any_view():
    for view, words in screens(LOWER, LUCKY).items():
        assert "luck" in words, view
        assert "0.01" not in words.replace("0.010", ""), view  # the judge's estimate, which no reader can check
        assert "worse" not in words.replace("Worse, luck", ""), view
    assert verdict_on(LOWER, LUCKY) == "luck: 0.050000 better than its parent, 27% sure of a gain"
    higher = attempt(1, Kind.LUCK, 1.52, gain_bpb=0.001, sure=0.4)  # a gain by the judge's estimate
    assert verdict_on(night(FIRST, higher), higher).startswith("worse: 0.020000 worse than its parent")


def test_the_judge_calls_what_is_lower_luck_whatever_its_estimate_is():
    first = attempt(0, Kind.BASELINE, runs=[a_run(0, 1.5), a_run(1, 1.51), a_run(2, 1.49)], settled=True)
    harmful = [attempt(at, Kind.WORSE, 1.6 + at / 1000, settled=True) for at in range(1, 12)]  # most ideas do harm
    decision = Balanced().judge(attempt(12, None, 1.4999), (first, *harmful))
    assert (decision.kind, decision.gain_bpb < 0) == (Kind.LUCK, True)


def test_what_sure_means_is_said_where_it_stands():
    for view, words in screens(LOWER, LUCKY).items():
        if view != "verdict":
            assert "how probable it is that the edit itself brings a gain; the rest is luck" in words, view


def test_after_a_confirmation_its_figure_is_the_only_one_of_an_edit_in_every_view():
    record = changed_to_one_edit()
    for view, words in screens(record, record.attempts[1]).items():
        if view != "verdict":  # the verdict was printed before
            assert "52%" not in words, view
            assert "0.53" in words, view
    assert "+0.530000" in drawn(record)


def changed_to_one_edit() -> Record:
    return night(FIRST, KEPT, confirmation=replace(findings(HONEST, best=1), edits=(EditEffect(1, HONEST, 0.01, 0),)))


def drawn(record: Record) -> str:
    console = Console(width=120, record=True)
    with console.capture() as shown:
        console.print(panel(summary_of(record), Left(None, None), []))
    return Text.from_ansi(shown.get()).plain


def test_of_several_confirmed_edits_each_has_its_own_figure_where_it_was_taken_out():
    brings = Interval(0.2, 0.1, 0.3)
    record = confirmed(EditEffect(1, brings, 0.01, 2), EditEffect(2, HONEST, 0.1, 0))
    assert [confirmed_gain(record, edit) for edit in record.attempts] == [None, brings, None]


def test_that_the_best_has_not_the_lowest_score_is_said_with_the_reason():
    assert lowest_words(LOWER) == (
        "The best, #0, has not the lowest score: #1 has 1.450000, and is not kept "
        "(luck: 0.050000 better than its parent, 27% sure of a gain)."
    )
    assert "The best, #0, has not the lowest score: #1 has 1.4500" in page(LOWER)
    simpler = night(FIRST, KEPT, attempt(2, Kind.SIMPLER, 1.3, parent=1))
    assert "#1 has 1.250000, and was kept before it (" in (lowest_words(simpler) or "")
    cheat, open_yet = attempt(2, Kind.FAILED_AUDIT, 0.1), attempt(3, None, 0.2)
    assert lower_than_best(night(FIRST, KEPT, cheat, open_yet)) is None


@pytest.mark.parametrize(
    ("sigma", "shown"),
    [(0.378195, "0.38"), (0.0037983, "0.0038"), (0.0996, "0.10"), (0.996, "1.0"), (12.34, "12"), (1e-5, "0.000010")],
)
def test_noise_has_the_two_digits_that_are_known_of_it(sigma, shown):
    assert two_digits(sigma) == shown
    assert f"σ about {shown} from" in noise_lines(Noise(sigma, 3, 1.0))[0]


def test_what_other_programs_took_is_told_by_the_seconds_of_all_runs():
    runs = [a_run(0, 1.5, wall_s=30.0, others_share=0.8), a_run(1, 1.6, wall_s=10.0, others_share=0.0), a_run(2, 1.4)]
    busy, idle = night(replace(FIRST, runs=tuple(runs))), night(replace(FIRST, runs=tuple(runs[1:])))
    now = summary_of(busy)
    assert now.others_share == pytest.approx(0.6)
    for words in (others_words(now) or "", page(busy)):
        assert "60%" in words
        assert "2.5 times as long" in words
    assert others_words(summary_of(idle)) is None
    assert summary_of(LOWER).others_share is None
