"""Runs beside the fixed files in a short process: names the device and the data, and prepares the data if missing.

The harness asks this way because a process that imports MLX holds memory of the device, and a night is long.

    python probe.py ANSWER.json
"""

import importlib.metadata
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
        facts = look(hardware, prepare)
    except DataError as error:
        facts = {"error": str(error)}
    Path(answer).write_text(json.dumps(facts))


def look(hardware, prepare) -> dict[str, object]:  # type: ignore[no-untyped-def]
    prepare.ensure_data()
    data = prepare.load_data()
    return {
        "device_kind": hardware.device_kind(),
        "device": hardware.device_name(),
        "memory_bytes": hardware.memory_bytes(),
        "mlx": importlib.metadata.version("mlx"),
        "data": str(data.folder),
        "fingerprint": data.fingerprint,
        "seq_len": data.seq_len,
        "vocab_size": data.vocab_size,
    }


if __name__ == "__main__":
    main(sys.argv[1])
