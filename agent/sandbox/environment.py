"""Build the environment of a night's processes: where programs, libraries and devices are, without any keys.

Only variables that are listed by their whole names pass. No language does: programs print the same words everywhere,
in the machine's own time zone. A process that has a device slot gets the part of the machine that the slot names,
and is told how large it is. Variables that change how the same script computes its numbers pass, and are part of a
night's protocol.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from agent.work import WHOLE, DeviceSlot

TMP = "tmp"  # the subfolder of a run that serves as its home, TMPDIR and cache

# These say where programs and libraries are, or are read by MLX, CUDA and libraries of linear algebra. A name that only
# resembles one of these, such as CUDA_DSN, may hold a key.
NAMES = (
    *("PATH", "CC", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "CUDA_LAUNCH_BLOCKING"),
    *("MLX_MAX_OPS_PER_BUFFER", "MLX_MAX_MB_PER_BUFFER", "MLX_BFS_MAX_WIDTH", "MLX_METAL_FAST_SYNCH"),
    *("MLX_USE_CUDA_GRAPHS", "MLX_CUDA_GRAPH_CACHE_SIZE", "MLX_CUDA_CONV_CACHE_SIZE", "MLX_CUDA_FFT_CACHE_SIZE"),
    *("MLX_CUDA_SDPA_CACHE_SIZE", "MLX_CUDA_SDPA_BACKWARD_CACHE_SIZE", "MLX_ENABLE_CACHE_THRASHING_CHECK"),
    *("OPENBLAS_CORETYPE", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "MKL_CBWR"),
    *("NIGHTSHIFT_CACHE", "NIGHTSHIFT_PRESET", "NIGHTSHIFT_OF_CORES", "NIGHTSHIFT_MEMORY_SHARE"),
)
PLACES = ("HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "MLX_PTX_CACHE_DIR")
THREADS_OF_SLOT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
THREADS = (*THREADS_OF_SLOT, "OPENBLAS_NUM_THREADS")  # hardware.tune() chooses the last one by the cores
# Each variable changes precision, or the code that computes, on these kinds of device.
SETTINGS = {
    "MLX_ENABLE_TF32": {"cuda", "metal"},  # 0: products of float32 keep all bits
    "NVIDIA_TF32_OVERRIDE": {"cuda"},  # 0: the same, for all of NVIDIA's libraries
    "MLX_CUDA_USE_CUDNN_SDPA": {"cuda"},  # 0: another attention
    "MLX_SDPA_VJP_FALLBACK": {"metal"},  # another backward pass of attention
    "MLX_METAL_GPU_ARCH": {"metal"},  # the generation for which MLX chooses its kernels
    "MLX_DISABLE_COMPILE": {"cpu", "cuda", "metal"},
    "NIGHTSHIFT_KERNELS": {"cpu", "cuda"},
    "NIGHTSHIFT_BLAS": {"cpu"},
}
# a script reads and writes the same characters wherever it runs
PYTHON = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}


def settings_in(environment: Mapping[str, str], device_kind: str) -> str:
    """Return the settings that this environment makes, for instance MLX_ENABLE_TF32=0; several are joined by a plus."""
    made = {name: environment[name] for name, kinds in SETTINGS.items() if device_kind in kinds and name in environment}
    return "+".join(f"{name}={re.sub(r'[^A-Za-z0-9_.-]', '_', value)}" for name, value in made.items())


def scrubbed_env(data: str) -> dict[str, str]:
    """Return the environment of a process outside of a sandbox, as for Ray's workers, without any keys."""
    env = {name: os.environ[name] for name in (*NAMES, *PLACES, *THREADS, *SETTINGS) if name in os.environ}
    return env | PYTHON | {"NIGHTSHIFT_DATA": data}


def sandbox_env(folder: Path, data: str, slot: DeviceSlot = WHOLE) -> dict[str, str]:
    """Return the environment of a sandboxed process: its home, caches and temporary files are in its working folder."""
    own = str(folder / TMP)
    env = {name: value for name, value in scrubbed_env(data).items() if name not in PLACES}
    places = {"HOME": own, "TMPDIR": own, "USER": "nightshift", "NIGHTSHIFT_CACHE": f"{own}/cache"}
    return env | places | slot_env(slot)


def slot_env(slot: DeviceSlot) -> dict[str, str]:
    """Return the variables by which libraries and agent/lab/hardware.py keep to a slot; none for the whole machine."""
    env = {} if slot.gpu is None else {"CUDA_VISIBLE_DEVICES": slot.gpu}
    if slot.cores:
        env |= dict.fromkeys(THREADS_OF_SLOT, str(len(slot.cores)))
    if slot.of_cores is not None:
        env["NIGHTSHIFT_OF_CORES"] = str(slot.of_cores)
    if slot.share < 1:
        env["NIGHTSHIFT_MEMORY_SHARE"] = f"{slot.share:g}"
    return env
