"""The doctor verifies a machine by running it: operations, a step, memory, box, clocks, a night of one experiment."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from nights import PROJECT

from agent.cli.machine.checks import ask_python
from agent.cli.machine.verify import REPORT, anonymous, public_address, verified
from agent.profile import steps


def memory_check(share: str) -> dict:
    """What the memory check reports, where a worker may fill this share of the machine's memory."""
    found = ask_python("-P", steps.__file__, str(PROJECT / "train_mlx.py"), "memory", NIGHTSHIFT_MEMORY_SHARE=share)
    assert isinstance(found, dict), found
    return found


def test_a_machine_that_is_too_small_fills_nothing_to_check_its_memory():
    found = memory_check("0.0001")
    assert found["allowed_gb"] < 0.4
    assert (found["rows"], found["filled_gb"]) == ([], [])


def test_the_report_tells_no_path_no_address_and_no_name():
    told = {
        "detail": "night: run failed: /home/jane/night/train_mlx.py: no '/Volumes/My Disk/x', ask jane@example.org",
        "name": "AMD EPYC of Janes-Mac.local (2 cores)",
        "checks": [{"detail": "see https://host.example/jane, ~/x and jane's file; 3,000 tokens/s, 2 of 3"}, 4, None],
    }
    assert anonymous(told, frozenset({"jane", "janes-mac"})) == {
        "detail": "night: run failed: … no …, ask …",
        "name": "AMD EPYC of ….local (2 cores)",
        "checks": [{"detail": "see …, … and …'s file; 3,000 tokens/s, 2 of 3"}, 4, None],
    }


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("no /Volumes/My Disk/The Project/x.py here", "no … here"),
        ("(~/My Files/a.py) of secret/night/x.py", "(…) of …"),
        ("KERNELS=_home_jane_k, train_jane.py, jane2, JaneDoe", "KERNELS=_home_…_k, train_….py, …2, …Doe"),
        ("al: 2.1e-05 of memory, almost, by al_1", "…: 2.1e-05 of memory, almost, by …_1"),
        ("192.168.1.17:8080, fe80::1c2a:bbff:fe00:1, 00:1b:44:11:3a:b7", "…:8080, …, …"),
        ("git@github.com:jane/secret.git, user:word@proxy.corp:80", "…, …"),
        ("GPU-123e4567-e89b-12d3-a456-426614174000", "GPU-…"),
        ("6.8.0.4-microsoft, MLX 0.32.4, 3 tokens/s: 1.2e-05", "6.8.0.4-microsoft, MLX 0.32.4, 3 tokens/s: 1.2e-05"),
    ],
)  # fmt: skip
def test_no_name_hides_in_a_word_a_path_with_spaces_or_an_address(told, left):
    assert anonymous(told, frozenset({"jane", "al"})) == left


@pytest.mark.slow
def test_a_doctor_that_is_ended_ends_the_check_that_it_waits_for(tmp_path):
    command = [sys.executable, "-P", "-m", "agent", "doctor", "--verify"]
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT)}) as doctor:
        checks: list[psutil.Process] = []
        while not checks and doctor.poll() is None:
            time.sleep(0.05)
            with suppress(psutil.Error):  # a child that has just ended
                checks = [one for one in psutil.Process(doctor.pid).children() if steps.__file__ in one.cmdline()]
        doctor.send_signal(signal.SIGTERM)
        assert doctor.wait(60) == 128 + signal.SIGTERM
    assert checks
    assert psutil.wait_procs(checks, timeout=60)[1] == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/someone/nightshift.git", "https://github.com/someone/nightshift"),
        ("https://codeberg.org/someone/nightshift/", "https://codeberg.org/someone/nightshift"),
        ("https://token@github.com/someone/nightshift", None),
        ("https://git.corp/nightshift", None),
        ("https://git.internal/nightshift", None),
        ("https://10.0.0.7/nightshift", None),
        ("https://example.org:8443/nightshift", None),
        ("https://example.org:x/nightshift", None),
        ("https://example.org/", None),
        ("git@github.com:someone/nightshift.git", None),
        ("/srv/nightshift", None),
        ("", None),
    ],
)
def test_an_issue_is_asked_for_at_a_public_address_alone(url, address):
    assert public_address(url) == address


@pytest.mark.slow
def test_the_memory_of_a_step_is_checked_with_as_few_rows_as_half_of_the_memory_holds():
    room = memory_check("1")["allowed_gb"]
    found = memory_check(f"{0.6 / room:.4f}")
    assert 0.5 < found["allowed_gb"] < 0.7
    assert found["rows"] == [1, 2]
    assert all(
        0.3 < filled < estimated for filled, estimated in zip(found["filled_gb"], found["estimated_gb"], strict=True)
    )


@pytest.mark.slow  # a night that trains the shipped script, and MLX's compiler
def test_this_machine_passes_and_the_report_names_nobody(own_cache, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("LOGNAME", "jane")
    found = list(verified(budget_s=1.0))
    assert [one.name for one in found if not one.good] == [], [one.what for one in found]
    checks = ["operations", "step", "compiled", "estimate", "box", "clock", "night"]
    assert [one.name for one in found] == [*checks, "report"]
    text = Path(REPORT).read_text()
    report = json.loads(text)
    assert report["device"]["kind"] in ("cpu", "cuda", "metal")
    assert [(one["name"], one["ok"]) for one in report["checks"]] == [(name, True) for name in checks]
    for private in (str(tmp_path), str(Path.home()), "jane", socket.gethostname()):
        assert private not in text
