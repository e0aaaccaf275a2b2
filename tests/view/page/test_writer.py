"""A night's page is written beside the night, which neither waits for it nor fails with it."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from commands import wait_until
from made_facts import record_nights
from nights import Grounds, make_repository, unigram

from agent.records.place import Place
from agent.view.page import writer
from agent.view.page.writer import PageWriter

QUICK = ("--proposer", "search", "--judge", "greedy", "--sandbox", "off")


@dataclass
class Ended:
    """A night that has ended, and the writer of its page."""

    place: Place
    said: list[str] = field(default_factory=list)
    is_hurried: bool = False

    def writer(self) -> PageWriter:
        return PageWriter(self.place, "t", self.said.append, lambda: self.is_hurried)

    @property
    def page(self) -> Path:
        return self.place.folder("t") / "report.html"


@pytest.fixture
def night(tmp_path: Path) -> Ended:
    return Ended(record_nights(tmp_path / "user", t=("LR 0.1 → 0.2", "another")))


def children() -> dict[int, int]:
    """The processes that write a page now, each with its niceness."""
    found = {}
    for one in psutil.Process().children():  # not theirs, which look like them between fork and exec
        with suppress(psutil.NoSuchProcess):  # also one that has ended, and was not asked about yet
            if "report" in one.cmdline():
                found[one.pid] = one.nice()
    return found


def test_at_the_end_the_page_is_written_and_its_path_is_said(night):
    with night.writer():
        pass
    assert night.said == [f"report: {night.page}"]
    assert "<h1" in night.page.read_text()


@pytest.mark.slow
def test_attempts_that_follow_each_other_at_once_write_no_page(night):
    pages = night.writer()
    for _ in range(50):
        pages.attempt_settled()
    assert not children()
    assert not night.page.exists()


@pytest.mark.slow
def test_one_page_is_written_at_a_time_and_gently(night, monkeypatch):
    monkeypatch.setattr(writer, "LEAST_S", 0.0)
    monkeypatch.setattr(writer, "GENTLY", ("nice", "-n", "1"))  # with 19 it would wait for all that runs here
    gently = psutil.Process().nice() + 1
    pages, written_by = night.writer(), set[int]()
    for page in range(2):  # the second begins when the first is over

        def is_begun(before: int = page) -> bool:
            pages.attempt_settled()
            at_work = children()
            assert len(at_work) <= 1
            written_by.update(at_work)
            return len(written_by) > before and gently in at_work.values()

        wait_until(is_begun)
        for _ in range(20):  # attempts that settle meanwhile
            pages.attempt_settled()
            assert len(children()) <= 1
    wait_until(night.page.exists)
    assert night.said == []


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_told_of_once(night, monkeypatch):
    monkeypatch.setattr(writer, "LEAST_S", 0.0)
    night.page.mkdir()
    with night.writer() as pages:
        for _ in range(3):
            pages.attempt_settled()
            wait_until(lambda: not children())
    assert len(night.said) == 1
    assert night.said[0].startswith(f"the report was not written ({night.page} is a folder; name a file")
    assert night.said[0].endswith("nightshift report t")


@pytest.mark.slow
def test_a_night_that_is_ended_in_a_hurry_does_not_wait_for_its_page(night):
    night.is_hurried = True
    with night.writer():
        pass
    assert night.said == [f"report: {night.page}, written in a moment"]
    wait_until(night.page.exists)


@pytest.mark.slow
def test_a_night_writes_its_page_unless_it_is_told_not_to(tmp_path, own_cache):
    grounds = Grounds(make_repository(tmp_path / "user", unigram()))
    told = ("run", "--tag", "t", *QUICK, "--experiments")
    done = grounds.nightshift_process(*told, "1", "--budget-s", "5")
    assert done.returncode == 0, done.stderr
    page = grounds.folder("t") / "report.html"
    assert f"report: {page}" in done.stdout.splitlines()
    assert "1 idea tried" in page.read_text()
    page.unlink()
    done = grounds.nightshift_process(*told, "2", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "goes on with --no-report (it was --report)" in done.stdout
    assert not page.exists()
    short = grounds.nightshift_process("run", "--tag", "s", "--experiments", "1", *QUICK, "--budget-s", "0.05")
    assert short.returncode == 0, short.stderr
    assert not (grounds.folder("s") / "report.html").exists()
