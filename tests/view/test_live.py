"""The live view in real pseudo-terminals, over real nights."""

import json
import re
import signal

import pytest
from commands import wait_until
from nights import Grounds, command, unigram
from samples import record_nights
from terminals import Terminal

from agent.experiment import Kind
from agent.night.lock import is_held, only_night

pytestmark = pytest.mark.usefixtures("own_cache")


def verdicts(terminal: Terminal) -> list[str]:
    return [line for line in terminal.lines() if re.match(r"#\d+ · ", line)]


@pytest.mark.slow
def test_a_night_is_shown_on_its_terminal_and_by_watch_in_another_process(grounds):
    options = (
        "--proposer",
        "search",
        "--experiments",
        "1",
        "--judge",
        "greedy",
        "--hours",
        "1",
        "--confirmation-runs",
        "0",
    )
    run = command("run", *options, "--budget-s", "1.2", "--tag", "t", "--sandbox", "off")
    with Terminal.of(run, grounds.root, columns=80, rows=40) as night:
        begun = "#0 baseline", "1,000,000 tokens/s"
        wait_until(lambda: night.has_shown(*begun) and grounds.attempts("t")[0].runs, 120)  # both see the run
        night.process.send_signal(signal.SIGSTOP)  # until the other process has begun to watch
        with Terminal.of(command("status", "--follow"), grounds.root, columns=140, rows=30) as watch:
            wait_until(lambda: watch.has_shown("#0 baseline"), 120)
            night.process.send_signal(signal.SIGCONT)
            assert night.to_the_end() == 0
            assert watch.to_the_end() == 0
    shown = night.lines()
    assert next(at for at, line in enumerate(shown) if line.startswith("#0 · ")) <= 12  # half of a usual terminal
    assert night.has_shown("training, seed 0 · #0 baseline", "s left · 1,000,000 tokens/s")
    assert night.has_shown("#1 SHARE", "best    #0 val_bpb", "0 kept", "0 experiments · ")
    assert watch.has_shown("best    #", " kept · ", "left    ")
    for terminal, last in ((night, "next:"), (watch, "night t has ended; see:")):
        assert not any(set(line) == {"─"} for line in terminal.lines())  # the panel is gone
        assert last in "\n".join(terminal.lines())
    (_, folded), (_, wide) = verdicts(night), verdicts(watch)
    assert wide.startswith(" ".join(folded.split()))


# ---- a try that waits ------------------------------------------------------------------------------------------------


@pytest.fixture
def busy(tmp_path):
    """A repository in which a night runs, by this process, and an edit that can be tried."""
    place = record_nights(tmp_path / "repository", t=())
    place.script_path.write_text(unigram(SHARPNESS=0.9))
    with only_night(place.repo.common_dir) as tell:
        tell("t", place.folder("t"))
        yield place.repo.root


def test_who_waits_for_a_try_on_a_terminal_sees_the_night_and_what_ctrl_c_does(busy):
    with Terminal.of(command("try", "-m", "sharper", "--tag", "t"), busy, columns=80, rows=24) as waiting:
        told = "t0001 is in the queue; before it: what night t runs now", "try --wait", "best    #0 val_bpb 1.500000"
        wait_until(lambda: waiting.has_shown(*told), 60)
        waiting.process.send_signal(signal.SIGINT)
        assert waiting.to_the_end() == 130
    assert "no verdict yet, and the try stays in the queue" in " ".join("\n".join(waiting.lines()).split())
    assert not any(set(line) == {"─"} for line in waiting.lines())  # the panel is gone
    assert Grounds(busy).nightshift("try", "--wait", "t0001", "--for", "0.1").stdout.startswith("t0001: waiting")


def test_for_a_program_the_waiting_for_a_try_is_silent(busy):
    words = "try", "-m", "sharper", "--tag", "t", "--for", "2", "--json"
    with Terminal.of(command(*words), busy, columns=80, rows=40) as program:
        assert program.to_the_end() == 0
    facts = json.loads("".join(program.lines()))
    assert (facts["state"], facts["exit_code"]) == ("waiting", 0)
    assert not program.has_shown("best    ")
    piped = Grounds(busy).nightshift("try", "--wait", "t0001", "--for", "2").stdout
    assert len(piped.splitlines()) == 2


@pytest.mark.slow
def test_a_try_that_opens_a_night_shows_it_and_goes_on_after_ctrl_c(grounds):
    (grounds.root / "train_mlx.py").write_text(unigram(SHARPNESS=0.9))
    words = command("try", "-m", "sharper", "--tag", "t", "--budget-s", "1", "--judge", "greedy", "--sandbox", "off")
    with Terminal.of(words, grounds.root, columns=80, rows=24) as waiting:
        wait_until(lambda: waiting.has_shown("before it: the committed script", "training, seed 0 · #0"), 120)
        waiting.process.send_signal(signal.SIGINT)
        assert waiting.to_the_end() == 130
    assert "and the try goes on" in " ".join("\n".join(waiting.lines()).split())
    wait_until(lambda: not is_held(grounds.root / ".git"), 120)  # nobody else works on it
    assert grounds.attempts("t")[1].kind is Kind.KEPT
