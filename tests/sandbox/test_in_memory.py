"""No file tells a process in a sandbox what an earlier sandbox has read: none is waited for."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from nights import PROJECT, Quiet, bubblewrap, kernels_own, usable
from samples import NIGHT

from agent.runs.runner import Runner
from agent.sandbox import in_memory, places
from agent.sandbox.sandboxes import Open
from agent.sandbox.supervisor import limits_of_machine

pytestmark = pytest.mark.skipif(not in_memory.available(), reason="this kernel cannot hold files in memory")

FILES = 64
FEW = 4  # pages that other programs put out meanwhile
READ = """
import sys
for path in 3 * sys.argv[1:]: open(path, 'rb').read()  # the kernel tells a page used twice from one used once
"""
# Reads files one by one, in three ways in turn; for each it says by how much counters have changed, and what the kernel
# tells of its pages.
COUNT = """
import json, mmap, os, resource, sys

def counters():
    told = {}
    for name, whose in (("self", resource.RUSAGE_SELF), ("thread", resource.RUSAGE_THREAD),
                        ("children", resource.RUSAGE_CHILDREN)):
        usage = resource.getrusage(whose)
        told |= {f"{name} faults": usage.ru_majflt, f"{name} blocks": usage.ru_inblock}
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    told |= {"stat faults": int(fields[9]), "stat children's": int(fields[10]), "stat ticks": int(fields[39])}
    try: told["bytes"] = int(open("/proc/self/io").read().partition("read_bytes: ")[2].split()[0])
    except OSError: pass
    return told

def mapped(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        pages[0]
        lines = open("/proc/self/smaps").read().partition(path)[2].splitlines()[1:20]
        try: numa = open("/proc/self/numa_maps").read().partition(path)[2].partition("\\n")[0].split()
        except OSError: numa = []
    told = {line.split()[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    return told | {"numa": " ".join(field for field in numa if field.startswith("active="))}

def by_a_child(path):
    child = os.fork()
    if not child: mapped(path); os._exit(0)
    os.wait4(child, 0)
    return {}

def listed(path):
    os.listdir(os.path.dirname(path)); os.stat(path); open(path, "rb").read()
    return {}

def told_by(path, way):
    before = counters()
    seen, after = way(path), counters()
    return seen | {name: after[name] - before[name] for name in after}

ways = (mapped, by_a_child, listed)
for way in ways: told_by(__file__, way)
told = {path: told_by(path, ways[at // 2 % 3]) for at, path in enumerate(sys.argv[1:])}
with open("told.json", "w") as file: json.dump(told, file)
"""


@pytest.fixture(params=[bubblewrap, pytest.param(kernels_own, marks=pytest.mark.slow)], ids=["bubblewrap", "landlock"])
def runner(request: pytest.FixtureRequest, tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Return what runs sandboxes on a system with another folder."""
    (tmp_path / "system").mkdir()
    monkeypatch.setattr(places, "SYSTEM", (*places.SYSTEM, str(tmp_path / "system")))
    night, sandbox = replace(NIGHT, data=str(tiny_data)), usable(request.param())
    limits, user = limits_of_machine(), tmp_path / "user"
    return Runner(night, tmp_path / "night", sandbox, limits, lambda: False, Quiet().progressed, root=user)


def written(folder: Path) -> list[Path]:
    """Write files, each in a folder of its own."""
    files = [folder / str(number) / "file" for number in range(FILES)]
    for path in files:
        path.parent.mkdir(parents=True)
        path.write_bytes(random.randbytes(3 * 4096))
    os.sync()  # the kernel puts no page out that was not written
    return files


def put_out(files: list[Path]) -> None:
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(runner: Runner, code: str, *files: Path) -> Path:
    """Run a program in a sandbox, and return its folder."""
    folder = runner.folder / "run"
    runner.lay_out(folder, code)
    done = runner.call([sys.executable, runner.script_name, *map(str, files)], folder, 60)
    assert done.exit_code == 0, done.last_lines
    return folder


def told(runner: Runner, files: list[Path]) -> dict[str, int]:
    """Have a sandbox read half of the files, and another ask the kernel about all of them, half and half in turn.

    Return by name for how many of the files that were read its answer is none that it has for the others.
    """
    put_out(files)
    mixed = random.sample(files, FILES)
    read, others = mixed[::2], mixed[1::2]
    run(runner, READ, *read)
    answers = json.loads((run(runner, COUNT, *mixed) / "told.json").read_text())
    names = {name for answer in answers.values() for name in answer}
    of_read, of_others = ([answers[str(path)] for path in half] for half in (read, others))
    return {name: (_counted(of_read, name) - _counted(of_others, name)).total() for name in names}


def _counted(answers: list[dict[str, object]], name: str) -> "Counter[object]":
    return Counter(answer.get(name) for answer in answers)


LIMITED = """
import resource, sys
from pathlib import Path
from agent.sandbox.in_memory import HELD
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
HELD.bring_in([Path(sys.argv[1])])
"""


def test_a_limit_of_addresses_that_is_too_low_is_named(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(8 << 30)
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], cwd=PROJECT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("agent.errors.MachineError: ")
    assert "(8.0 GB)" in done.stderr


def test_no_sandbox_can_tell_which_files_another_has_read_even_of_a_package_installed_meanwhile(runner):
    files = written(Path(places.SYSTEM[-1]))
    unboxed = told(replace(runner, sandbox=Open("compared with")), files)
    if max(unboxed.values()) <= FEW:
        pytest.skip("files here are in memory alone")
    assert max(told(runner, files).values()) <= FEW
    installed = written(Path(places.SYSTEM[-1]) / "package")
    assert max(told(runner, installed).values()) <= FEW


@pytest.mark.parametrize("sandbox", [bubblewrap, kernels_own])
def test_a_sandbox_that_shows_more_files_than_can_be_held_says_so(sandbox, tmp_path, monkeypatch):
    sandbox = usable(sandbox())
    covered = sandbox.uncovered
    (tmp_path / "most").write_text(f"{in_memory.OTHER_MAPPINGS + 100}\n")
    monkeypatch.setattr(in_memory, "MOST_MAPPINGS", tmp_path / "most")
    (gap,) = set(sandbox.uncovered) - set(covered)
    assert "max_map_count" in gap
