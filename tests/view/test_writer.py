"""A night's page is written beside the night, which neither waits for it nor fails with it."""

from pathlib import Path

import psutil
import pytest
from commands import wait_until
from samples import record_nights

from agent.records.place import Place
from agent.view import writer
from agent.view.writer import PageWriter


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return record_nights(tmp_path / "user", t=("LR 0.1 → 0.2", "another"))


def page_of(place: Place) -> Path:
    return place.folder("t") / "report.html"


@pytest.mark.parametrize(("is_hurried", "later"), [(False, ""), (True, ", written in a moment")])
def test_at_the_end_the_page_is_written_and_its_path_is_said(place, is_hurried, later):
    said: list[str] = []
    with PageWriter(place, "t", said.append, lambda: is_hurried):
        pass
    assert said == [f"report: {page_of(place)}{later}"]
    wait_until(page_of(place).exists)
    assert "<h1" in page_of(place).read_text()


@pytest.mark.slow
def test_attempts_that_settle_one_after_another_write_one_page_at_a_time(place, monkeypatch):
    said: list[str] = []
    earlier = set(psutil.Process().children())  # other tests have children, too
    pages = PageWriter(place, "t", said.append, lambda: False)
    pages.record_changed()  # the night has begun just now
    assert not set(psutil.Process().children()) - earlier
    monkeypatch.setattr(writer, "LEAST_S", 0.0)
    for _ in range(20):
        pages.record_changed()
        assert len(set(psutil.Process().children()) - earlier) <= 1
    wait_until(page_of(place).exists)
    assert said == []


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_told_of_once(place, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(writer, "LEAST_S", 0.0)
    page_of(place).write_text("of the user")
    with PageWriter(place, "t", said.append, lambda: False) as pages:
        wait_until(lambda: pages.record_changed() or said)
    (sentence,) = said
    assert sentence.startswith("the report was not written (")


@pytest.mark.slow
def test_a_night_writes_its_page_unless_it_is_told_not_to(grounds):
    options = ("--proposer", "search", "--judge", "greedy", "--sandbox", "off", "--budget-s", "5", "--experiments", "1")
    for tag, words, is_there in (("t", (), True), ("u", ("--no-report",), False)):
        done = grounds.nightshift_process("run", "--tag", tag, *options, *words)
        assert done.returncode == 0, done.stderr
        page = grounds.folder(tag) / "report.html"
        assert (page.exists(), f"report: {page}" in done.stdout.splitlines()) == (is_there, is_there)
        assert not is_there or "data-again-s" not in page.read_text()  # the last one loads nothing newer
