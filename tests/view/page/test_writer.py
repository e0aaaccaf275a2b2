"""A night's page is written beside the night, which neither waits for it nor fails with it."""

from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from charted import record_nights
from commands import wait_until
from nights import Grounds, make_repository, unigram

from agent.records.place import Place
from agent.view.page import writer
from agent.view.page.writer import PageWriter


@dataclass
class Ended:
    """A night that has ended, and the writer of its page."""

    place: Place
    said: list[str] = field(default_factory=list)
    is_hurried: bool = False
    earlier: set[psutil.Process] = field(default_factory=lambda: set(psutil.Process().children()))  # of other tests

    def writing(self) -> set[psutil.Process]:
        """Return the processes that write its page."""
        return set(psutil.Process().children()) - self.earlier

    def writer(self) -> PageWriter:
        return PageWriter(self.place, "t", self.said.append, lambda: self.is_hurried)

    @property
    def page(self) -> Path:
        return self.place.folder("t") / "report.html"


@pytest.fixture
def night(tmp_path: Path) -> Ended:
    return Ended(record_nights(tmp_path / "user", t=("LR 0.1 → 0.2", "another")))


@pytest.mark.parametrize(("is_hurried", "later"), [(False, ""), (True, ", written in a moment")])
def test_at_the_end_the_page_is_written_and_its_path_is_said(night, is_hurried, later):
    night.is_hurried = is_hurried
    with night.writer():
        pass
    assert night.said == [f"report: {night.page}{later}"]
    psutil.wait_procs(night.writing())
    assert "<h1" in night.page.read_text()


@pytest.mark.slow
def test_attempts_that_settle_one_after_another_write_one_page_at_a_time(night, monkeypatch):
    pages = night.writer()
    pages.attempt_settled()  # the night has begun just now
    assert not night.writing()
    monkeypatch.setattr(writer, "LEAST_S", 0.0)
    for _ in range(20):
        pages.attempt_settled()
        assert len(night.writing()) <= 1
    wait_until(night.page.exists)
    assert night.said == []


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_told_of_once(night, monkeypatch):
    monkeypatch.setattr(writer, "LEAST_S", 0.0)
    night.page.mkdir()
    with night.writer() as pages:
        wait_until(lambda: pages.attempt_settled() or night.said)
    (said,) = night.said
    assert said.startswith("the report was not written (")


@pytest.mark.slow
def test_a_night_writes_its_page_unless_it_is_told_not_to(tmp_path, own_cache):
    grounds = Grounds(make_repository(tmp_path / "user", unigram()))
    options = ("--proposer", "search", "--judge", "greedy", "--sandbox", "off", "--budget-s", "5", "--experiments", "1")
    for tag, words, is_there in (("t", (), True), ("u", ("--no-report",), False)):
        done = grounds.nightshift_process("run", "--tag", tag, *options, *words)
        assert done.returncode == 0, done.stderr
        page = grounds.folder(tag) / "report.html"
        assert (page.exists(), f"report: {page}" in done.stdout.splitlines()) == (is_there, is_there)
