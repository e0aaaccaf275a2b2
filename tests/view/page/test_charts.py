"""Charts show every attempt by its outcome, the best so far, and what dawn says; and they are safe in a page."""

import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib.resources import files

import pytest
from charted import SVG, attempt, changed, every_outcome, long_night, night, renamed, shipped

from agent.experiment import Ending, Kind, Run, Score
from agent.view.page import charts
from agent.view.page.charts import Symbol, costs_of, dials_of, picture, progress_of, progress_spec, svg, workers_of

DRAWS = (progress_of, costs_of, dials_of, workers_of)
# neither scripts nor styles, and no definitions, whose names would clash with those of another drawing in the page
ALLOWED = {f"{{{SVG}}}{name}" for name in ("svg", "g", "path", "rect", "line", "text", "tspan", "a")}
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quoted\" 'twice' &amp; </text></svg><svg onload=alert(1)>",
    "two\ttabs\tand\na line\r\nend \x00\x1b[31m\x07",
    "long " * 2000,
    "\u202egnp.exe \u200f עברית العربية",
    "🌙🧪 👩‍🔬 emoji",
    "var(--kept) {{datum}} ${1+1} http://x.invalid/#a",
    "\ud800 half a character",
)


def progress(facts):
    return progress_spec(facts)[0]


def drawing_of(spec):
    return svg(spec, charts.SIZES["broad"])


def layers(spec):
    """The layers of a specification, those in layers as well."""
    return [inner for layer in spec["layer"] for inner in layer.get("layer", [layer])]


def values(spec, kind):
    """The data of all marks of a kind."""
    return [value for layer in layers(spec) if layer["mark"]["type"] == kind for value in layer["data"]["values"]]


def outcomes(spec):
    return {value["x"]: value["outcome"] for value in values(spec, "point") if "outcome" in value}


def trees(chart):
    return [ET.fromstring(drawing) for forms in chart.drawings for drawing in forms.values()]


def texts(chart):
    return {text for tree in trees(chart) for text in lines(tree)}


def lines(tree):
    """The lines of text of a drawing."""
    return [text for one in tree.iter(f"{{{SVG}}}text") for text in one.itertext()]


def links(tree):
    return {one.attrib["href"]: one.attrib["aria-label"] for one in tree.iter(f"{{{SVG}}}a")}


# ---- all charts ------------------------------------------------------------------------------------------------------


def crew():
    """A night of two workers, with a pause of a day."""

    def ran(worker, minute, day=2):
        began = f"2026-01-0{day}T00:{minute:02d}:00Z"
        return Run(7, Ending.FINISHED, 0, 280.0, None, "", Score(1.0, 20.0), worker=worker, began=began)

    return night(
        attempt(0, Kind.BASELINE, 1.2, asked_s=0, runs=(ran("gpu 10", 0), ran("gpu 9", 0))),
        attempt(1, Kind.KEPT, 1.1, asked_s=0, runs=(ran("gpu 9", 5),)),
        attempt(2, Kind.CRASHED, None, asked_s=0, runs=(ran("gpu 9", 0, day=3),)),
    )


@pytest.mark.parametrize("draw", DRAWS)
def test_a_drawing_has_no_code_no_style_and_no_foreign_address(draw):
    for tree in trees(draw(crew() if draw is workers_of else every_outcome())):
        for element in tree.iter():
            assert element.tag in ALLOWED
            assert not {"style", "class", "id"} & element.attrib.keys()
            assert not [name for name in element.attrib if name.startswith("on")]
            assert element.get("href", "#").startswith("#")
        assert tree.get("role") == "group"
        assert tree.get("aria-label")
        assert links(tree)


def test_hostile_titles_and_names_are_text(monkeypatch):
    pairs = zip(every_outcome().attempts, [*HOSTILE, *HOSTILE], strict=False)
    titled = tuple(renamed(one, title=title) for one, title in pairs)
    workers = [
        replace(one, runs=tuple(replace(run, worker=HOSTILE[one.number]) for run in one.runs))
        for one in crew().attempts
    ]
    turned = {one.number: {one.title: ("L", one.title)} for one in titled}
    dials = dials_of(changed(every_outcome(), attempts=titled, turned=turned))
    charts_of_names = dials, workers_of(night(*workers))
    drawings = []
    monkeypatch.setattr(charts, "png", lambda spec: drawings.append(ET.fromstring(svg(spec, {}))))
    for title in HOSTILE:
        picture(changed(every_outcome(), tag=title[:60], device=title, attempts=titled))
    for tree in [*drawings, *(tree for chart in charts_of_names for tree in trees(chart))]:
        assert {one.tag for one in tree.iter()} <= ALLOWED
        assert not [one for one in tree.iter() if any(name.startswith("on") for name in one.attrib)]
        said = [tree.attrib["aria-label"], *lines(tree)]
        assert all(text.isprintable() and "\u202e" not in text for text in said)
        assert max(map(len, said)) < 300


def test_words_and_marks_stand_out_from_the_paper_in_light_and_dark():
    def luminance(colour):
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue  # by WCAG 2

    style = files("agent.view.page").joinpath("page.css").read_text(encoding="utf-8")
    named = {symbol.colour[6:-1] for symbol in Symbol} | {"ink", "soft"}
    for part in style.split("prefers-color-scheme: dark", 1):
        colours = dict(reversed(re.findall(r"--(\w+): (#\w{6});", part)))
        paper = luminance(colours["paper"])
        for role in named:
            dark, light = sorted((paper, luminance(colours[role])))
            assert (light + 0.05) / (dark + 0.05) >= (4.5 if role in ("ink", "soft") else 3), role


@pytest.mark.parametrize("draw", DRAWS)
def test_a_night_of_nothing_has_no_chart_and_a_long_one_is_thinned(draw):
    assert draw(night()) is None
    drawn = draw(long_night(1000))
    assert drawn is None or sum(len(one.encode()) for forms in drawn.drawings for one in forms.values()) < 400_000


# ---- progress --------------------------------------------------------------------------------------------------------


def test_every_attempt_is_a_link_that_says_what_it_is():
    wide, narrow = trees(progress_of(every_outcome()))
    assert links(wide) == links(narrow)
    assert sorted(links(wide)) == [f"#attempt-{number}" for number in range(10)]
    assert links(wide)["#attempt-2"] == "attempt 2, kept"
    assert links(wide)["#attempt-4"] == "attempt 4, crashed"


def test_attempts_are_drawn_by_their_outcomes_and_the_legend_names_these_alone():
    assert outcomes(progress(every_outcome())) == {
        0: "kept", 1: "discarded", 2: "kept", 3: "kept", 4: "crashed", 5: "revoked later", 6: "not believed",
        7: "off the scale", 8: "no score", 9: "not decided yet",
    }  # fmt: skip
    assert outcomes(progress(shipped("nov22-cpu-mix-1")))[1] == "revoked later"
    plain = progress_of(night(attempt(0, Kind.BASELINE, 1.2), attempt(1, Kind.WORSE, 1.21)))
    assert plain.symbols == [Symbol.KEPT, Symbol.DISCARDED, Symbol.BEST]


def test_a_far_off_attempt_does_not_flatten_the_others():
    low, high = progress(every_outcome())["encoding"]["y"]["scale"]["domain"]
    assert 1.0 < low < 1.09
    assert 1.22 < high < 1.3
    apart = night(attempt(0, Kind.BASELINE, 1.2, seeds=3), attempt(1, Kind.WORSE, 1.205), attempt(2, Kind.WORSE, 9.0))
    assert outcomes(progress(apart)) == {0: "kept", 1: "discarded", 2: "off the scale"}
    assert outcomes(progress(changed(apart, sigma_bpb=None)))[0] == "kept"


def test_the_staircase_follows_the_decisions_and_rises_where_one_is_revoked():
    steps = [(value["x"], value["y"]) for value in values(progress(every_outcome()), "line")]
    assert steps == [(0, 1.2), (2, 1.15), (3, 1.11), (5, 1.09), (7, 1.11), (9, 1.11)]
    first = values(progress(every_outcome()), "area")[0]
    assert first["high"] - first["low"] == pytest.approx(2 * 1.96 * 0.004 / 3**0.5, abs=1e-5)


def test_a_revocation_and_the_honest_gain_are_told():
    revocation, honest = values(progress(every_outcome()), "rule")
    assert revocation["label"] == "attempt 5 was kept until attempt 7, then revoked"
    assert [round(honest[name], 6) for name in ("high", "y", "low")] == [1.13, 1.12, 1.11]
    assert honest["x"] > 9


def test_a_night_without_a_score_has_no_progress():
    assert progress_of(night(attempt(0, None, None, "baseline"))) is None


def test_the_largest_gains_are_numbered_above_the_plot_and_have_room():
    kept = [attempt(at, Kind.KEPT, 2 - at / 100, gain_bpb=at / 100) for at in range(1, 100)]
    labels = [text for text in texts(progress_of(night(attempt(0, Kind.BASELINE, 2.0), *kept))) if text[0] == "#"]
    assert "#99" in labels or "#88" in labels
    assert 2 <= len(set(labels)) < 12  # of twelve side by side


def test_a_night_of_ten_thousand_attempts_is_thinned_and_says_so():
    drawn = drawing_of(progress(long_night(10_000)))
    assert len(drawn.encode()) < 400_000
    assert "300 of 9," in drawn
    assert "other attempts are shown" in drawn


def test_a_picture_that_stands_alone_names_its_night_and_what_helped(monkeypatch):
    drawn = picture(every_outcome())
    assert drawn.startswith(b"\x89PNG")
    assert struct.unpack(">II", drawn[16:24]) == (2000, 880)
    monkeypatch.setattr(charts, "png", lambda spec: lines(ET.fromstring(svg(spec, {}))))
    assert {"t · 5 min · a CPU", "#2 a wider MLP", "#3 a longer warm-up", "revoked later"} <= set(
        picture(every_outcome())
    )


# ---- what a score costs ----------------------------------------------------------------------------------------------


def scored(*costs):
    """A night of attempts with a score and the number of parameters, and with no other cost."""
    return night(
        *(
            attempt(number, Kind.WORSE if number else Kind.BASELINE, bpb, costs=(None, None, params))
            for number, (params, bpb) in enumerate(costs)
        )
    )


def test_the_front_has_a_dot_for_each_attempt_that_no_other_beats():
    pairs = enumerate([(1.0, 100.0), (1.1, 300.0), (1.2, 200.0)])
    fast = (attempt(at, Kind.WORSE, bpb, costs=(1, speed, 1)) for at, (bpb, speed) in pairs)
    for facts in (scored((300, 1.0), (100, 1.2), (200, 1.3), (400, 1.1)), night(*fast)):  # more speed is better
        (tree,) = trees(costs_of(facts))
        assert len([one for one in tree.iter(f"{{{SVG}}}path") if one.get("fill") == "var(--ink)"]) == 2


# ---- the dials -------------------------------------------------------------------------------------------------------


def moved(*moves):
    """A night of attempts that moved the dial D, from its value at the start."""
    tried = (attempt(at, Kind.WORSE, 1.3, gain_bpb=-0.1, dials={"D": move}) for at, move in enumerate(moves, 1))
    return night(attempt(0, Kind.BASELINE, 1.2), *tried)


def test_a_dial_has_a_panel_with_its_moves_and_those_of_the_best_script_come_first():
    drawn = dials_of(every_outcome())
    depth, rate = trees(drawn)
    assert depth.attrib["aria-label"] == "DEPTH: the change of val_bpb"
    assert links(depth) == {
        "#attempt-1": "attempt 1, discarded", "#attempt-2": "attempt 2, kept", "#attempt-4": "attempt 4, crashed",
    }  # fmt: skip
    assert links(rate) == {"#attempt-1": "attempt 1, discarded", "#attempt-7": "attempt 7, off the scale"}
    assert {Symbol.START, Symbol.IN_BEST} < set(drawn.symbols)


@pytest.mark.parametrize(
    "moves",
    [
        ((0.04, 0.4), (0.04, 0.004)),
        ((0.04, 0.4), (0.04, 0.0)),
        ((4, 2), (4, None)),
        ((False, True),),
        (("SSSL", "L"), ("SSSL", "SL")),
        (((1, 2), (3, 4)),),
        ((1.0, float("inf")),),
        ((10**400, 5),),
    ],
)
def test_every_kind_of_value_has_a_scale(moves):
    (tree,) = trees(dials_of(moved(*moves)))
    assert len(links(tree)) == len(moves)


def test_of_many_dials_some_are_shown_and_the_chart_says_so():
    many = attempt(1, Kind.KEPT, 1.1, dials={f"DIAL_{at}": (1, 2) for at in range(40)})
    drawn = dials_of(night(attempt(0, Kind.BASELINE, 1.2), many))
    assert len(drawn.drawings) == charts.MOST_DIALS
    assert f"{charts.MOST_DIALS} of 40 dials are shown" in drawn.words


# ---- the workers -----------------------------------------------------------------------------------------------------


def test_each_worker_has_a_row_and_each_run_a_bar_and_pauses_have_no_room():
    drawn = workers_of(crew())
    assert {"gpu 9", "gpu 10"} <= texts(drawn)
    assert "1 pause of the night left out" in drawn.words
    wide, _ = trees(drawn)
    named = [one.attrib["aria-label"] for one in wide.iter(f"{{{SVG}}}a")]
    assert named[0] == "attempt 0, seed 7, finished after 5 min"
    assert len(named) == 4
    assert workers_of(every_outcome()) is None  # one worker
