"""The end of a night fits the smallest terminal."""

import pytest
from nights import PROJECT, command
from terminals import Terminal


@pytest.mark.parametrize("tag", ["five", "nov22-cpu-long"])
def test_the_end_of_a_night_is_a_screen_of_24_lines_with_three_commands_at_most(tag):
    with Terminal.of(command("replay", tag, "--seconds", "0.2"), PROJECT, columns=80, rows=60) as night:
        assert night.to_the_end() == 0
    lines = [line.rstrip() for line in night.lines()]
    first = max(at for at, line in enumerate(lines) if line.lstrip().startswith("#   val_bpb")) - 1
    shown = lines[first : max(at for at, line in enumerate(lines) if line) + 1]
    assert len(shown) <= 23  # the shell's own line is the last
    assert sum(line.startswith("  nightshift ") for line in shown) in (1, 2, 3)
