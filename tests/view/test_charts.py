"""Charts show every attempt by its outcome, the best so far, and what the confirmation says; they are safe in a
page."""

import struct
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from samples import HOSTILE, a_run, attempt, changed, every_outcome, long_night, night

from agent.experiment import Kind
from agent.view import charts
from agent.view.charts import Symbol, dials_of, picture, progress_of, progress_spec, svg

SVG = "http://www.w3.org/2000/svg"
# A drawing may have neither scripts nor styles, nor definitions, whose names would clash with another drawing's.
ALLOWED = {f"{{{SVG}}}{name}" for name in ("svg", "g", "path", "rect", "line", "text", "tspan", "a")}


def values(spec, kind):
    """The data of all marks of a kind."""
    inner = [one for layer in spec["layer"] for one in layer.get("layer", [layer])]
    drawn = [layer["data"] for layer in inner if layer["mark"]["type"] == kind]
    return [value for data in drawn for value in data.get("values") or spec["datasets"][data["name"]]]


def trees(chart):
    return [ET.fromstring(drawing) for forms in chart.drawings for drawing in forms.values()]


def lines(tree):
    """The lines of text of a drawing."""
    return [text for one in tree.iter(f"{{{SVG}}}text") for text in one.itertext()]


def links(tree):
    return {one.attrib["href"]: one.attrib["aria-label"] for one in tree.iter(f"{{{SVG}}}a")}


def moved(*moves):
    """A night of attempts that moved the dial D, from its value at the start."""
    tried = [attempt(at, Kind.WORSE, 1.3, gain_bpb=-0.1) for at in range(1, len(moves) + 1)]
    turned = {at: {"D": move} for at, move in enumerate(moves, 1)}
    return night(attempt(0, Kind.BASELINE, 1.2), *tried, turned=turned)


def test_a_drawing_has_no_code_no_style_and_no_foreign_address_and_hostile_words_are_text(monkeypatch):
    drawings = []
    monkeypatch.setattr(charts, "png", lambda spec: drawings.append(ET.fromstring(svg(spec, {}))))
    first, *others = every_outcome().attempts
    titled = [
        replace(other, proposal=replace(other.proposal, title=title))
        for other, title in zip(others, HOSTILE, strict=True)
    ]
    turned = {other.number: {other.title: ("L", other.title)} for other in titled}
    names = {"tag": HOSTILE[1][:60], "device": HOSTILE[2]}
    hostile = changed(every_outcome(), attempts=(first, *titled), turned=turned, **names)
    picture(hostile)
    for tree in [*drawings, *trees(progress_of(hostile)), *trees(dials_of(hostile))]:
        for element in tree.iter():
            assert element.tag in ALLOWED
            assert not {"style", "class", "id"} & element.attrib.keys()
            assert not [name for name in element.attrib if name.startswith("on")]
            assert element.get("href", "#").startswith("#")
        assert (tree.get("role"), bool(links(tree))) == ("group", True)
        assert all(text.isprintable() and len(text) < 300 for text in (tree.attrib["aria-label"], *lines(tree)))


def test_every_attempt_is_a_link_that_says_what_became_of_it_and_the_legend_names_these_outcomes_alone():
    wide, narrow = trees(progress_of(every_outcome()))
    assert links(wide) == links(narrow)
    assert links(wide)["#attempt-2"] == "attempt 2, kept"
    points = values(progress_spec(every_outcome())[0], "point")
    assert {value["x"]: value["outcome"] for value in points if "outcome" in value} == {
        0: "kept", 1: "discarded", 2: "kept", 3: "kept", 4: "crashed", 5: "revoked later", 6: "not believed",
        7: "off the scale", 8: "no score", 9: "not decided yet",
    }  # fmt: skip
    plain = night(attempt(0, Kind.BASELINE, 1.2), attempt(1, Kind.WORSE, 1.21))
    assert progress_of(plain).symbols == [Symbol.KEPT, Symbol.DISCARDED, Symbol.BEST]


def test_the_staircase_rises_where_a_keep_is_revoked_and_the_honest_gain_stands_right_of_it():
    spec = progress_spec(every_outcome())[0]
    steps = [(value["x"], value["y"]) for value in values(spec, "line")]
    assert steps == [(0, 1.2), (2, 1.15), (3, 1.11), (5, 1.09), (7, 1.11), (9, 1.11)]
    first = values(spec, "area")[0]
    assert first["high"] - first["low"] == pytest.approx(2 * 1.96 * 0.004 / 3**0.5, abs=1e-5)
    (honest,) = values(spec, "rule")
    assert [round(honest[name], 6) for name in ("high", "y", "low")] == [1.13, 1.12, 1.11]
    assert honest["x"] > 9


def named(spec):
    return {param["name"]: param["value"] for param in spec["params"]}


def test_a_young_night_is_drawn_to_the_interval_of_its_best_which_is_no_block():
    runs = [a_run(seed, score) for seed, score in enumerate((2.590, 2.588, 2.593))]
    young = night(attempt(0, Kind.BASELINE, runs=runs), attempt(1, Kind.LUCK, 2.586), sigma_bpb=0.6)
    spec = progress_spec(young)[0]
    (whisker,) = spec["datasets"]["whiskers"]
    assert values(spec, "area") == []
    assert named(spec)["bottom"] < whisker["low"] < 2.0 < 3.2 < whisker["high"] < named(spec)["top"]
    assert {"0", "1"} <= set(lines(trees(progress_of(young))[0]))  # every attempt has its number
    kept_last = progress_spec(night(*(attempt(at, Kind.KEPT, 1.5 - at / 10) for at in range(9))))[0]
    *_, step, end = values(kept_last, "area")
    assert step["x"] < end["x"]  # the band of the last keep has a width


def test_an_attempt_without_a_score_lies_outside_of_the_scale_and_one_far_off_at_its_end():
    spec = progress_spec(every_outcome())[0]
    (lane,) = spec["datasets"]["lane"]
    heights = {value["outcome"]: value["y"] for value in values(spec, "point") if "outcome" in value}
    top = named(spec)["top"]
    for outcome in ("crashed", "no score", "not decided yet"):
        assert lane["y"] == top < heights[outcome] < lane["end"] == named(spec)["ceiling"]
    assert heights["off the scale"] == top
    assert max(float(label) for label in lines(trees(progress_of(every_outcome()))[0]) if "." in label) < top
    whole = progress_spec(night(attempt(0, Kind.BASELINE, 1.5), attempt(1, Kind.WORSE, 1.6)))[0]
    assert (whole["datasets"]["lane"], named(whole)["ceiling"]) == ([], named(whole)["top"])


def test_a_long_night_is_thinned_and_says_so():
    spec, words, _ = progress_spec(long_night(3000))
    assert len(svg(spec, charts.SIZES["broad"]).encode()) < 400_000
    assert words[-1].startswith("300 of 2,")
    assert words[-1].endswith(" other attempts are shown")


def test_a_picture_that_stands_alone_names_its_night_and_what_helped(monkeypatch):
    drawn = picture(every_outcome())
    assert drawn.startswith(b"\x89PNG")
    assert struct.unpack(">II", drawn[16:24]) == (2000, 880)
    monkeypatch.setattr(charts, "png", lambda spec: lines(ET.fromstring(svg(spec, {}))))
    words = {"t · 5 min · a CPU", "#2 a wider MLP", "#3 a longer warm-up", "revoked later"}
    assert words <= set(picture(every_outcome()))


def test_a_dial_has_a_panel_with_its_moves_and_those_of_the_best_script_come_first():
    drawn = dials_of(every_outcome())
    depth, rate = trees(drawn)
    assert depth.attrib["aria-label"] == "DEPTH: the change of the score"
    assert sorted(links(depth)) == ["#attempt-1", "#attempt-2", "#attempt-4"]
    assert links(rate) == {"#attempt-1": "attempt 1, discarded", "#attempt-7": "attempt 7, off the scale"}
    assert {Symbol.START, Symbol.IN_BEST} < set(drawn.symbols)
    many = changed(moved((1, 2)), turned={1: {f"DIAL_{at}": (1, 2) for at in range(40)}})
    assert f"{charts.MOST_DIALS} of 40 dials are shown" in dials_of(many).words


def test_a_dial_that_an_edit_brought_or_took_away_begins_with_its_first_value():
    assert dials_of(night()) is None
    brought = [
        attempt(0, Kind.BASELINE, 1.2, script="A = 1\n"),
        attempt(1, Kind.KEPT, 1.1, script="A = 1\nB = 2\n"),
        attempt(2, Kind.KEPT, 1.0, script="A = 1\nB = 3\n", parent=1),
    ]
    gone = attempt(3, Kind.KEPT, 0.9, script="A = 1\n", parent=2)
    for attempts, has_best in ((brought, True), ([*brought, gone], False)):
        drawn = dials_of(night(*attempts))
        (tree,) = trees(drawn)
        assert {"2", "3"} <= set(lines(tree))
        assert (Symbol.IN_BEST in drawn.symbols) is has_best


@pytest.mark.parametrize(
    "moves",
    [
        ((0.04, 0.4), (0.04, 0.0)), ((4, 2), (4, None)), ((False, True),), (("SSSL", "L"), ("SSSL", "SL")),
        (((1, 2), (3, 4)),), ((1.0, float("inf")),), ((10**400, 5),),
    ],
)  # fmt: skip
def test_every_kind_of_value_has_a_scale(moves):
    (tree,) = trees(dials_of(moved(*moves)))
    assert len(links(tree)) == len(moves)
