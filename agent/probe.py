"""Runs beside the fixed files in a short process: names the device and the data, and prepares the data if missing.

The harness asks this way because a process that imports MLX holds memory of the device, and a night is long.

    python probe.py ANSWER.json
"""

import json
import sys
from pathlib import Path


def main(answer: str) -> None:
    sys.path.insert(0, str(Path.cwd()))  # the user's own prepare.py and hardware.py, not the installed ones
    import hardware

    hardware.tune_cpu()
    import prepare
    from corpus import DataError

    try:
        data = prepare.ensure_data()
    except DataError as error:
        write(answer, {"error": str(error)})
        return
    device = {"device_kind": hardware.device_kind(), "device": hardware.device_name()}
    write(answer, {**device, "data": str(data.folder), "fingerprint": data.fingerprint})


def write(answer: str, facts: dict[str, str]) -> None:
    Path(answer).write_text(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1])
