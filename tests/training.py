"""Runs of the training script that take seconds."""

import os
import subprocess
import sys
from pathlib import Path

from nights import python_path

import train_mlx

SCRIPT = Path(train_mlx.__file__)


def run_script(data: Path, *options: str, script: Path = SCRIPT) -> subprocess.CompletedProcess:
    env = {**os.environ, "NIGHTSHIFT_DATA": str(data), "PYTHONPATH": python_path(SCRIPT.parent)}
    return subprocess.run([sys.executable, script, *options], env=env, capture_output=True, text=True, timeout=600)


def with_dials(tmp_path: Path, **values: object) -> Path:
    """The script with some dials overwritten, as an edit would."""
    source = SCRIPT.read_text()
    marker = "# ---------------------------------------------------------------------------\n# The model"
    assert marker in source
    dials = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    path = tmp_path / "train_mlx.py"
    path.write_text(source.replace(marker, dials + marker))
    return path


SMALL = {"DEPTH": 2, "ASPECT_RATIO": 32, "HEAD_DIM": 32, "BATCH_ROWS": 2, "LOG_EVERY_S": 0.0}
