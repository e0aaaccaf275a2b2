"""What each worker did when is a row of bars, each of which leads to its attempt."""

from dataclasses import replace

import pytest
from charted import attempt, dots, layers, links, night, tree

from agent.experiment import Kind
from agent.view.charts.workers import MOST_RUNS, workers_chart
from agent.view.facts.nouns import RunFacts

BEGAN = "2026-01-02T%02d:%02d:00Z"


def ran(worker: str, minute: int, day_later: bool = False) -> RunFacts:
    began = (BEGAN % divmod(minute, 60)).replace("01-02", "01-03" if day_later else "01-02")
    return RunFacts(7, 0, "finished", 1.0, None, None, 280.0, 20.0, None, began, None, worker)


def crew():
    """Two workers: five attempts in ten minutes, then a pause of a day."""
    return night(
        attempt(0, Kind.BASELINE, 1.2, asked_s=0, runs=(ran("gpu 10", 0), ran("gpu 9", 0))),
        attempt(1, Kind.KEPT, 1.1, "a wider MLP", asked_s=0, runs=(ran("gpu 9", 5),)),
        attempt(2, Kind.OVERTAKEN, 1.1, asked_s=0, runs=(ran("gpu 10", 5),)),
        attempt(3, Kind.CRASHED, None, asked_s=0, runs=(ran("gpu 9", 0, day_later=True),)),
    )


def test_each_worker_has_a_row_and_each_run_a_bar_in_it():
    spec = workers_chart(crew(), 800)
    bars = [(one["href"], one["y"], one["outcome"]) for one in dots(spec)]
    assert bars == [
        *(("#attempt-0", 2, "kept"), ("#attempt-0", 22, "kept"), ("#attempt-1", 2, "kept")),
        *(("#attempt-2", 22, "overtaken"), ("#attempt-3", 2, "crashed")),
    ]
    first, _, second, _, last = dots(spec)
    assert second["x"] - first["x"] == pytest.approx(last["x"] - second["x"], abs=0.5)  # a pause has no room
    assert spec["title"]["text"] == [
        "2 workers · busy for 100% of 15 min at work · 12 experiments an hour · 1 pause of the night left out"
    ]


def test_a_bar_names_its_attempt_its_worker_and_its_run():
    found = links(tree(workers_chart(crew(), 800)))
    assert found["#attempt-1"].startswith("attempt 1: a wider MLP, gpu 9, seed 7, finished after 5 min, kept, 1.100000")


def test_a_night_of_one_worker_has_no_such_chart():
    assert workers_chart(night(attempt(0, Kind.BASELINE, 1.2, runs=(ran("gpu 0", 0), ran("gpu 0", 5)))), 800) is None
    assert workers_chart(night(attempt(0, Kind.BASELINE, 1.2)), 800) is None


@pytest.mark.parametrize("width", [358, 1040])
def test_the_chart_is_no_wider_than_the_page_and_a_long_night_shows_its_end(width):
    runs = tuple(ran(f"gpu {at % 3}", 5 * (at // 3)) for at in range(200))
    many = [attempt(number, Kind.WORSE, 1.3, runs=runs) for number in range(1, 12)]
    spec = workers_chart(night(attempt(0, Kind.BASELINE, 1.2), *many), width)
    assert len(dots(spec)) == MOST_RUNS
    assert any(f"{MOST_RUNS:,} of 2,200 runs" in line for line in spec["title"]["text"])
    few = workers_chart(night(*(replace(one, runs=runs[:30]) for one in many[:1])), width)
    assert int(tree(few).attrib["width"]) <= width
    assert len(layers(few)) == 5
