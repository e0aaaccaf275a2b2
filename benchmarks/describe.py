"""Print, as one JSON line, what a training script would train here: its dials, its model, the corpus, the device.

    python benchmarks/describe.py train_mlx.py

This is a separate process, so that the program that measures loads neither MLX nor the device.
"""

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import measure  # noqa: F401  (puts the repository on the path)

import prepare
from agent.lab import hardware


def load(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_mlx", script)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["train_mlx"] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def dials(module: ModuleType) -> dict[str, Any]:
    """Its constants, of those that JSON knows; MLX's data types by their names."""
    found = {}
    for name, value in vars(module).items():
        if name.isupper() and (value is None or isinstance(value, bool | int | float | str)):
            found[name] = value
        elif name.isupper() and str(value).startswith("mlx.core."):
            found[name] = str(value).removeprefix("mlx.core.")
    return found


def main(script: Path) -> None:
    data = prepare.ensure_data()
    module = load(script)
    config = asdict(module.config_from_dials(vocab_size=data.vocab_size, seq_len=data.seq_len))
    corpus = {"folder": str(data.folder), "fingerprint": data.fingerprint, "seq_len": data.seq_len}
    print()  # so that the JSON is a separate line, whatever was printed above
    print(json.dumps({"device": hardware.describe(), "corpus": corpus, "model": config, "dials": dials(module)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
