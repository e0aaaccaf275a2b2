"""A night is read from its journal, and summed up."""

import pytest
from nights import make_repository
from samples import SCRIPT, record_night

from agent.errors import NightError
from agent.records.place import Place, read_night
from agent.records.summary import summary_of
from agent.view.charts import staircase


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place.of(make_repository(tmp_path_factory.mktemp("facts") / "repository", SCRIPT) / "train_mlx.py")
    record_night(place)
    return place


@pytest.fixture(scope="module")
def record(place):
    return read_night(place, "t")


def test_the_staircase_follows_the_decisions_and_rises_where_one_is_revoked(record):
    _, first, lucky, after, *_ = steps = staircase(record, 7)
    assert [step["x"] for step in steps] == [0, 1, 2, 3, 4, 7]
    assert first["y"] == after["y"] > lucky["y"]
    assert after["high"] - after["y"] < lucky["high"] - lucky["y"]  # lucky has one seed


def test_a_night_is_summed_up(record):
    now = summary_of(record)
    assert (now.kept, now.discarded, now.crashed, now.ideas, now.best.number) == (2, 2, 1, 6, 4)  # one goes on
    assert now.gain.mean_bpb == pytest.approx(1.5 - 1.3)
    proposers = {share.proposer: (share.attempts, share.kept, share.calls, share.failures) for share in now.proposers}
    assert (now.usd, proposers) == (0.75, {"search": (5, 2, 0, 0), "llm": (1, 0, 2, 1)})
    assert now.hours["asking"] == pytest.approx(12 / 3600)
    assert now.hours["other"] == pytest.approx((20 + 6) / 3600)  # a run that is repeated, and a dry run
    spent_s = sum(run.spent_s for attempt in record.attempts for run in attempt.runs)
    assert now.hours["training"] + now.hours["scoring"] + 20 / 3600 == pytest.approx(spent_s / 3600)


def test_an_unknown_night_is_refused_with_those_that_are_here(place):
    for tag in ("u", "../t", ""):
        with pytest.raises(NightError, match="known nights: t"):
            read_night(place, tag)
