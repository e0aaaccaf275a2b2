"""The workers of one machine have their own parts of it, and no script takes another's."""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from judged import scored_attempt, scored_run
from nights import bubblewrap, kernels_own, make_repository, unigram, usable

from agent.errors import NightError
from agent.experiment import Ending, Run, Summary
from agent.lab import hardware
from agent.night.opening import Request, open_context
from agent.pools.device_slots import (
    cores_of_machine,
    gpus_of_machine,
    ranges,
    sets_of_cores,
    slots_of_machine,
    slots_of_night,
    slowdown_of,
)
from agent.records.place import Place
from agent.sandbox.environment import sandbox_env, slot_env
from agent.sandbox.places import View
from agent.sandbox.process import Outcome, supervise
from agent.sandbox.sandboxes import Sandbox
from agent.sandbox.supervisor import limits_of_machine
from agent.work import WHOLE, DeviceSlot

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are lent on Linux only")
two_cores = pytest.mark.skipif(
    hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) < 2, reason="there is one core"
)


# ---- sets of cores ---------------------------------------------------------------------------------------------------


def made_machine(folder: Path, cores: Iterable[tuple[int, ...]], of_package: int = 2) -> Path:
    """The kernel's files about these physical cores, so many of which are on one chip."""
    for at, threads in enumerate(cores):
        for number in threads:
            topology = folder / f"cpu{number}" / "topology"
            topology.mkdir(parents=True)
            (topology / "thread_siblings_list").write_text(",".join(map(str, threads)) + "\n")
            (topology / "physical_package_id").write_text(f"{at // of_package}\n")
    return folder


def test_the_threads_of_a_core_are_lent_together(tmp_path):
    cpus = made_machine(tmp_path, [(0, 4), (2, 6), (1, 5), (3, 7)])  # two chips' cores, numbered in turns
    cores = cores_of_machine(cpus, range(8), 8)
    assert cores == ((0, 4), (2, 6), (1, 5), (3, 7))
    assert sets_of_cores(cores, 4) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert sets_of_cores(cores, 3) == [(0, 2, 4), (1, 3, 5)]  # the other threads of 2 and of 1 stay idle
    assert sets_of_cores(cores, 1) == [(0,), (2,), (1,), (3,)]
    assert cores_of_machine(cpus, {0, 4, 1}, 3) == ((0, 4), (1,))  # taskset has left these
    assert cores_of_machine(cpus, range(8), 3) == ((0,), (2,), (1,))  # a container with time for three


@two_cores
def test_workers_on_a_cpu_have_their_own_cores():
    threads = sum(map(len, cores_of_machine()))
    assert slots_of_machine("cpu", 1, None) == (WHOLE,)
    first, second = slots_of_machine("cpu", 2, None)
    assert (first.worker, first.of_cores, first.share) == (f"cores {ranges(first.cores)}", threads, 0.5)
    assert len(first.cores) == len(second.cores) >= 1
    assert not {*first.cores} & {*second.cores}


def test_more_workers_than_devices_are_refused_with_the_most_that_is_possible():
    cores = cores_of_machine()
    with pytest.raises(NightError, match=f"room for {len(cores)} worker.*their scores would not compare"):
        slots_of_machine("cpu", len(cores) + 1, None)
    with pytest.raises(NightError, match="a Mac has one GPU"):
        slots_of_machine("metal", 2, None)


# ---- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two H200 and an L4, as its nvidia-smi tells."""
    program = tmp_path / "nvidia-smi"
    names = "NVIDIA H200", "NVIDIA H200", "NVIDIA L4"
    listed = "\n".join(f"GPU {number}: {name} (UUID: GPU-{number}a5f-11)" for number, name in enumerate(names))
    program.write_text(f"#!/bin/sh\n[ \"$1\" = -L ] && cat <<'END'\n{listed}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_every_worker_has_a_gpu(gpus):
    first, second = slots_of_machine("cuda", 2, None)
    assert (first.worker, first.gpu, first.share, first.of_cores) == ("gpu 0", "GPU-0a5f-11", 0.5, None)
    assert slot_env(second)["CUDA_VISIBLE_DEVICES"] == "GPU-1a5f-11"
    with pytest.raises(NightError, match="this machine lends 3 GPUs"):
        slots_of_machine("cuda", 4, None)
    with pytest.raises(NightError, match=r"these GPUs differ \(gpu 0: NVIDIA H200, .*, gpu 2: NVIDIA L4\)"):
        slots_of_machine("cuda", 3, None)


@pytest.mark.parametrize(
    ("visible", "lent"),
    [
        ("1,0", ["1", "0"]),
        ("GPU-1a,GPU-0a5f-11", ["GPU-1a5f-11", "GPU-0a5f-11"]),
        ("0,7,1", ["0"]),  # those after one that is not here are hidden by CUDA, too
        ("-1", []),
    ],
)
def test_the_user_says_which_gpus_are_lent(gpus, monkeypatch, visible, lent):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.visible for gpu in gpus_of_machine()] == lent


# ---- a process with a device slot ------------------------------------------------------------------------------------

WIDENS = """
import json, os, threading
before = os.sched_getaffinity(0)
for who in (0, os.getpid(), threading.get_native_id()):
    os.sched_setaffinity(who, range(os.cpu_count()))
print(json.dumps([sorted(before), sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"]]))
"""


def run_in_slot(folder: Path, slot: DeviceSlot, sandbox: Sandbox, code: str) -> Outcome:
    (folder / "tmp").mkdir()
    return supervise(
        sandbox.wrap([sys.executable, "-S", "-c", code], View(folder)),
        folder,
        env=sandbox_env(folder, "", slot),
        limit_s=60,
        stopped=lambda: False,
        limits=limits_of_machine(slot.share),
        cores=slot.cores,
    )


@two_cores
@pytest.mark.parametrize("make_sandbox", [bubblewrap, kernels_own])
def test_a_sandboxed_script_keeps_to_its_cores(tmp_path, make_sandbox):
    slot, before = slots_of_machine("cpu", 2, 1)[1], os.sched_getaffinity(0)
    outcome = run_in_slot(tmp_path, slot, usable(make_sandbox()), WIDENS)
    assert outcome.ending is Ending.FINISHED, outcome
    assert json.loads(outcome.last_lines) == [[*slot.cores], [*slot.cores], "1"]
    assert os.sched_getaffinity(0) == before  # the harness's own thread keeps its cores


# ---- what workers share ----------------------------------------------------------------------------------------------


def made_run(seed: int, began_s: int, steps: int, worker: str = "gpu 0") -> Run:
    """A run of five minutes that began so many seconds after midnight."""
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    began, ended = ((midnight + timedelta(seconds=at_s)).isoformat() for at_s in (began_s, began_s + 300))
    summary = Summary(training_seconds=290.0, num_steps=steps)
    return replace(scored_run(seed, 1.0), wall_s=300.0, summary=summary, worker=worker, began=began, ended=ended)


def test_the_baseline_alone_is_compared_with_itself_beside_others():
    alone, beside = made_run(0, 0, 1000), (made_run(1, 300, 930), made_run(2, 301, 950, "gpu 1"))
    later = made_run(3, 4000, 800)  # other attempts may have run beside it
    baseline = scored_attempt(0, 1.0)
    assert slowdown_of([replace(baseline, runs=(alone, *beside, later))]) == pytest.approx(0.06)
    assert slowdown_of([replace(baseline, runs=beside)]) is None
    elsewhere = made_run(1, 900, 700), made_run(2, 901, 700, "gpu 1")  # the night has moved to another machine
    assert slowdown_of([replace(baseline, runs=(alone, *elsewhere))]) is None
    hostile = replace(alone, began="-", ended="-")  # a foreign journal may say this
    assert slowdown_of([replace(baseline, runs=(hostile, *beside))]) is None


# ---- the night -------------------------------------------------------------------------------------------------------


@two_cores
@pytest.mark.skipif(hardware.device_kind() != "cpu", reason="the device is a GPU")
def test_the_cores_of_a_worker_are_part_of_the_nights_device(tmp_path, tiny_data, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    root, total = make_repository(tmp_path / "user", unigram()), sum(map(len, cores_of_machine()))
    asked = {"workers": 2, "sandbox": "off"}
    with open_context(Request(Place.of(root / "train_mlx.py"), "t", 0.05, None, asked, proposers=())) as context:
        assert context.pool is not None
        assert tuple(context.pool.workers) == tuple(slot.worker for slot in slots_of_machine("cpu", 2, None))
    night, each = context.runner.night, len(context.runner.slot.cores)
    assert context.runner.resource_limits == limits_of_machine(0.5)
    assert night.device.endswith(f" ({each} of {total} cores)")
    alone = replace(night, options=replace(night.options, workers=1))
    assert [len(slot.cores) for slot in slots_of_night(alone)] == [each]  # kept, to go on with one worker
