"""The live view in real pseudo-terminals, over real nights."""

import re
import signal

import pytest
from commands import refused
from nights import command, unigram
from terminals import Terminal

from agent.night.lock import only_night

pytestmark = pytest.mark.usefixtures("own_cache")


def verdicts(lines: list[str]) -> list[str]:
    return [line for line in lines if re.match(r"#\d+ · ", line)]


def test_a_night_is_shown_on_its_terminal_and_by_watch_in_another_process(grounds):
    options = ("--proposer", "search", "--experiments", "1", "--judge", "greedy", "--hours", "1", "--dawn", "0")
    run = command("run", *options, "--budget-s", "1.2", "--tag", "t")
    with Terminal(run, grounds.root, columns=80, rows=40) as night:
        begun = "#0 baseline", "1,000,000 tokens/s"
        night.until(lambda: night.has_shown(*begun) and grounds.attempts("t")[0].runs)  # both see the run
        night.process.send_signal(signal.SIGSTOP)  # until the other process has begun to watch
        with Terminal(command("status", "--follow"), grounds.root, columns=140, rows=30) as watch:
            watch.until(lambda: watch.has_shown("#0 baseline"))
            night.process.send_signal(signal.SIGCONT)
            assert night.to_the_end() == 0
            assert watch.to_the_end() == 0
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
