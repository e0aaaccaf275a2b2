"""What a person sees of a step that takes long: a line that changes on a terminal, elsewhere one every minute."""

import subprocess
import sys

from nights import PROJECT
from terminals import Terminal

STEP = """
import sys, time
from agent.lab import corpus
corpus.TERMINAL_EVERY_S, corpus.LOG_EVERY_S = 0.2, 0.2
with corpus.progress("tokenising [red]a[/red] folder of text", 4) as advance:
    advance(3)
    {wait}
print("and then", file=sys.stderr)
"""
END_OF_INPUT = "\x04"  # which a terminal does not echo


def test_a_terminal_gets_a_line_that_changes_and_goes_away():
    step = [sys.executable, "-c", STEP.format(wait="sys.stdin.readline()")]
    with Terminal(step, PROJECT, 80) as terminal:
        terminal.until(lambda: terminal.has_shown("tokenising [red]a[/red] folder of text: 75% after 1 s"))
        terminal.type(END_OF_INPUT)
        assert terminal.to_the_end() == 0
    assert [line for line in terminal.lines() if line] == ["and then"]


def test_a_log_gets_plain_lines():
    step = [sys.executable, "-c", STEP.format(wait="time.sleep(0.5)")]
    said = subprocess.run(step, cwd=PROJECT, capture_output=True, text=True, check=True).stderr.splitlines()
    assert "tokenising [red]a[/red] folder of text: 75% after 0 s" in said[0]
    assert said[-1] == "and then"
