"""What the command line prints, where the stream behind it lacks signs, is closed or fails."""

import os
import pty
import shlex
import subprocess

import pytest
from conftest import write_library_text
from nights import command, environment, unigram

# An old locale: Python reads and writes ASCII in it, where it is not told otherwise.
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
LATIN = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
ROW = "abc1234\t1.5\t0.1\tkeep\tSHARPNESS 0.5 → 0.9 🌙, σ twice\n"
NIGHT = "run --tag t --budget-s 0.05 --judge greedy --experiments 1 --no-report --proposer search"


@pytest.mark.parametrize("old", [ASCII, LATIN], ids=["ascii", "latin-1"])
def test_signs_that_the_output_lacks_are_replaced(grounds, old):
    (grounds.root / "results.tsv").write_text(f"commit\tval_bpb\tmemory_gb\tstatus\tdescription\n{ROW}", "utf-8")
    for words, shown in (("--help", "COMMAND ."), ("results", "0.5 > 0.9 ?, sigma twice")):
        env = environment(**old)
        done = subprocess.run(command(words), cwd=grounds.root, env=env, capture_output=True, encoding="latin-1")
        assert (done.returncode, done.stderr) == (0, "")
        assert shown in done.stdout


@pytest.mark.slow
def test_a_script_that_is_saved_is_utf_8_in_every_locale(grounds):
    script = f"# σ → 🌙\n{unigram(SHARPNESS=0.7)}"
    grounds.try_scripts("t", [script])
    line = [*command("show", "t:1", "--script")]
    done = subprocess.run(line, cwd=grounds.root, env=environment(**ASCII), capture_output=True, check=False)
    assert done.stdout == script.encode()


STREAMS = ["<&- >&- 2>&-", ">/dev/full 2>/dev/full", "2>&1 | true", ">/dev/null"]


@pytest.mark.slow
@pytest.mark.parametrize("streams", STREAMS)
def test_a_night_goes_on_whatever_its_streams_do(grounds, tmp_path, streams):
    """Also where it says that it prepares a text first, and an old locale lacks the arrow of a title."""
    text = write_library_text(tmp_path / "text.txt", 1_500_000)
    program = "Wanted: → 🌙"
    (grounds.root / "program.md").write_text(program, "utf-8")
    line = f"{shlex.join(command(*NIGHT.split(), '--dataset', str(text)))} {streams}"
    subprocess.run(["sh", "-c", line], cwd=grounds.root, env=environment(NIGHTSHIFT_DATA="", **ASCII), check=False)
    first, second = grounds.attempts("t")
    assert (first.settled, second.settled) == (True, True)
    assert "→" in second.proposal.title
    prompt = subprocess.run(
        command("prompt"), cwd=grounds.root, env=environment(**ASCII), capture_output=True, check=True
    )
    assert program.encode() in prompt.stdout


@pytest.mark.slow
def test_a_night_goes_on_where_its_terminal_has_gone(grounds):
    ours, theirs = pty.openpty()
    night = subprocess.Popen(command(*NIGHT.split()), cwd=grounds.root, env=environment(), stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    assert night.wait(60) == 0
    assert [attempt.settled for attempt in grounds.attempts("t")] == [True, True]
