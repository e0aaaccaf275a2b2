"""The chart of the dials shows where each was moved, and what came of it."""

import pytest
from charted import attempt, dots, every_outcome, layers, links, long_night, night, shipped, tree

from agent.experiment import Kind
from agent.view.charts.dials import MOST_DIALS, dials_chart
from agent.view.charts.render import svg


def panels(spec):
    """Return the panels by the names of their dials."""
    return {panel["title"]["text"]: panel for panel in spec.get("concat", [spec])}


def channel(panel):
    (scatter,) = [layer for layer in panel["layer"] if "shape" in layer["encoding"]]
    return scatter["encoding"]["x"]


def moved(*moves):
    """A night of attempts that moved the dial D, from its value at the start."""
    before = moves[0][0]
    tried = (attempt(at, Kind.WORSE, 1.3, gain_bpb=-0.1, dials={"D": move}) for at, move in enumerate(moves, 1))
    assert all(move[0] == before for move in moves)
    return night(attempt(0, Kind.BASELINE, 1.2), *tried)


def test_each_moved_dial_has_a_panel_and_those_that_the_best_script_moved_come_first():
    assert list(panels(dials_chart(every_outcome(), 800))) == ["DEPTH", "MATRIX_LR"]


def test_a_move_lies_at_its_value_and_its_change_by_its_outcome():
    values = {dot["href"]: dot for dot in dots(panels(dials_chart(every_outcome(), 800))["DEPTH"])}
    assert {href: (dot["value"], dot["outcome"]) for href, dot in values.items()} == {
        "#attempt-1": (2, "discarded"), "#attempt-2": (6, "kept"), "#attempt-4": (8, "crashed"),
    }  # fmt: skip
    assert (values["#attempt-1"]["bpb"], values["#attempt-2"]["bpb"]) == (0.02, -0.05)
    assert values["#attempt-4"]["bpb"] > 0.02  # at the upper edge
    assert "4 → 2 with 1 other dial" in values["#attempt-1"]["label"]


def test_lines_mark_the_value_at_the_start_and_in_the_best_script():
    found = panels(dials_chart(every_outcome(), 800))
    lines = {name: [layer["mark"].get("description") for layer in panel["layer"]] for name, panel in found.items()}
    assert [words for words in lines["DEPTH"] if words] == ["DEPTH at the start: 4", "DEPTH in the best script: 6"]
    assert [words for words in lines["MATRIX_LR"] if words] == ["MATRIX_LR at the start: 0.04"]


@pytest.mark.parametrize(
    ("moves", "kind"),
    [
        (((0.04, 0.4), (0.04, 0.004)), "log"),
        (((0.04, 0.4), (0.04, 0.0)), "linear"),
        (((4, 2), (4, 8)), "linear"),
        (((4, 2), (4, None)), "point"),
        (((False, True),), "point"),
        ((("SSSL", "L"), ("SSSL", "SL")), "point"),
        ((((1, 2), (3, 4)),), "point"),
        (((1.0, float("inf")),), "point"),
        (((10**400, 5),), "point"),
    ],
)
def test_a_scale_suits_the_values(moves, kind):
    spec = dials_chart(moved(*moves), 400)
    assert channel(spec)["scale"]["type"] == kind
    assert len(links(tree(spec))) == len(moves)


def test_a_hostile_value_is_text():
    drawn = svg(dials_chart(moved(("SSSL", "</text><script>\n\u202e" * 50)), 400))
    assert "<script" not in drawn
    assert "\u202e" not in drawn


def test_a_night_without_a_move_has_no_chart():
    assert dials_chart(night(attempt(0, Kind.BASELINE, 1.2)), 400) is None


@pytest.mark.parametrize("width", [360, 1100])
def test_a_chart_is_as_wide_as_the_page(width):
    drawn = tree(dials_chart(shipped("nov22-cpu-search-1"), width))
    assert width - 60 <= int(drawn.attrib["width"]) <= width


@pytest.mark.slow
def test_many_moves_are_thinned_and_the_chart_says_so():
    drawn = svg(dials_chart(long_night(10_000), 1100))
    assert len(drawn.encode()) < 400_000
    assert "moves are shown" in drawn


def test_of_many_dials_some_are_shown_and_the_chart_says_so():
    many = attempt(1, Kind.KEPT, 1.1, dials={f"DIAL_{at}": (1, 2) for at in range(40)})
    spec = dials_chart(night(attempt(0, Kind.BASELINE, 1.2), many), 1100)
    assert len(spec["concat"]) == MOST_DIALS
    assert f"{MOST_DIALS} of 40 dials are shown" in spec["title"]["text"][0]


def test_kept_moves_are_shown_in_a_long_night_too():
    one = long_night(3000)
    kept = {f"#attempt-{each.number}" for each in one.attempts if each.status == "keep" and each.dials}
    assert kept
    assert kept <= {dot["href"] for dot in dots(dials_chart(one, 1100))}


def test_all_panels_share_the_vertical_scale():
    scales = {
        tuple(layer["encoding"]["y"]["scale"]["domain"])
        for layer in layers(dials_chart(every_outcome(), 800))
        if "y" in layer["encoding"]
    }
    assert len(scales) == 1
