"""The tree of kept edits runs from the baseline to the best script, with branches for what was revoked."""

from dataclasses import replace

import pytest
from charted import attempt, every_outcome, layers, links, night, revoked, shipped, tree

from agent.experiment import Kind
from agent.view.charts.lineage import LANE_PX, MOST_ROWS, lineage_chart


def nodes(spec):
    """Return the row and the lane of each edit."""
    (values,) = [layer["data"]["values"] for layer in layers(spec) if "shape" in layer["encoding"]]
    lanes = [(value["href"].removeprefix("#attempt-"), int(value["x"] // LANE_PX)) for value in values]
    return {number: (index, lane) for index, (number, lane) in enumerate(lanes)}


def edges(spec):
    (values,) = [layer["data"]["values"] for layer in layers(spec) if layer["mark"]["type"] == "rule"]
    return values


def test_the_best_scripts_ancestors_lie_in_one_line_and_a_revoked_edit_beside_it():
    assert nodes(lineage_chart(every_outcome(), 800)) == {"0": (0, 0), "2": (1, 0), "3": (2, 0), "5": (3, 1)}


def test_branches_do_not_run_into_each_other():
    kept = attempt(5, Kind.KEPT, 1.0, gain_bpb=0.2, parent=0)
    off = [replace(revoked(number, 1.1, after=9), parent=parent) for number, parent in ((1, 0), (2, 0), (3, 1), (4, 2))]
    last = replace(revoked(6, 1.1, after=9), parent=5)
    spec = lineage_chart(night(attempt(0, Kind.BASELINE, 1.2), *off, kept, last), 800)
    lanes = {number: lane for number, (_, lane) in nodes(spec).items()}
    assert lanes == {"0": 0, "1": 1, "2": 2, "3": 1, "4": 2, "5": 0, "6": 1}
    assert len(edges(spec)) == 6 + 3  # one line each, and a turn for each that begins a branch


def test_a_legend_of_one_outcome_is_left_out():
    kept = night(attempt(0, Kind.BASELINE, 1.2), attempt(1, Kind.KEPT, 1.1, gain_bpb=0.1))
    for one, there in ((kept, False), (every_outcome(), True)):
        (nodes,) = [layer for layer in layers(lineage_chart(one, 800)) if "shape" in layer["encoding"]]
        assert (nodes["encoding"]["shape"]["legend"] is not None) == there


def test_gains_are_bars_and_digits_with_their_certainty():
    spec = lineage_chart(every_outcome(), 800)
    (bars,) = [layer["data"]["values"] for layer in layers(spec) if layer["mark"]["type"] == "rect"]
    lengths = {value["label"]: round(value["x2"] - value["x"]) for value in bars}
    assert list(lengths) == [
        "gain of attempt 2: +0.0500 · 99%", "gain of attempt 3: +0.0400 · 90%", "gain of attempt 5: +0.1100",
    ]  # fmt: skip
    first, second, third = lengths.values()
    assert second / first == pytest.approx(0.8, abs=0.02)
    assert third / first == pytest.approx(2.2, abs=0.05)


def test_every_edit_is_a_link_with_words():
    found = links(tree(lineage_chart(every_outcome(), 360)))
    assert found["#attempt-3"] == "attempt 3: a longer warm-up, kept, 1.110000 bpb, gain +0.040000, 90% sure"


def test_a_night_that_kept_nothing_has_no_tree():
    assert lineage_chart(night(attempt(0, Kind.BASELINE, 1.2), attempt(1, Kind.WORSE, 1.3)), 800) is None
    assert lineage_chart(night(), 800) is None


@pytest.mark.parametrize("width", [360, 1100])
def test_a_chart_is_no_wider_than_the_page(width):
    for one in (shipped("nov22-cpu-mix-1"), every_outcome()):
        assert int(tree(lineage_chart(one, width)).attrib["width"]) <= width


def test_a_long_night_shows_the_largest_gains_and_says_so():
    kept = [attempt(at, Kind.KEPT, 2 - at / 1000, gain_bpb=at % 7 / 1000, parent=at - 1) for at in range(1, 200)]
    spec = lineage_chart(night(attempt(0, Kind.BASELINE, 2.0), *kept), 800)
    shown = nodes(spec)
    assert len(shown) == MOST_ROWS
    assert "0" in shown
    assert all(number in shown for number in map(str, range(6, 200, 7)))
    assert len(edges(spec)) == MOST_ROWS - 1  # each from its nearest ancestor that is shown
    assert f"{MOST_ROWS} of 200 of them" in " ".join(spec["title"]["text"])


def test_an_edit_that_was_overtaken_is_joined_to_the_one_that_merges_it():
    attempts = (
        attempt(0, Kind.BASELINE, 1.2),
        attempt(1, Kind.KEPT, 1.15, gain_bpb=0.05),
        attempt(2, Kind.OVERTAKEN, 1.16, "a wider MLP", gain_bpb=0.04, merged_as=3),
        attempt(3, Kind.KEPT, 1.11, "a wider MLP, merged", gain_bpb=0.04, parent=1, merges=2),
        attempt(4, Kind.OVERTAKEN, 1.17, "which none merges yet", parent=0),
    )
    spec = lineage_chart(night(*attempts), 800)
    assert nodes(spec) == {"0": (0, 0), "1": (1, 0), "2": (2, 1), "3": (3, 0)}
    (dashed,) = [layer for layer in layers(spec) if "strokeDash" in layer["mark"]]
    down, across = dashed["data"]["values"]
    assert (down["x"], across["x2"]) == (1.5 * LANE_PX, 0.5 * LANE_PX)
    found = links(tree(spec))
    assert found["#attempt-2"].startswith("attempt 2: a wider MLP, overtaken, merged as attempt 3, ")
    assert found["#attempt-3"].startswith("attempt 3: a wider MLP, merged, kept, merges attempt 2, ")
