"""The live view in real pseudo-terminals, over real nights."""

import re
import signal

import pytest
from commands import nothing_yet, refused
from nights import Grounds, command, make_repository, unigram
from terminals import Terminal

from agent.night.lock import only_night

pytestmark = pytest.mark.usefixtures("own_cache")


def verdicts(lines: list[str]) -> list[str]:
    return [line for line in lines if re.match(r"#\d+ · ", line)]


def night_and_watcher(
    grounds: Grounds, *options: str, begun: str = "1,000,000 tokens/s", experiments: int = 1
) -> tuple[Terminal, Terminal]:
    """A night on a terminal of 80 columns, and one of 140 from which it is watched by another process."""
    run = command("run", "--proposer", "search", "--experiments", str(experiments), *options, "--tag", "t")
    with Terminal(run, grounds.root, columns=80, rows=40) as night:
        night.until(lambda: night.has_shown("#0 baseline", begun) and grounds.attempts("t")[0].runs)  # both see the run
        night.process.send_signal(signal.SIGSTOP)  # until the other process has begun to watch
        with Terminal(command("status", "--follow"), grounds.root, columns=140, rows=30) as watch:
            watch.until(lambda: watch.has_shown("#0 baseline"))
            night.process.send_signal(signal.SIGCONT)
            assert night.to_the_end() == 0
            assert watch.to_the_end() == 0
    return night, watch


def test_a_night_is_shown_on_its_terminal_and_by_watch_in_another_process(grounds):
    night, watch = night_and_watcher(grounds, "--judge", "greedy", "--hours", "1", "--dawn", "0", "--budget-s", "1.2")
    assert night.has_shown("training, seed 0 · #0 baseline", "s left · 1,000,000 tokens/s")
    assert night.has_shown("#1 SHARE", "best    #0 val_bpb", "0 kept", "0 experiments · ")
    assert watch.has_shown("best    #", " kept · ", "left    ")
    for terminal in (night, watch):
        assert not any(set(line) == {"─"} for line in terminal.lines())  # the panel is gone
    assert "next:" in night.text()
    assert "night t has ended; see:" in watch.text()
    (_, folded), (_, wide) = verdicts(night.lines()), verdicts(watch.lines())
    assert wide.startswith(" ".join(folded.split()))


@pytest.mark.slow
def test_two_workers_and_dawn_are_shown_by_night_and_watcher(tmp_path):
    grounds = Grounds(make_repository(tmp_path / "user", unigram(JITTER=0.002)))
    options = ("--workers", "2", "--cores-each", "1", "--dawn", "3", "--budget-s", "2")
    for terminal in night_and_watcher(grounds, *options, begun="training, seed", experiments=3):
        assert terminal.has_shown("training, seed 1 · #0 baseline", "training, seed 2 · #0 baseline")
        assert terminal.has_shown("#1 SH", "#2 SH")
        assert terminal.has_shown(" of dawn · #")
        assert len(verdicts(terminal.lines())) >= 4


@pytest.mark.slow
def test_watch_follows_a_pipe_in_plain_lines_and_leaves_the_night_alone(grounds):
    grounds.try_scripts("t", [])
    with only_night(grounds.root / ".git") as tell:
        tell("t", grounds.folder("t"), experiments=5)
        assert "night u has no journal here; there are: t" in refused(grounds.nightshift("status", "--follow", "u"))
        piped = grounds.start("status", "--follow", "t")
        with Terminal(command("status", "--follow"), grounds.root, columns=80) as watch:
            watch.until(lambda: watch.has_shown("#0 · baseline · val_bpb", "left    5 experiments"))
            grounds.try_scripts("t", [unigram(SHARPNESS=0.9)])
            watch.until(lambda: "#1 · script 1" in watch.text())
            watch.press_ctrl_c()
            assert watch.to_the_end() == 0
        assert re.search(r"night t goes on; end it with:\s+\S*.* stop", watch.text(), re.DOTALL)
    said = piped.communicate(timeout=60)[0]
    assert "\x1b" not in said
    assert [line.partition(" · val_bpb")[0] for line in verdicts(said.splitlines())] == [
        "#0 · baseline",
        "#1 · script 1",
    ]
    assert said.splitlines()[-1].startswith("night t has ended; see: ")


def test_watch_says_where_there_is_nothing_to_watch(grounds):
    assert nothing_yet(grounds.nightshift("status", "--follow")).startswith("no night has run here yet; begin with: ")
