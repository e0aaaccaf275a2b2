"""Do the tests find what breaks a promise? Faults are planted in a copy of the working tree, one at a time.

    python benchmarks/planted_faults.py [--only NAME …] [--quick] [--json FILE]

planted_faults.txt lists the faults: name and promise, the file and the test of the promise, the lines to replace (-)
and what replaces them (+), as in a patch; the indentation of the first line does not matter. For each, the test of its
promise runs in the copy, slow or not; where that passes, the tests of its file; where those pass, README's command. A
fault is found where a test fails, or does not end, that passes without it; it is missed where all pass. --quick only
checks that each fault can still be planted: its lines are in the file exactly once, and the file still parses without
them. This check comes first in each form.

Flat keys of --json: planted, found, missed, NAME_found, NAME_by (the test), NAME_s, missed_names.
Exit code 1 where a fault is missed.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import measure
from measure import Folder, Quick

LIST = measure.HERE / "planted_faults.txt"
LIMIT_S = 600.0  # s for one run of tests; README's take three minutes on an idle machine


@dataclass(frozen=True)
class Fault:
    """Lines of a file, the lines that replace them, and the promise that this breaks."""

    name: str
    promise: str
    file: str  # such as agent/git.py
    test: str  # test of the promise
    old: str
    new: str

    @classmethod
    def read(cls, block: str) -> "Fault":
        """Read a paragraph of the list."""
        title, places, *lines = block.splitlines()
        name, _, promise = title.partition(": ")
        file, _, test = places.partition(", found by ")
        old, new = ("\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in ("- ", "+ "))
        return cls(name, promise, file, test, old, new)

    def rounds(self, tree: Path) -> list[tuple[str, ...]]:
        """Return the tests that are to find it, the few that know it best first; (): README's."""
        mirrored = Path("tests", *Path(self.file).parts[1:-1], f"test_{Path(self.file).name}")
        own = [str(mirrored)] if (tree / mirrored).is_file() else []
        return [*((test,) for test in dict.fromkeys([self.test, *own])), ()]

    def planted(self, tree: Path) -> str:
        """Return the file's text with the fault; raise Misuse where it cannot be planted in this tree."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (count := text.count(self.old)) != 1:
            where = f"{self.name}: {self.file} has its lines {count} times, not once"
            raise measure.Misuse(f"{where}; correct the fault in {LIST.name}, or take it out")
        faulty = text.replace(self.old, self.new)
        try:
            ast.parse(faulty)
        except SyntaxError as error:
            raise measure.Misuse(f"{self.name}: {self.file} does not parse with it ({error})") from error
        return faulty


def read_faults(path: Path) -> list[Fault]:
    """Read the list; a line that begins with # is a heading."""
    return [
        Fault.read(block)
        for block in path.read_text(encoding="utf-8").strip().split("\n\n")
        if not block.startswith("#")
    ]


# ---- planting --------------------------------------------------------------------------------------------------------


def copied(tree: Path, to: Path) -> Path:
    """Copy the working tree: what git tracks, and new files that it does not ignore."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=tree, capture_output=True, encoding="utf-8", check=True).stdout.split("\0")
    for name in filter(None, names):
        if (tree / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, to / name)
    return to


def failing(tree: Path, tests: Sequence[str]) -> str | None:
    """Run these tests in a tree, README's where none are named, and return the first that fails or has no end."""
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}  # a stale .pyc would hide a fault
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    if len(tests) == 1 and ".py" in tests[0]:
        command += ["-n", "0", "-m", ""]  # the slow ones, too
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, encoding="utf-8", timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_S:.0f} s"
    if done.returncode not in (0, 1, 2):  # 2: a module of tests cannot be read, as with a fault that ends imports
        raise measure.Failed(f"{' '.join(command)} ended with exit code {done.returncode}: {done.stderr[-500:]}")
    named = re.search(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout)
    return None if done.returncode == 0 else named[1] if named else done.stdout[-200:]


def found_by(tree: Path, fault: Fault, text: str, tests: Sequence[str]) -> str | None:
    """Return the first test that fails while the fault is planted; raise Failed if it fails without it, too."""
    path = tree / fault.file
    honest = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    broken = failing(tree, tests)
    path.write_text(honest, encoding="utf-8")
    if broken and "::" in broken and failing(tree, [broken]):
        raise measure.Failed(f"{broken} fails without any fault: repair it, since such tests find nothing")
    return broken


@measure.program(lambda flat: bool(flat.get("missed")))
def main(*, folder: Folder, quick: Quick, only: Sequence[str] = ()) -> measure.Flat:
    """Plant the faults, one at a time.

    Args:
        only: the names of these faults
    """
    faults = measure.chosen({fault.name: fault for fault in read_faults(LIST)}, only)
    planted = {fault: fault.planted(measure.ROOT) for fault in faults}
    flat: measure.Flat = {"planted": len(planted)}
    if quick:
        return flat
    tree, missed = copied(measure.ROOT, folder / "tree"), list[str]()
    for fault, text in planted.items():
        began = time.monotonic()
        by = next(filter(None, (found_by(tree, fault, text, tests) for tests in fault.rounds(tree))), None)
        key, seconds = fault.name.replace(" ", "_"), time.monotonic() - began
        flat |= {f"{key}_found": int(by is not None), f"{key}_by": by, f"{key}_s": seconds}
        missed += [] if by else [fault.name]
        measure.say(f"{'found' if by else 'MISSED':>6}  {seconds:4.0f} s  {fault.name}, by {by}")
    return {**flat, "found": len(faults) - len(missed), "missed": len(missed), "missed_names": "; ".join(missed)}


if __name__ == "__main__":
    raise SystemExit(main())
