"""An overrun is blamed on the script or on a busy machine."""

import dataclasses
import subprocess
import sys
import time

import psutil

from agent.sandbox import process
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.watch import Counters, busy, tree_cpu_s

BEFORE = Counters(at_s=100.0, busy_s=5000.0, idle_s=9000.0, own_s=3.0)


def later(wall_s: float, busy_s: float, idle_s: float, own_s: float = 0.0) -> Counters:
    return Counters(BEFORE.at_s + wall_s, BEFORE.busy_s + busy_s, BEFORE.idle_s + idle_s, BEFORE.own_s + own_s)


def test_what_the_run_and_the_harness_take_themselves_makes_no_machine_busy():
    assert busy(BEFORE, later(10, busy_s=20, idle_s=0, own_s=1), tree_s=18.5) is None
    assert busy(BEFORE, later(10, busy_s=0.5, idle_s=19.5), tree_s=0.2) is None


def test_what_others_take_does():
    told = "other programs took 40% of the machine's processors"
    assert busy(BEFORE, later(10, busy_s=20, idle_s=0), tree_s=12) == told
    assert busy(BEFORE, later(10, busy_s=8, idle_s=12), tree_s=0) == told


def test_of_a_pinned_run_the_cores_are_named():
    before = dataclasses.replace(BEFORE, cores=4)
    assert (
        busy(before, later(10, busy_s=20, idle_s=20), tree_s=8) == "other programs took 30% of the 4 cores of this run"
    )


def test_a_machine_that_does_not_tell_is_not_taken_for_quiet():
    unknown = "it is not known how busy the machine was"
    assert busy(BEFORE, later(10, busy_s=0, idle_s=0), tree_s=1) == unknown  # counters that stand still
    assert busy(BEFORE, later(10, busy_s=1, idle_s=19), tree_s=None) == unknown  # the keeper was killed


def test_this_machine_counts_and_others_are_seen():
    before = Counters.now()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        taken_s = 0.0
        while taken_s < 0.3:  # by its own account, however many others there are
            time.sleep(0.05)
            taken_s = tree_cpu_s([psutil.Process(other.pid)])
        after = Counters.now()
        other.kill()
    assert after.busy_s - before.busy_s > 0.25
    all_s = after.busy_s + after.idle_s - before.busy_s - before.idle_s
    if 0.3 / all_s > 0.15:  # on a machine of few processors
        assert "other programs took" in str(busy(before, after, tree_s=0.0))


def test_what_a_tree_took_is_counted_though_it_will_not_end(tmp_path):
    code = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\n"
    code += "while time.process_time() < 0.3: pass\nopen(str(os.getpid()), 'w')\ntime.sleep(60)"
    process.open_log(tmp_path / process.LOG).close()
    keeper = process.start_keeper([sys.executable, "-c", code], tmp_path, scrubbed_env(""), None)
    while len(list(tmp_path.glob("[0-9]*"))) < 2:
        assert keeper.poll() is None
        time.sleep(0.05)
    process.end(keeper)
    report = process.report_of(keeper)
    assert report.cpu_s > 0.6
    assert (report.over, report.peak_bytes) == (None, None)
