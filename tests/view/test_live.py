"""The live view in real pseudo-terminals, over real nights."""

import re
import signal

import pytest
from commands import wait_until
from nights import command
from terminals import Terminal

pytestmark = pytest.mark.usefixtures("own_cache")


def verdicts(terminal: Terminal) -> list[str]:
    return [line for line in terminal.lines() if re.match(r"#\d+ · ", line)]


@pytest.mark.slow
def test_a_night_is_shown_on_its_terminal_and_by_watch_in_another_process(grounds):
    options = ("--proposer", "search", "--experiments", "1", "--judge", "greedy", "--hours", "1", "--dawn", "0")
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
    assert night.has_shown("training, seed 0 · #0 baseline", "s left · 1,000,000 tokens/s")
    assert night.has_shown("#1 SHARE", "best    #0 val_bpb", "0 kept", "0 experiments · ")
    assert watch.has_shown("best    #", " kept · ", "left    ")
    for terminal, last in ((night, "next:"), (watch, "night t has ended; see:")):
        assert not any(set(line) == {"─"} for line in terminal.lines())  # the panel is gone
        assert last in "\n".join(terminal.lines())
    (_, folded), (_, wide) = verdicts(night), verdicts(watch)
    assert wide.startswith(" ".join(folded.split()))
