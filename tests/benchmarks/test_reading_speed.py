"""The benchmark of what it costs to look at a night, in small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import train_mlx
from agent.cli.main import FILES

BENCHMARKS = Path(train_mlx.__file__).parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import reading_speed  # noqa: E402


@pytest.mark.slow
def test_every_command_that_looks_at_a_night_is_timed(tmp_path):
    flat_file = tmp_path / "flat.json"
    sizes = ("--sizes", "5", "9", "--calls", "1")
    command = [sys.executable, BENCHMARKS / "reading_speed.py", *sizes, "--folder", tmp_path, "--json", flat_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    flat = json.loads(flat_file.read_text())
    for name in reading_speed.COMMANDS:
        for size in (5, 9):
            assert 0 < flat[f"{name}_cpu_s_{size}"] < 60
            assert 0 < flat[f"{name}_s_{size}"] < 60
    assert flat["first_status_s_5"] > 0
    assert ("report_mb_9" in flat) == ("report" in FILES)


@pytest.mark.parametrize("options", [["--calls", "0"], ["--sizes", "100", "100"], ["--sizes", "0"]])
def test_sizes_that_do_not_grow_are_refused(options, capsys):
    with pytest.raises(SystemExit) as caught:
        reading_speed.main(options)
    assert caught.value.code == 2
    assert "must be above zero" in capsys.readouterr().err
