"""The benchmark of the search: nights that go on where they were, and intervals that are those of the textbook."""

import json
import statistics
import sys
from pathlib import Path

import pytest
from nights import PROJECT
from scipy import stats

sys.path.insert(0, str(PROJECT / "benchmarks"))

import gains
import landscapes
import search


@pytest.mark.slow  # a night
def test_a_quick_night_is_lived_through_and_goes_on_where_it_was(tmp_path: Path, own_cache: None, capsys):
    work, flat = tmp_path / "work", tmp_path / "flat.json"
    options = ["--quick", "--arms", "search", "--judge", "greedy", "--attempts", "1", "--cores-each", "1"]
    options += ["--work", str(work), "--json", str(flat)]
    assert search.main([*options, "--report"]) == 0, "nothing is there yet, and that is no error"
    assert search.main(options) == 0
    found, log = json.loads(flat.read_text()), (work / "search-0.log").read_text()
    assert (found["search_attempts"], found["search_runs"], found["random_attempts"]) == (1, 2, 0)
    assert found["search_gain"] == pytest.approx(found["search_recorded_gain"]), "the toy has no noise"
    assert len(search.read_dawn(work / "search-0.dawn.json")) == 2
    assert search.main(options) == 0
    assert json.loads(flat.read_text()) == found
    assert (work / "search-0.log").read_text() == log, "nothing was run again"
    assert "search, 1 nights" in capsys.readouterr().out


def fresh(who: str, scores: list[float | None]) -> list[gains.Fresh]:
    return [gains.Fresh(who, seed, score, None) for seed, score in enumerate(scores)]


def test_a_nights_gain_has_welchs_interval():
    before, after = [1.00, 1.02, 0.99, 1.01], [0.95, 0.99, 0.97]
    mean = gains.gain([*fresh("baseline", [*before, None]), *fresh("champion", after)], "validation_bpb")
    assert mean is not None
    low, high = stats.ttest_ind(before, after, equal_var=False).confidence_interval(0.95)
    assert mean.value == pytest.approx(statistics.fmean(before) - statistics.fmean(after))
    assert mean.interval == pytest.approx((low, high))
    assert gains.gain(fresh("baseline", before), "validation_bpb") is None


def test_nights_are_pooled_by_what_is_known_of_each():
    one, other = gains.Mean(0.02, 0.0001, 5.0), gains.Mean(0.04, 0.0001, 5.0)
    both = gains.pooled([one, other])
    assert both is not None
    assert (both.value, both.variance, both.freedom) == pytest.approx((0.03, 0.00005, 10.0))
    assert gains.pooled([]) is None


def test_arms_are_compared_by_their_nights():
    ours, theirs = ([gains.Mean(value, 0.0, 1.0) for value in values] for values in ((0.1, 0.12), (0.05, 0.02, 0.08)))
    difference = gains.over(ours, theirs)
    assert difference is not None
    low, high = stats.ttest_ind([0.1, 0.12], [0.05, 0.02, 0.08], equal_var=False).confidence_interval(0.95)
    assert difference.interval == pytest.approx((low, high))


@pytest.mark.parametrize("arguments", [[], ["--report"], ["--work", "x", "--nights", "0"]])
def test_what_cannot_be_is_refused(arguments):
    with pytest.raises(SystemExit):
        search.parse(arguments)


def test_more_cores_than_there_are_are_refused(tmp_path: Path, capsys):
    assert search.main(["--quick", "--at-once", "1000", "--work", str(tmp_path)]) == 2
    assert "--at-once 1000 nights of 2 cores want more than" in capsys.readouterr().err


def test_simulated_nights_are_the_same_for_everybody_and_every_time(tmp_path: Path):
    flats = []
    for name in ("one.json", "other.json"):
        options = ["--quick", "--runs", "8", "--kinds", "bowl", "--arms", "search", "random", "cma"]
        assert landscapes.main([*options, "--json", str(tmp_path / name)]) == 0
        flats.append(json.loads((tmp_path / name).read_text()))
    assert flats[0] == flats[1]
    assert {"search_share", "random_share", "cma_bowl_gain", "cma_crashes"} <= flats[0].keys()


@pytest.mark.parametrize("kind", landscapes.GAINS)
def test_a_landscape_holds_what_its_kind_says(kind):
    land = landscapes.Landscape(kind, 0)
    apart = landscapes.START - land.best
    assert (land.weight * apart**2).sum() == pytest.approx(landscapes.GAINS[kind], rel=0.15)
    assert not land.crashes(landscapes.START)
