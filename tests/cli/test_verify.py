"""The doctor verifies a machine by running it: operations, box, clocks, and a night of one experiment."""

import json
from pathlib import Path

import pytest

from agent.cli.verify import REPORT, verified


@pytest.mark.slow  # a night that trains the shipped script
def test_this_machine_passes_and_the_report_names_nobody(own_cache, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found = list(verified(budget_s=1.0))
    assert [one.name for one in found if not one.good] == [], [one.what for one in found]
    assert [one.name for one in found] == ["operations", "box", "clock", "night", "report"]
    report = json.loads(Path(REPORT).read_text())
    assert report["device"]["kind"] in ("cpu", "cuda", "metal")
    assert [one["ok"] for one in report["checks"]] == [True] * 4
    assert str(tmp_path) not in Path(REPORT).read_text()
    assert str(Path.home()) not in Path(REPORT).read_text()
