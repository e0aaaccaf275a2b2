"""The progress chart shows every attempt by its outcome, the best so far, and what dawn says."""

import pytest
from charted import attempt, changed, dots, every_outcome, layers, links, long_night, night, revoked, shipped, tree

from agent.experiment import Kind
from agent.view.charts.progress import progress_chart
from agent.view.charts.render import SVG, svg
from agent.view.charts.style import LINE, TICK, Symbol

MOST_BYTES = 400_000


def of_mark(spec, kind):
    return [layer for layer in layers(spec) if layer["mark"]["type"] == kind]


def scatters(spec):
    return [layer for layer in layers(spec) if "shape" in layer["encoding"]]


def test_every_attempt_is_a_link_that_says_what_it_is():
    found = links(tree(progress_chart(every_outcome(), 800)))
    assert sorted(found) == [f"#attempt-{number}" for number in range(10)]
    assert found["#attempt-2"] == "attempt 2, kept"
    assert found["#attempt-4"] == "attempt 4, crashed"


def test_each_outcome_has_a_shape_of_its_own():
    shapes = [(one.shape, one.fill) for one in Symbol if one.shape not in (LINE, TICK)]  # a legend's lines
    assert len(set(shapes)) == len(shapes)
    assert len({one.word for one in Symbol}) == len(Symbol)


def test_attempts_are_drawn_by_their_outcomes():
    outcomes = {dot["n"]: dot["outcome"] for dot in dots(progress_chart(every_outcome(), 800))}
    assert outcomes == {
        0: "kept", 1: "discarded", 2: "kept", 3: "kept", 4: "crashed", 5: "revoked later", 6: "not believed",
        7: "off the scale", 8: "no score", 9: "not decided yet",
    }  # fmt: skip


def test_a_legend_names_what_is_there_and_nothing_else():
    plain = progress_chart(night(attempt(0, Kind.BASELINE, 1.2), attempt(1, Kind.WORSE, 1.21)), 800)
    (channels,) = {
        tuple(layer["encoding"]["stroke"]["scale"]["domain"])
        for layer in layers(plain)
        if "stroke" in layer["encoding"]
    }
    assert channels == ("kept", "discarded", "best so far ± its noise")


def test_a_far_off_attempt_does_not_flatten_the_others():
    spec = progress_chart(every_outcome(), 800)
    (scatter,) = scatters(spec)
    low, high = scatter["encoding"]["y"]["scale"]["domain"]
    assert 1.0 < low < 1.09
    assert 1.22 < high < 1.3
    assert scatter["encoding"]["y"]["scale"]["clamp"]  # a score of 3.5 lies at the upper end


def test_the_staircase_follows_the_decisions_and_rises_where_one_is_revoked():
    (line,) = of_mark(progress_chart(every_outcome(), 800), "line")
    steps = [(value["n"], value["bpb"]) for value in line["data"]["values"]]
    assert steps == [(0, 1.2), (2, 1.15), (3, 1.11), (5, 1.09), (7, 1.11), (9, 1.11)]
    (band,) = of_mark(progress_chart(every_outcome(), 800), "area")
    first = band["data"]["values"][0]
    assert first["high"] - first["low"] == pytest.approx(2 * 1.96 * 0.004 / 3**0.5, abs=1e-5)


def test_a_revocation_says_how_long_the_attempt_was_kept():
    labels = [
        value["label"]
        for layer in of_mark(progress_chart(every_outcome(), 800), "rule")
        for value in layer["data"]["values"]
    ]
    assert "attempt 5 was kept until attempt 7, then revoked" in labels


def test_the_honest_gain_lies_below_the_first_score():
    (bar,) = of_mark(progress_chart(every_outcome(), 800), "errorbar")
    (honest,) = bar["data"]["values"]
    assert [round(honest[name], 6) for name in ("high", "bpb", "low")] == [1.13, 1.12, 1.11]
    assert honest["n"] > 9


def test_a_night_without_a_score_is_drawn_all_the_same():
    root = tree(progress_chart(night(attempt(0, None, None, "baseline")), 390))
    assert links(root) == {"#attempt-0": "attempt 0, not decided yet"}
    assert links(tree(progress_chart(night(), 390))) == {}


def test_an_incumbent_alone_has_a_scale_of_its_noise():
    apart = night(attempt(0, Kind.BASELINE, 1.2, seeds=3), attempt(1, Kind.WORSE, 1.205), attempt(2, Kind.WORSE, 9.0))
    found = {dot["n"]: dot["outcome"] for dot in dots(progress_chart(apart, 800))}
    assert found == {0: "kept", 1: "discarded", 2: "off the scale"}
    unknown = progress_chart(changed(apart, sigma_bpb=None), 800)
    assert {dot["n"]: dot["outcome"] for dot in dots(unknown)}[0] == "kept"


@pytest.mark.parametrize("width", [360, 390, 1100])
def test_a_chart_is_as_wide_as_the_page(width):
    for one in (every_outcome(), shipped("nov22-cpu-mix-1")):
        assert width - 20 <= int(tree(progress_chart(one, width)).attrib["width"]) <= width


def test_a_shipped_night_shows_what_was_revoked():
    spec = progress_chart(shipped("nov22-cpu-mix-1"), 800)
    assert {dot["n"]: dot["outcome"] for dot in dots(spec)}[1] == "revoked later"


@pytest.mark.slow
def test_a_night_of_ten_thousand_attempts_is_thinned_and_says_so():
    drawn = svg(progress_chart(long_night(10_000), 1100))
    assert len(drawn.encode()) < MOST_BYTES
    assert "300 of 9," in drawn
    assert "other attempts are shown" in drawn


def test_the_largest_gains_are_numbered_where_they_do_not_crowd():
    gains = {1: 0.1, 2: 0.9, 3: 0.1, 50: 0.2, 52: 0.1, 99: 0.3}
    rest = [attempt(at, Kind.WORSE, 2.5) for at in range(1, 100) if at not in gains]
    kept = [attempt(at, Kind.KEPT, 2 - at / 100, gain_bpb=gain) for at, gain in gains.items()]
    every = sorted([attempt(0, Kind.BASELINE, 2.0), *kept, *rest], key=lambda one: one.number)
    texts = {one.text for one in tree(progress_chart(night(*every), 1100)).iter(f"{{{SVG}}}text")}
    assert {text for text in texts if text and text.startswith("#")} == {"#2", "#50", "#99"}


def test_a_picture_that_stands_alone_names_its_night():
    texts = [
        "".join(one.itertext())
        for one in tree(progress_chart(every_outcome(), 800, titled=True)).iter(f"{{{SVG}}}text")
    ]
    assert "t · 5 min · a CPU" in texts


def test_many_kept_attempts_are_thinned_too():
    kept = [attempt(number, Kind.KEPT, 2 - number / 1000, f"edit {number}", gain_bpb=0.001) for number in range(300)]
    fallen = [revoked(300 + number, 1.05, 500) for number in range(100)]
    drawn = svg(progress_chart(night(*kept, *fallen), 1100))
    assert len(drawn.encode()) < MOST_BYTES
    assert "200 of 400 kept attempts are shown" in drawn
