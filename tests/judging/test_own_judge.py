"""A judge that is named in JUDGES, and nowhere else, judges nights, and their journals are read with or without it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from commands import refused
from nights import named_options
from samples import NIGHT

from agent.errors import NightError
from agent.experiment import Attempt, Decision, History, Kind
from agent.judging.judges import JUDGES, Judge, choose_judge
from agent.records.journal import Journal
from agent.records.options import opened, resumed


@dataclass(frozen=True)
class Lenient(Judge):
    """Keep whatever has a score."""

    words: ClassVar = "whatever has a score is kept"
    calibration: int = 1

    def compared(self, attempt: Attempt, parent: Attempt, best: Attempt, history: History) -> Decision:
        return Decision(Kind.KEPT, "it has a score")


@pytest.fixture
def table(monkeypatch) -> Iterator[pytest.MonkeyPatch]:
    """Name the judge in the table, for a while."""
    with monkeypatch.context() as patch:
        patch.setitem(JUDGES, "lenient", Lenient)
        yield patch


def test_its_name_in_one_table_is_all_that_options_and_journals_need(tmp_path, table):
    options = opened(named_options("--judge", "lenient"))
    assert choose_judge(options.judge) == Lenient()
    with Journal.create(tmp_path / "journal.sqlite", replace(NIGHT, options=options)):
        pass
    table.undo()
    with Journal.read(tmp_path / "journal.sqlite") as journal:
        assert journal.night().options == options
    with pytest.raises(NightError, match="there is no judge lenient here; choose from balanced, greedy, strict"):
        resumed("t", options, {})


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_it_judges_a_night_that_goes_on_and_is_read_without_it(grounds, table):
    night = ("run", "--tag", "t", "--judge", "lenient", "--budget-s", "0.05", "--experiments", "1", "--no-report")
    done = grounds.nightshift(*night)
    assert done.returncode == 0, done.stderr
    assert "judge    lenient: whatever has a score is kept" in done.stdout
    assert grounds.nightshift("run", "--tag", "t", "--experiments", "2").returncode == 0
    table.undo()
    assert [attempt.words for attempt in grounds.attempts("t")[1:]] == ["it has a score"] * 2
    for command in ("status t", "results t", "show t:1", "export record t", "nights"):
        assert grounds.nightshift(*command.split()).returncode == 0, command
    assert refused(grounds.nightshift("run", "--tag", "t")).startswith("there is no judge lenient here; choose from ")
    assert "Choose from balanced, greedy, strict" in refused(grounds.nightshift("run", "--judge", "lenient"))
