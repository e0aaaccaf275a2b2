"""Runs beside the fixed files in a short process: names device, data and budget, and prepares the data if missing.

The harness asks this way because a process that imports MLX holds memory of the device, and a night is long.

    python probe.py ANSWER.json
"""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def main(answer: str) -> None:
    """Writes the facts, or under "error" the one sentence that a person needs."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that processes that prepare data end, too
    sys.dont_write_bytecode = True  # a look leaves nothing in the user's folder
    sys.path.insert(0, str(Path.cwd()))  # the user's own prepare.py and hardware.py, not the installed ones
    try:
        facts = look()
    except (KeyboardInterrupt, SystemError):  # the latter is what native code may make of the former
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would tear the answer
        facts = {"error": "interrupted before the data were ready; the same command goes on from there"}
    except ImportError as error:
        facts = {"error": f"{error}; install what is missing, as nightshift doctor says"}
    except subprocess.CalledProcessError as error:
        facts = {"error": f"{error.cmd[0]} failed with exit code {error.returncode}; run: nightshift doctor"}
    except OSError as error:
        facts = {
            "error": f"{error.filename or 'a file'} cannot be used ({error.strerror or error}); make it accessible"
        }
    except RuntimeError as error:  # MLX's own, where a driver or a device is missing
        facts = {"error": f"MLX does not run here ({error}); run: nightshift doctor"}
    with suppress(FileNotFoundError):  # whoever asked was killed, and the next night has swept up after it
        Path(answer).write_text(json.dumps(facts))


def look() -> dict[str, object]:
    import hardware

    hardware.tune()
    import prepare
    from corpus import DataError

    try:
        data = prepare.ensure_data()
    except DataError as error:
        return {"error": str(error)}
    compile_kernels()
    return {
        "device_kind": hardware.device_kind(),
        "device": hardware.device_name(),
        "data": str(data.folder),
        "fingerprint": data.fingerprint,
        "budget_s": prepare.TIME_BUDGET_S,
    }


def compile_kernels() -> None:
    """Into the user's cache, of which every run gets a copy: no run of a night compiles what all of them need."""
    with suppress(ImportError):  # a script of the user's own may do without the package
        from kernels.device import kernel_device

        kernel_device()


if __name__ == "__main__":
    main(sys.argv[1])
