"""What a score costs is drawn for each cost that is known, with the best score for each."""

from dataclasses import replace

from charted import attempt, dots, every_outcome, layers, links, long_night, night, tree

from agent.experiment import Kind
from agent.view.charts.render import svg
from agent.view.charts.tradeoffs import tradeoffs_chart


def fronts(spec):
    return [
        [(value["cost"], value["bpb"]) for value in layer["data"]["values"]]
        for layer in layers(spec)
        if layer["mark"]["type"] == "line"
    ]


def scored(*costs):
    """A night of attempts with a score and the number of parameters, and with no other cost."""
    return night(
        *(
            attempt(number, Kind.WORSE if number else Kind.BASELINE, bpb, params=params, memory_gb=None, tokens_s=None)
            for number, (params, bpb) in enumerate(costs)
        )
    )


def test_the_front_is_the_best_score_for_each_cost():
    (front,) = fronts(tradeoffs_chart(scored((300, 1.0), (100, 1.2), (200, 1.3), (400, 1.1)), 800))
    assert sorted(front) == [(100, 1.2), (300, 1.0)]


def test_speed_is_better_where_it_is_higher():
    known = {"params": None, "memory_gb": None}
    pairs = enumerate([(1.0, 100.0), (1.1, 300.0), (1.2, 200.0)])
    fast = night(*(attempt(at, Kind.WORSE, bpb, tokens_s=speed, **known) for at, (bpb, speed) in pairs))
    spec = tradeoffs_chart(fast, 800)
    (front,) = fronts(spec)
    assert sorted(front) == [(100.0, 1.0), (300.0, 1.1)]


def test_each_cost_that_differs_has_a_panel_and_a_night_without_scores_has_no_chart():
    assert len(tradeoffs_chart(every_outcome(), 1100)["concat"]) == 3
    assert "concat" not in tradeoffs_chart(scored((1, 1.0), (2, 1.1)), 1100)
    assert tradeoffs_chart(night(attempt(0, None, None)), 1100) is None


def test_costs_over_decades_have_a_logarithmic_scale():
    for most, kind in ((900, "linear"), (9000, "log")):
        spec = tradeoffs_chart(scored((100, 1.0), (most, 1.1)), 800)
        (scatter,) = [layer for layer in layers(spec) if "shape" in layer["encoding"]]
        assert scatter["encoding"]["x"]["scale"]["type"] == kind


def test_attempts_are_links_and_the_unbelieved_are_on_no_front():
    spec = tradeoffs_chart(every_outcome(), 800)
    assert "#attempt-3" in links(tree(spec))
    assert "memory in GB: 0.5" in {dot["label"].split(", ")[2] for dot in dots(spec)}
    assert "not believed" in {dot["outcome"] for dot in dots(spec)}
    assert all(bpb > 1 for front in fronts(spec) for _, bpb in front)


def test_kept_attempts_lie_above_the_others():
    (panel, *_) = tradeoffs_chart(long_night(300), 800)["concat"]
    outcomes = [dot["outcome"] for dot in dots(panel)]
    assert outcomes.count("kept") > 1
    assert set(outcomes[-outcomes.count("kept") :]) == {"kept"}


def test_a_long_night_is_thinned_and_says_so():
    drawn = svg(tradeoffs_chart(long_night(900), 1100))
    assert len(drawn.encode()) < 300_000
    assert "attempts are shown" in drawn


def test_a_cost_that_is_the_same_for_all_has_no_panel():
    same = replace(every_outcome(), attempts=tuple(replace(one, params=7) for one in every_outcome().attempts))
    assert len(fronts(tradeoffs_chart(same, 500))) == 2
    assert tradeoffs_chart(scored((7, 1.0), (7, 1.1)), 500) is None


def test_every_drawing_says_which_scores_are_better():
    for shown in (every_outcome(), scored((1, 1.0), (2, 1.1))):
        assert svg(tradeoffs_chart(shown, 1100)).count(">val_bpb, lower is better") == 1
