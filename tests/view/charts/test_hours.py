"""Bars show where the time went, and what each source of ideas brought and cost."""

from dataclasses import replace

import pytest
from charted import attempt, every_outcome, layers, night, tree

from agent.experiment import Kind
from agent.proposers.mix import Share
from agent.view.charts.hours import MOST_SOURCES, hours_chart, sources_chart
from agent.view.charts.render import SVG, svg
from agent.view.facts.nouns import RunFacts


def texts(spec):
    return {"".join(one.itertext()) for one in tree(spec).iter(f"{{{SVG}}}text")}


def bars(spec):
    drawn = [layer["data"]["values"] for layer in layers(spec) if layer["mark"]["type"] == "rect"]
    return {value["label"]: value["x2"] - value["x"] for values in drawn for value in values}


def test_each_thing_that_took_time_has_a_bar_with_its_length_in_words():
    run = RunFacts(0, 0, "finished", 1.2, None, None, 7200.0, 1800.0, None, None)
    spec = hours_chart(night(attempt(0, Kind.BASELINE, 1.2, asked_s=0.0, runs=(run,))), 800)
    found = bars(spec)
    assert list(found) == [
        "where the time went, training: 2 h 00 min · 80%",
        "where the time went, scoring: 30 min · 20%",
    ]
    training, scoring = found.values()
    assert scoring / training == pytest.approx(0.25, abs=0.01)
    assert {"training", "scoring", "2 h 00 min · 80%", "30 min · 20%"} <= texts(spec)
    assert {"asking", "other"}.isdisjoint(texts(spec))
    little = hours_chart(night(attempt(0, Kind.BASELINE, 1.2, asked_s=12.0, runs=(run,))), 800)
    assert bars(little).keys() >= {"where the time went, asking: 12 s · <1%"}


def test_a_night_that_took_no_time_has_no_chart():
    assert hours_chart(night(), 800) is None
    assert sources_chart(night(), 800) is None


def test_sources_show_what_they_brought_and_cost():
    spec = sources_chart(every_outcome(), 1100)
    assert {"kept of ideas", "gain kept, bpb", "time", "calls of a model", "tokens", "US dollars"} <= texts(spec)
    assert {"search", "1 of 6", "0.0400", "30 min"} <= texts(spec)
    assert {"llm: a model", "1 of 2", "0.0500", "12 min", "3, 1 failed", "12k in, 3,400 out", "$0.12"} <= texts(spec)
    assert bars(spec)["gain kept, bpb, search: 0.0400"] < bars(spec)["gain kept, bpb, llm: a model: 0.0500"]


def test_a_measure_that_is_known_of_no_source_has_no_panel():
    free = replace(every_outcome(), sources=every_outcome().sources[:1])
    assert {"US dollars", "tokens", "calls of a model"}.isdisjoint(texts(sources_chart(free, 1100)))


@pytest.mark.parametrize("width", [360, 1100])
def test_charts_are_no_wider_than_the_page(width):
    for spec in (hours_chart(every_outcome(), width), sources_chart(every_outcome(), width)):
        assert int(tree(spec).attrib["width"]) <= width


def test_a_hostile_source_is_text_and_many_are_cut():
    sources = [Share(f"<script>{at}\u202e\n", 3, 1, 0.1, 0.2, 0, 0, None, None, None) for at in range(30)]
    drawn = svg(sources_chart(replace(every_outcome(), sources=tuple(sources)), 800))
    assert "<script" not in drawn
    assert "\u202e" not in drawn
    assert f"{MOST_SOURCES} of 30 sources are shown" in drawn
