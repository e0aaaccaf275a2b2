"""The doctor verifies a machine by running it: operations, a step, box, clocks, a night of one experiment."""

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

from agent.cli.machine import REPORT, Finding, entry, verified
from agent.profile import steps


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


def test_no_sentence_of_a_check_goes_into_the_report():
    """It may name a folder, and a folder its owner."""
    failed = Finding(
        "night", False, "night: run failed: /home/jane/night/train_mlx.py", "ask jane", measured={"audits": 0}
    )
    assert entry(failed, 1.53) == {"name": "night", "ok": False, "wall_s": 1.5, "audits": 0}


@pytest.mark.slow  # a night that trains the shipped script, and MLX's compiler
def test_this_machine_passes_and_the_report_names_nobody(own_cache, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("LOGNAME", "jane")
    found = list(verified(budget_s=1.0))
    assert [one.name for one in found if not one.ok] == [], [one.detail for one in found]
    checks = ["operations", "step", "compiled", "box", "clock", "night"]
    assert [one.name for one in found] == [*checks, "report"]
    text = Path(REPORT).read_text()
    report = json.loads(text)
    assert report["device"]["kind"] in ("cpu", "cuda", "metal")
    assert [(one["name"], one["ok"]) for one in report["checks"]] == [(name, True) for name in checks]
    for private in (str(tmp_path), str(Path.home()), "jane", socket.gethostname()):
        assert private not in text
