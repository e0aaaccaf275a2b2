"""Print device, data and budget for the harness as JSON, and prepare the data if they are missing.

It runs as a separate short process, because a process that imports MLX holds device memory until it ends.

    python -P probe.py FOLDER [DATASET [CORE...]]

FOLDER has the fixed files of a night. DATASET may be empty, or --no-data to report the device alone. The data are
prepared on all cores; then the device is described as a worker that is pinned to these cores has it.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

NO_DATA = "--no-data"


def main(folder: str, dataset: str = "", *cores: str) -> None:
    """Print the facts, or one sentence for the user under "error"; all else that is printed goes to standard error."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # treated like Ctrl-C: worker processes end as well
    sys.dont_write_bytecode = True  # a night's fixed files stay as they are
    sys.path.insert(0, folder)
    try:
        facts = device_and_data(dataset, tuple(map(int, cores)))
    except (KeyboardInterrupt, SystemError):  # native code may turn the first into the second
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt writing the answer
        facts = {"error": "interrupted before the data were ready; the same command goes on from there"}
    except SystemExit as ending:
        if not isinstance(ending.code, str):  # prepare.py has printed the reason
            raise
        facts = {"error": ending.code}
    except ImportError as error:
        facts = {"error": f"{error}; install the missing package beside nightshift"}
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:  # RuntimeError: MLX's own
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        facts = {"error": f"device and data cannot be used ({said}); run: nightshift doctor"}
    with suppress(BrokenPipeError), answer:  # the harness was killed
        print(json.dumps(facts), file=answer)


def device_and_data(dataset: str, cores: tuple[int, ...]) -> dict[str, object]:
    """Return the facts about device and data, prepared if named or missing; or one sentence under "error"."""
    from agent.lab import hardware

    hardware.tune()
    kind = hardware.preset()  # fails without MLX
    facts: dict[str, object] = {}
    if dataset != NO_DATA:
        import prepare
        from agent.lab.corpus import DATASETS, DataError
        from agent.lab.kernels.device import kernel_device

        try:
            data = prepare.load_data(prepare.prepare(dataset, use="nowhere")) if dataset else prepare.ensure_data()
        except DataError as error:
            return {"error": str(error), "is_misuse": bool(dataset) and dataset not in DATASETS}
        kernel_device()  # compiles them into the user's cache, of which every run gets a copy
        facts = {"data": str(data.folder), "fingerprint": data.fingerprint, "budget_s": prepare.TIME_BUDGET_S}
    if cores:
        os.sched_setaffinity(0, cores)
    return facts | {
        "device_kind": kind,
        "device": hardware.device_name(),
        "cores": hardware.usable_cores(),
        "memory_bytes": hardware.memory_bytes(),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
