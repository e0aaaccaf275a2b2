"""A night with a language model explores in its turn: one call, three attempts, though the night ends between them."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from llm_servers import KEY, Handler, Request, Server, says
from nights import Grounds, make_repository, unigram

from agent.errors import NightError
from agent.experiment import Ask, Attempt, Status
from agent.records.journal import Journal

TAG = "night"  # its draws begin with exploring
QUICK = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off", "--tag", TAG)


def answers(request: Request, handler: Handler) -> None:
    """Three ideas where three are asked for, made of the script in the question, else nothing."""

    def turned(title: str, name: str, value: float) -> str:
        line = re.findall(rf"^{name} = .*$", request.text, re.MULTILINE)[-1]
        edit = f"<<<<<<< SEARCH\n{line}\n=======\n{name} = {value}\n>>>>>>> REPLACE\n"
        return f"TITLE: {title}\nHYPOTHESIS: It may help.\n{edit}"

    ideas = turned("sharp", "SHARPNESS", 0.9) + turned("share", "SHARE", 0.5) + turned("smooth", "SMOOTHING", 0.5)
    says(ideas if "answer with three edits" in request.text else "")(request, handler)


@dataclass(frozen=True)
class Morning:
    attempts: tuple[Attempt, ...]
    asks: tuple[Ask, ...]
    waited: bool  # ideas waited in the journal when its first part was over
    said: str
    status: str
    question: str


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def morning(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Morning:
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("modes") / "user", unigram()))
    with pytest.MonkeyPatch.context() as patch, Server(answers) as server:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        patch.setenv("OPENAI_API_KEY", KEY)
        model = ("--proposer", "llm", "--llm", server.spec("openai"))
        first = grounds.nightshift("run", "--experiments", "1", *model, *QUICK)
        assert first.returncode == 0, first.stderr
        with Journal.read(grounds.folder(TAG) / "journal.sqlite") as journal:
            waited = len(journal.waiting_ideas()) == 2
        second = grounds.nightshift("run", "--experiments", "3", *QUICK)
        assert second.returncode == 0, second.stderr
    with Journal.read(grounds.folder(TAG) / "journal.sqlite") as journal:
        asks = journal.asks()
    status = grounds.nightshift("status").stdout
    said = first.stdout + second.stdout
    return Morning(grounds.attempts(TAG), asks, waited, said, status, server.requests[0].text)


def test_the_question_tells_what_surrounds_the_night(morning):
    assert re.search(r"(?m)^- device: .*, \d+ CPU cores?, [\d.]+ GB of memory$", morning.question)
    assert re.search(r"(?m)^- corpus: .*, [\d.]+ bytes a token, rows of \d+ tokens", morning.question)
    assert "- left of the night: 1 experiment\n" in morning.question
    assert "- `prepare.batches(" in morning.question


def test_three_ideas_of_one_answer_are_tried_under_their_own_source(morning):
    assert sorted(one.proposal.title for one in morning.attempts[1:]) == ["share", "sharp", "smooth"]
    assert [ask.source for ask in morning.asks] == ["explore:toy"]
    assert "explore:toy had 3 ideas; they are tried one after the other" in morning.said


def test_no_further_question_comes_before_them_and_they_outlast_the_end_of_a_night(morning):
    assert [one.proposal.source for one in morning.attempts] == ["you", *["explore:toy"] * 3]
    assert morning.waited


def test_each_is_an_edit_of_the_script_that_was_the_best_by_then(morning):
    sharp, *later = morning.attempts[1:]
    assert (sharp.proposal.title, sharp.status) == ("sharp", Status.KEEP)
    for one in later:
        assert one.parent >= sharp.number
        assert "SHARPNESS = 0.9" in one.proposal.script


def test_the_status_shows_what_each_mode_has_brought(morning):
    assert any(line.split()[:2] == ["explore", "3"] for line in morning.status.splitlines())


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_night_killed_at_any_of_the_three_tries_each_once(grounds: Grounds, attempts: int, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Server(answers) as server:
        model = ("--proposer", "llm", "--llm", server.spec("openai"))
        night = grounds.start("run", "--experiments", "3", *model, *QUICK)
        try:
            deadline = time.monotonic() + 120
            while _numbers(grounds) <= attempts and night.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            night.kill()
            night.communicate()
        assert _numbers(grounds) > attempts
        done = grounds.nightshift("run", "--experiments", "3", *QUICK)
        assert done.returncode == 0, done.stderr
    assert sorted(one.proposal.title for one in grounds.attempts(TAG)[1:]) == ["share", "sharp", "smooth"]
    assert len(server.requests) == 1


def _numbers(grounds: Grounds) -> int:
    """How many attempts stand in the journal by now."""
    try:
        return len(grounds.attempts(TAG))
    except NightError:
        return 0
