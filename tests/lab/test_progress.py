"""What is written of a step that takes long where no terminal is: a line every minute."""

import subprocess
import sys

from nights import PROJECT

STEP = """
import sys, time
from agent.lab import corpus
corpus.LOG_EVERY_S = 0.2
with corpus.progress("tokenising [red]a[/red] folder of text", 4) as advance:
    advance(3)
    time.sleep(0.5)
print("and then", file=sys.stderr)
"""


def test_a_log_gets_plain_lines():
    step = [sys.executable, "-c", STEP]
    said = subprocess.run(step, cwd=PROJECT, capture_output=True, text=True, check=True).stderr.splitlines()
    assert "tokenising [red]a[/red] folder of text: 75% after 0 s" in said[0]
    assert said[-1] == "and then"
