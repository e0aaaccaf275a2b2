"""The charts below the table say which edit stands on which, what a score costs, and where dials and hours went."""

from dataclasses import replace

import pytest
from charted import attempt, dots, every_outcome, layers, links, long_night, night, revoked, shipped, tree

from agent.experiment import Ending, Kind, Run, Score
from agent.view.charts import story
from agent.view.charts.render import SVG, svg

DRAWS = (story.lineage_chart, story.tradeoffs_chart, story.dials_chart, story.hours_chart, story.sources_chart)
HOSTILE = "</text><script>\n\u202e\x00"


def texts(spec):
    return {"".join(one.itertext()) for one in tree(spec).iter(f"{{{SVG}}}text")}


@pytest.mark.parametrize("width", [358, 820])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_chart_is_no_wider_than_the_page(draw, width):
    for one in (shipped("nov22-cpu-mix-1"), every_outcome()):
        assert int(tree(draw(one, width)).attrib["width"]) <= width


@pytest.mark.parametrize("draw", DRAWS)
def test_a_night_of_nothing_has_no_chart_and_a_long_one_is_thinned(draw):
    assert draw(night(), 820) is None
    drawn = draw(long_night(1000), 820)
    assert drawn is None or len(svg(drawn).encode()) < 200_000


# ---- the tree of kept edits ------------------------------------------------------------------------------------------


def lanes(spec):
    (values,) = [layer["data"]["values"] for layer in layers(spec) if "shape" in layer["encoding"]]
    return {int(value["href"].removeprefix("#attempt-")): value["lane"] for value in values}


def edges(spec, *, dashed=False):
    rules = [layer for layer in layers(spec) if "lane2" in str(layer["encoding"])]
    (found,) = [layer["data"]["values"] for layer in rules if ("strokeDash" in layer["mark"]) == dashed]
    return found


def test_the_best_scripts_ancestors_lie_in_one_line_and_a_revoked_edit_beside_it():
    spec = story.lineage_chart(every_outcome(), 820)
    assert lanes(spec) == {0: 0, 2: 0, 3: 0, 5: 1}
    assert {"#3 a longer warm-up", "+0.0400 · 90%", "1.2000 bpb"} <= texts(spec)
    assert links(tree(spec))["#attempt-3"] == "attempt 3, kept"


def test_branches_do_not_run_into_each_other():
    kept = attempt(5, Kind.KEPT, 1.0, gain_bpb=0.2, parent=0)
    off = [replace(revoked(number, 1.1, after=9), parent=parent) for number, parent in ((1, 0), (2, 0), (3, 1), (4, 2))]
    last = replace(revoked(6, 1.1, after=9), parent=5)
    found = lanes(story.lineage_chart(night(attempt(0, Kind.BASELINE, 1.2), *off, kept, last), 820))
    assert found == {0: 0, 1: 1, 2: 2, 3: 1, 4: 2, 5: 0, 6: 1}


def test_of_many_kept_edits_those_of_the_largest_gains_are_shown_and_joined():
    kept = [attempt(at, Kind.KEPT, 2 - at / 1000, gain_bpb=at % 7 / 1000, parent=at - 1) for at in range(1, 200)]
    spec = story.lineage_chart(night(attempt(0, Kind.BASELINE, 2.0), *kept), 820)
    assert len(lanes(spec)) == story.MOST_ROWS
    assert set(range(6, 200, 7)) < lanes(spec).keys()
    assert len(edges(spec)) == story.MOST_ROWS - 1  # each from its nearest ancestor that is shown
    assert f"{story.MOST_ROWS} of 200 kept edits" in " ".join(spec["title"]["text"])


def test_an_edit_that_was_overtaken_is_joined_to_the_one_that_merges_it():
    attempts = (
        attempt(0, Kind.BASELINE, 1.2),
        attempt(1, Kind.KEPT, 1.15, gain_bpb=0.05),
        attempt(2, Kind.OVERTAKEN, 1.16, "a wider MLP", gain_bpb=0.04),
        attempt(3, Kind.KEPT, 1.11, "a wider MLP, merged", gain_bpb=0.04, parent=1, merges=2),
        attempt(4, Kind.OVERTAKEN, 1.17, "which none merges yet", parent=0),
    )
    spec = story.lineage_chart(night(*attempts), 820)
    assert lanes(spec) == {0: 0, 1: 0, 2: 1, 3: 0}
    (merge,) = edges(spec, dashed=True)
    assert (merge["row"], merge["row2"]) == (2, 3)


# ---- what a score costs ----------------------------------------------------------------------------------------------


def fronts(spec):
    lines = [layer for layer in layers(spec) if layer["mark"]["type"] == "line"]
    return [sorted((value["cost"], value["bpb"]) for value in layer["data"]["values"]) for layer in lines]


def scored(*costs):
    """A night of attempts with a score and the number of parameters, and with no other cost."""
    return night(
        *(
            attempt(number, Kind.WORSE if number else Kind.BASELINE, bpb, costs=(None, None, params))
            for number, (params, bpb) in enumerate(costs)
        )
    )


def test_the_front_is_the_best_score_for_each_cost():
    assert fronts(story.tradeoffs_chart(scored((300, 1.0), (100, 1.2), (200, 1.3), (400, 1.1)), 820)) == [
        [(100, 1.2), (300, 1.0)]
    ]
    pairs = enumerate([(1.0, 100.0), (1.1, 300.0), (1.2, 200.0)])
    fast = night(*(attempt(at, Kind.WORSE, bpb, costs=(1, speed, 1)) for at, (bpb, speed) in pairs))
    assert fronts(story.tradeoffs_chart(fast, 820)) == [[(100.0, 1.0), (300.0, 1.1)]]  # more is better


def test_each_cost_that_differs_has_a_panel_and_the_unbelieved_are_on_no_front():
    spec = story.tradeoffs_chart(every_outcome(), 820)
    assert len(spec["concat"]) == 3
    assert "not believed" in {dot["outcome"] for dot in dots(spec)}
    assert all(bpb > 1 for front in fronts(spec) for _, bpb in front)
    assert story.tradeoffs_chart(scored((7, 1.0), (7, 1.1)), 820) is None


def test_costs_over_decades_have_a_logarithmic_scale():
    for most, kind in ((900, "linear"), (9000, "log")):
        spec = story.tradeoffs_chart(scored((100, 1.0), (most, 1.1)), 820)
        assert {layer["encoding"]["x"]["scale"]["type"] for layer in layers(spec)} == {kind}


# ---- the dials -------------------------------------------------------------------------------------------------------


def moved(*moves):
    """A night of attempts that moved the dial D, from its value at the start."""
    tried = (attempt(at, Kind.WORSE, 1.3, gain_bpb=-0.1, dials={"D": move}) for at, move in enumerate(moves, 1))
    return night(attempt(0, Kind.BASELINE, 1.2), *tried)


def test_a_move_lies_at_its_value_and_its_change_by_its_outcome():
    spec = story.dials_chart(every_outcome(), 820)
    panels = {panel["title"]["text"][0]: panel for panel in spec["concat"]}
    assert list(panels) == ["DEPTH", "MATRIX_LR"]  # the best script moved the first
    values = {dot["href"]: (dot["value"], dot["change"], dot["outcome"]) for dot in dots(panels["DEPTH"])}
    top = layers(panels["DEPTH"])[0]["encoding"]["y"]["scale"]["domain"][1]
    assert values == {
        "#attempt-1": (2, 0.02, "discarded"), "#attempt-2": (6, -0.05, "kept"), "#attempt-4": (8, top, "crashed"),
    }  # fmt: skip
    lines = [layer["mark"].get("description") for panel in spec["concat"] for layer in panel["layer"]]
    assert [words for words in lines if words] == [
        "DEPTH at the start: 4", "DEPTH in the best script: 6", "MATRIX_LR at the start: 0.04",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("moves", "kind"),
    [
        (((0.04, 0.4), (0.04, 0.004)), "log"),
        (((0.04, 0.4), (0.04, 0.0)), "linear"),
        (((4, 2), (4, None)), "point"),
        (((False, True),), "point"),
        ((("SSSL", "L"), ("SSSL", "SL")), "point"),
        ((((1, 2), (3, 4)),), "point"),
        (((1.0, float("inf")),), "point"),
        (((10**400, 5),), "point"),
    ],
)
def test_a_scale_suits_the_values_of_a_dial(moves, kind):
    spec = story.dials_chart(moved(*moves), 358)
    (scatter,) = [layer for layer in layers(spec) if "shape" in layer["encoding"]]
    assert scatter["encoding"]["x"]["scale"]["type"] == kind
    assert len(links(tree(spec))) == len(moves)


def test_of_many_dials_some_are_shown_and_the_chart_says_so():
    many = attempt(1, Kind.KEPT, 1.1, dials={f"DIAL_{at}": (1, 2) for at in range(40)})
    spec = story.dials_chart(night(attempt(0, Kind.BASELINE, 1.2), many), 820)
    assert len(spec["concat"]) == story.MOST_DIALS
    assert f"{story.MOST_DIALS} of 40 dials are shown" in spec["title"]["text"][0]


# ---- workers, hours and sources --------------------------------------------------------------------------------------


def ran(worker: str, minute: int, day: int = 2) -> Run:
    began = f"2026-01-0{day}T00:{minute:02d}:00Z"
    return Run(7, Ending.FINISHED, 0, 280.0, None, "", Score(1.0, 20.0), worker=worker, began=began)


def test_each_worker_has_a_row_and_each_run_a_bar_in_it_and_pauses_have_no_room():
    crew = night(
        attempt(0, Kind.BASELINE, 1.2, asked_s=0, runs=(ran("gpu 10", 0), ran("gpu 9", 0))),
        attempt(1, Kind.KEPT, 1.1, asked_s=0, runs=(ran("gpu 9", 5),)),
        attempt(2, Kind.CRASHED, None, asked_s=0, runs=(ran("gpu 9", 0, day=3),)),
    )
    spec = story.workers_chart(crew, 820)
    bars = [(one["href"][-1], one["worker"], one["outcome"], one["began"], one["ended"]) for one in dots(spec)]
    assert bars == [
        ("0", "gpu 9", "kept", 0, 0.08333), ("0", "gpu 10", "kept", 0, 0.08333),
        ("1", "gpu 9", "kept", 0.08333, 0.16667), ("2", "gpu 9", "crashed", 0.16667, 0.25),
    ]  # fmt: skip
    assert "1 pause of the night left out" in spec["title"]["text"][0]
    assert story.workers_chart(every_outcome(), 820) is None  # one worker


def test_each_thing_that_took_time_has_a_bar_with_its_length_in_words():
    run = Run(0, Ending.FINISHED, 0, 7200.0, None, "", Score(1.2, 1800.0))
    spec = story.hours_chart(night(attempt(0, Kind.BASELINE, 1.2, asked_s=0.0, runs=(run,))), 820)
    assert {"training", "scoring", "2 h 00 min · 80%", "30 min · 20%"} <= texts(spec)
    assert {"asking", "other"}.isdisjoint(texts(spec))


def test_sources_show_what_they_brought_and_cost_as_far_as_that_is_known():
    spec = story.sources_chart(every_outcome(), 820)
    assert {"search", "1 of 8", "0.0500", "40 min"} <= texts(spec)
    assert {"llm", "1 of 1", "6 min", "2, 1 failed", "12,000 in, 3,400 out", "$0.12"} <= texts(spec)
    free = replace(every_outcome(), asks=())
    assert {"US dollars", "tokens", "calls of a model"}.isdisjoint(texts(story.sources_chart(free, 820)))


def test_hostile_names_are_text():
    proposed = (attempt(at, Kind.KEPT, 1.0, source=f"{HOSTILE}{at}", gain_bpb=0.1) for at in range(1, 31))
    drawn = svg(story.sources_chart(night(*proposed), 820))
    drawn += svg(story.dials_chart(moved(("SSSL", HOSTILE * 50)), 358))
    drawn += svg(story.dials_chart(night(attempt(1, Kind.WORSE, 1.0, dials={HOSTILE: (1, 2)}, gain_bpb=0.1)), 820))
    assert not {"<script", "\u202e", "\x00"} & {part for part in ("<script", "\u202e", "\x00") if part in drawn}
    assert f"{story.MOST_SOURCES} of 30 sources are shown" in drawn
