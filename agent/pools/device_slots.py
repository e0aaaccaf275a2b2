"""Divide a machine among the workers of a night: a GPU each, or a set of cores each. Measure what they still share.

Two workers on one device would share its time, and each run would train fewer steps in the same budget. So there are at
most as many workers as devices. The threads of one core belong to one worker.

The memory's speed, power and the disk are shared. A night with several workers begins with a run of attempt 0 alone,
then makes its further runs on all workers at the same time: the difference is the slowdown.
"""

import os
import re
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agent.errors import MachineError, NightError
from agent.experiment import History, Night, Run
from agent.invocation import typed
from agent.lab.hardware import usable_cores
from agent.text import counted
from agent.work import WHOLE, DeviceSlot

CPUS = Path("/sys/devices/system/cpu")
BUSY_SHARE = 0.10  # share of the processors or of a GPU that other programs take; from here on, the night says it
GPU_ASKED_S = 10.0  # longest wait for nvidia-smi
SHARED = "workers that share a device train fewer steps in the same budget, so their scores would not compare"
NOTABLE = 0.02  # share of speed; a smaller loss between workers is not shown
GPU_LINE = re.compile(r"GPU (\d+): (.+) \(UUID: (GPU-[^)]+)\)")

Cores = tuple[tuple[int, ...], ...]  # each physical core's threads, if this process may use them


def slots_of_machine(device_kind: str, workers: int, cores_each: int | None) -> tuple[DeviceSlot, ...]:
    """Return the device slot of each worker; raise NightError, with the most possible, if there is too little."""
    if workers == 1 and cores_each is None:
        return (WHOLE,)
    if device_kind == "metal" or not hasattr(os, "sched_setaffinity"):
        raise NightError(f"--workers and --cores-each: a Mac has one GPU, and its cores cannot be divided; {SHARED}")
    if device_kind == "cuda":
        return _on_gpus(workers, cores_each)
    return _on_cores(workers, cores_each)


def slots_of_night(night: Night) -> tuple[DeviceSlot, ...]:
    """Return the device slots of a night's workers on this machine, by its options."""
    options = night.options
    if options.pool != "local":
        return (WHOLE,)
    return slots_of_machine(night.device_kind, options.workers, options.cores_each)


# ---- sets of cores ---------------------------------------------------------------------------------------------------


def cores_of_machine(cpus: Path = CPUS, lent: Iterable[int] | None = None, most: int | None = None) -> Cores:
    """Return the physical cores that this process may use, each with its threads.

    Where a container may use less time than its cores have, return as many threads as it has time for: one of each core
    first.
    """
    together: dict[str, list[int]] = {}
    for number in sorted(os.sched_getaffinity(0) if lent is None else lent):
        together.setdefault(_read(cpus, number, "thread_siblings_list") or f"{number}", []).append(number)
    physical = sorted(together.values(), key=lambda core: (int(_read(cpus, core[0], "physical_package_id") or 0), core))
    turns = sorted((turn, at, number) for at, core in enumerate(physical) for turn, number in enumerate(core))
    taken = {number for _, _, number in turns[: most or usable_cores()]}
    return tuple(kept for core in physical if (kept := tuple(number for number in core if number in taken)))


def sets_of_cores(cores: Cores, each: int) -> list[tuple[int, ...]]:
    """Cut cores into as many sets of `each` threads as there are; a core that is used in part belongs to one set."""
    sets: list[tuple[int, ...]] = []
    part: list[int] = []
    for core in cores:
        part += core
        if len(part) >= each:
            sets.append(tuple(sorted(part[:each])))
            part = []
    return sets


def _on_cores(workers: int, cores_each: int | None) -> tuple[DeviceSlot, ...]:
    cores = cores_of_machine()
    threads, each = sum(map(len, cores)), cores_each or _most_each(cores, workers)
    sets = _enough_sets(cores, each, workers)
    of_cores = threads if each < threads else None
    return tuple(DeviceSlot(f"cores {ranges(own)}", own, None, 1 / workers, of_cores) for own in sets[:workers])


def _most_each(cores: Cores, workers: int) -> int:
    """Return the most threads that each worker can have; at least one."""
    most = sum(map(len, cores)) // workers
    return next((each for each in range(most, 1, -1) if len(sets_of_cores(cores, each)) >= workers), 1)


def _enough_sets(cores: Cores, each: int, workers: int) -> list[tuple[int, ...]]:
    sets = sets_of_cores(cores, each)
    if len(sets) < workers:
        raise NightError(
            f"--workers {workers} with --cores-each {each}: this machine has room for {counted(len(sets), 'worker')}, "
            f"as it lends {sum(map(len, cores))} threads of {counted(len(cores), 'core')}; {SHARED}"
        )
    return sets


def ranges(cores: Sequence[int]) -> str:
    """Write cores as Linux does: 0-3,8."""
    spans: list[list[int]] = []
    for core in cores:
        if spans and core == spans[-1][-1] + 1:
            spans[-1].append(core)
        else:
            spans.append([core])
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)


def _read(cpus: Path, number: int, fact: str) -> str:
    try:
        return (cpus / f"cpu{number}" / "topology" / fact).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


# ---- GPUs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gpu:
    """Name a GPU as nvidia-smi lists it."""

    index: int
    name: str  # name of the model
    visible: str  # the value of CUDA_VISIBLE_DEVICES by which a process sees it alone


def gpus_of_machine() -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use, by CUDA_VISIBLE_DEVICES; raise MachineError without nvidia-smi."""
    try:
        listed = _nvidia_smi("-L")
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"the GPUs cannot be counted, since nvidia-smi -L fails ({error}); repair it") from error
    gpus = tuple(Gpu(int(index), name, uuid) for index, name, uuid in GPU_LINE.findall(listed))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return gpus if visible is None else tuple(dict.fromkeys(_named_in(visible, gpus)))


def _nvidia_smi(*words: str) -> str:
    """Return what nvidia-smi prints; raise OSError or SubprocessError where it fails."""
    command = ["nvidia-smi", *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=GPU_ASKED_S).stdout


def gpu_in_use(gpu: str | None = None) -> str | None:
    """Return how much others use a GPU, in words; None if little, or not known.

    It is named as in CUDA_VISIBLE_DEVICES; None: the first one that this process may use.
    """
    first = gpu or os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    query = "--query-gpu=utilization.gpu,memory.used,memory.total"
    try:
        line = _nvidia_smi("-i", first, query, "--format=csv,noheader,nounits").splitlines()[0]
        percent, used_mb, all_mb = map(float, line.split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    if percent < 100 * BUSY_SHARE and used_mb < BUSY_SHARE * all_mb:
        return None
    return f"the GPU is in use already: {percent:.0f}% of its time, {used_mb / 1024:.1f} of {all_mb / 1024:.1f} GB"


def gpus_unused(gpus: Sequence[Gpu], tag: str | None = None) -> list[str]:
    """Say how a night uses several GPUs, if there are several of one kind; a night goes on so under its tag."""
    alike = len([gpu for gpu in gpus if gpu.name == gpus[0].name])
    command = typed("run", *(("--tag", tag) if tag else ()), "--workers", f"{alike}")
    return [f"{alike} GPUs of one kind are here: {command} trains on all of them"] if alike > 1 else []


def _named_in(visible: str, gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    """Yield the GPUs of a CUDA_VISIBLE_DEVICES up to the first that is not here: CUDA hides those after it, too."""
    for word in visible.split(","):
        name = word.strip()
        matches = [gpu for gpu in gpus if name.startswith("GPU-") and gpu.visible.startswith(name)]
        matches += [Gpu(gpu.index, gpu.name, name) for gpu in gpus if f"{gpu.index}" == name]
        if len(matches) != 1:
            return
        yield matches[0]


def _on_gpus(workers: int, cores_each: int | None) -> tuple[DeviceSlot, ...]:
    gpus = gpus_of_machine()
    if len(gpus) < workers:
        raise NightError(
            f"--workers {workers}: this machine lends {counted(len(gpus), 'GPU')}, those that CUDA_VISIBLE_DEVICES "
            f"names where it is set, and {SHARED}"
        )
    used = gpus[:workers]
    if len({gpu.name for gpu in used}) > 1:
        kinds = ", ".join(f"gpu {gpu.index}: {gpu.name}" for gpu in used)
        raise NightError(
            f"--workers {workers}: these GPUs differ ({kinds}), so their scores would not compare; name those of one "
            f"kind in CUDA_VISIBLE_DEVICES"
        )
    cores = cores_of_machine()
    # Every GPU counts here: workers that are added later take nothing from those at work.
    each = cores_each or _most_each(cores, len(gpus))
    shared = not cores_each and len(cores) < workers  # fewer cores than GPUs
    pinned = [()] * workers if shared else _enough_sets(cores, each, workers)
    return tuple(
        DeviceSlot(f"gpu {gpu.index}", own, gpu.visible, 1 / workers) for gpu, own in zip(used, pinned, strict=False)
    )


# ---- what workers still share ----------------------------------------------------------------------------------------


def slowdown_of(history: History) -> float | None:
    """Return the share of its speed that attempt 0 lost beside other runs; None if no run was alone, or none beside.

    The run alone is the one just before those beside each other: any after them may have had other attempts beside it,
    and where a night was interrupted or moved, the machine may be slower for another reason.
    """
    timed = [run for run in (history[0].done_runs if history else ()) if run.steps_s and run.began and run.ended]
    beside = [run for run in timed if any(_overlap(run, other) for other in timed if other is not run)]
    alone = [run for run in timed[: timed.index(beside[0])] if _just_before(run, beside[0])] if beside else []
    if not alone:
        return None
    fast, slow = (statistics.fmean(run.steps_s or 0.0 for run in runs) for runs in (alone, beside))
    return 1 - slow / fast


def slowdown_lines(slowdown: float | None) -> list[str]:
    """Say what a notable slowdown means for scores, and the remedy."""
    if slowdown is None or slowdown <= NOTABLE:
        return []
    return [
        f"workers slow each other down: attempt 0 trained {slowdown:.1%} slower beside other runs than alone; scores "
        f"compare within this night, but hardly with a night of one worker; begin one with fewer --workers for less"
    ]


def _overlap(run: Run, other: Run) -> bool:
    """Return whether two runs were made at the same time, for a moment at least."""
    return (run.began or "") < (other.ended or "") and (other.began or "") < (run.ended or "")


def _just_before(run: Run, other: Run) -> bool:
    """Return whether a run ended less than its own time before another began; a time may be any text."""
    with suppress(TypeError, ValueError):
        gap = datetime.fromisoformat(other.began or "") - datetime.fromisoformat(run.ended or "")
        return gap.total_seconds() < run.wall_s
    return False
