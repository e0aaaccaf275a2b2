"""`nightshift status --follow` given before the night: it waits for one to begin, as tail -F does for a file."""

import signal
import subprocess
from pathlib import Path

from commands import nothing_yet, refused
from nights import Grounds
from serving import growing_night, make_place

PATIENCE_S = 120


def waiting(grounds: Grounds, *tag: str) -> "subprocess.Popen[str]":
    """The command at the moment when it has said that it waits."""
    follower = grounds.start("status", *tag, "--follow")
    assert follower.stdout is not None
    which = f"night {tag[0]}" if tag else "a night"
    line = follower.stdout.readline()
    assert line == f"no night runs here: waiting for {which} to begin; Ctrl-C ends the waiting\n"
    return follower


def test_a_night_that_begins_later_is_followed_to_its_end(tmp_path: Path):
    place = make_place(tmp_path / "user")
    follower = waiting(Grounds(place.repo.root))
    assert follower.stdout is not None
    with growing_night(place, "soon") as night:
        night.add("baseline", 1.5)
        assert follower.stdout.readline().startswith("night soon (pid ")
    assert (
        "night soon has ended; see: nightshift status, nightshift results\n"
        in follower.communicate(None, PATIENCE_S)[0]
    )
    assert follower.returncode == 0


def test_ctrl_c_ends_the_waiting(tmp_path: Path):
    follower = waiting(Grounds(make_place(tmp_path / "user").repo.root), "soon")
    follower.send_signal(signal.SIGINT)
    assert "Traceback" not in follower.communicate(None, PATIENCE_S)[0]
    assert follower.returncode == 130


def test_what_can_never_begin_is_not_waited_for(tmp_path: Path):
    place = make_place(tmp_path / "user")
    grounds = Grounds(place.repo.root)
    assert "is an attempt, and this command is about a whole night" in refused(
        grounds.nightshift("status", "3", "--follow")
    )
    assert "no night a b is here" in refused(grounds.nightshift("status", "a b", "--follow"))
    with growing_night(place, "other"):
        said = nothing_yet(grounds.nightshift("status", "soon", "--follow"))
    assert said == "night soon is not running, and another is, other; follow that one with: nightshift status --follow"
