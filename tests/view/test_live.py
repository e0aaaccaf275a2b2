"""The live view in real pseudo-terminals, over real nights."""

import re

import pytest
from nights import Grounds, command, make_repository, unigram
from terminals import Terminal

pytestmark = pytest.mark.usefixtures("own_cache")


def panel_of(terminal: Terminal) -> list[str]:
    """The lines below the last rule."""
    lines = [line for line in terminal.lines() if line]
    rules = [at for at, line in enumerate(lines) if set(line) == {"─"}]
    return lines[rules[-1] + 1 :] if rules else []


def shows(terminal: Terminal, *parts: str):
    return lambda: all(part in "\n".join(panel_of(terminal)) for part in parts)


def test_a_night_on_a_terminal_of_80_columns_shows_each_fact_and_breaks_no_word(tmp_path):
    grounds = Grounds(make_repository(tmp_path / "user", unigram(JITTER=0.002)))
    limits = ("--experiments", "1", "--hours", "1", "--dawn", "0")
    run = command("run", "--proposer", "search", *limits, "--budget-s", "0.4", "--tag", "t")
    with Terminal(run, grounds.root, columns=80, rows=40) as terminal:
        terminal.until(shows(terminal, "#0 baseline · calibration run 2 of 3, seed 1", "1,000,000 tokens/s"))
        terminal.until(shows(terminal, "scoring"))
        terminal.until(
            shows(terminal, "#1 ", "run 1, seed 0", "best   #0 val_bpb", "1 kept", "σ 0.", "1 experiment · 59 min")
        )
        assert terminal.to_the_end() == 0
    assert panel_of(terminal) == []
    lines = terminal.lines()
    assert max(map(len, lines)) <= 80
    verdicts = [at for at, line in enumerate(lines) if re.match("#[01] · ", line)]
    assert len(verdicts) == 2
    noise = " ".join(" ".join(lines[verdicts[0] + 1 : verdicts[1]]).split())
    assert noise in " ".join(grounds.nightshift("status").stdout.split())  # folded between words
    assert "go on with:" in terminal.text()
