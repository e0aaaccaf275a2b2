"""The benchmark of the data path: every figure is there, and its own sentences for what it cannot do."""

import json
import subprocess
import sys

import pytest
from conftest import write_library_text
from nights import PROJECT

PROGRAM = PROJECT / "benchmarks" / "data_speed.py"


def data_speed(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PROGRAM, *options], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[str, dict]:
    folder = tmp_path_factory.mktemp("data_speed")
    text = write_library_text(folder / "library.txt", chars=1_500_000)
    options = (
        "--text",
        str(text),
        "--text-mb",
        "4",
        "--seconds",
        "0.05",
        "--quick",
        "--json",
        str(folder / "found.json"),
    )
    done = data_speed(*options)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "found.json").read_text())


@pytest.mark.slow
def test_every_part_has_its_table_and_its_figures(measured):
    said, found = measured
    for words in (
        "preparing 2 MB in 1 file",
        "the loader on one core",
        "one thread of tiktoken",
        "with start and end of the processes",
    ):
        assert words in said
    assert all(value > 0 for value in found.values() if not isinstance(value, str))
    assert isinstance(found["machine"], str)


@pytest.mark.slow
def test_the_loader_is_judged_by_its_slowest_shape_with_everything_that_training_waits_for(measured):
    _, found = measured
    uploads = [value for name, value in found.items() if name.endswith("_upload_tokens_s")]
    assert len(uploads) == 4
    assert found["loader_tokens_s"] == min(uploads)


@pytest.mark.slow
def test_tokenising_is_compared_by_megabytes_a_second_without_the_start_of_the_processes_and_with_it(measured):
    _, found = measured
    assert found["tokenise_text_mb"] == pytest.approx(4, abs=2)
    assert found["tokenise_ratio"] == pytest.approx(
        found["tokenise_mb_s"] / found["tokenise_one_thread_mb_s"], rel=1e-3
    )
    assert found["tokenise_goal"] == pytest.approx(0.9 * found["cores"])
    assert found["tokenise_ratio_with_start"] < found["tokenise_ratio"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json", "/nowhere/found.json"], "--json /nowhere/found.json cannot be written"),
        (["--text", "/nowhere"], "no dataset '/nowhere'"),
        (["--text-mb", "0"], "0 is not above zero"),
    ],
)
def test_misuse_is_one_sentence(options, words):
    done = data_speed(*options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
