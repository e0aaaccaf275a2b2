"""Commands that are killed at a call that changes a file, and given again: pack, unpack, init, export and more.

Each has a scene: a folder with a repository in it, and the states before and after the command. After a kill, each file
there is whole, as before or as after. The second call ends in the same state as an undisturbed one.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import kills
import measure
from kills import LIMIT_S, ORPHAN_S, Ended, Fault, Reference, Strike, Tally, facts_of
from nights import command, git, make_repository, unigram

from agent.errors import NightshiftError
from agent.night.lock import only_night
from agent.proposers.queue import submit
from agent.records.journal import Journal
from agent.records.place import Place

QUICK_KILLS, MOST_KILLS = 4, 30  # kills of one command
GIT = ".git"
GIT_KNOWS = (
    "rev-parse HEAD^{tree}", "for-each-ref --format=%(refname):%(tree)", "ls-files -s", "fsck --strict --no-dangling",
)  # fmt: skip
PREPARES = """
import os
from pathlib import Path
import prepare
from agent.lab import corpus
text = Path(os.environ["NIGHTSHIFT_DATA"]).parents[2] / "library.txt"
scale = corpus.Scale("faults", seq_len=128, vocab_size=512, eval_tokens=4096)
prepare.prepare(str(text), scale, cache=Path("cache"), workers=1)
"""
READERS = ("journal.sqlite-shm", "journal.sqlite-wal")  # empty files that readers leave
OWN_TIME = re.compile(rb"(?m)^Submitted: .*$")  # the time in an entry of the queue
State = Mapping[str, object]  # the files of a scene, and the content of each


# ---- scenes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A command, the files before it, and its answer to a second call that has nothing left to do."""

    name: str
    command: list[str]
    lay: Callable[[Path], object] = lambda root: None
    refusal: str = ""
    in_a_night: bool = False  # a night's lock is held while the command runs


def run(root: Path, *call: str) -> None:
    subprocess.run(call, cwd=root, env=measure.with_path(), check=True, capture_output=True)


def arrived(root: Path) -> None:
    """Put a file of the night beside a repository that knows nothing of it."""
    run(root, *command("pack", "--out", "../t.tar.gz"))
    shutil.rmtree(root)
    make_repository(root, unigram())


def packed_away(root: Path) -> None:
    run(root, *command("pack", "t", "--remove"))
    for ref in git(root, "for-each-ref", "--format=%(refname)", "refs/experiments", "refs/heads/experiments").split():
        git(root, "update-ref", "-d", ref)


def emptied(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


def edited(root: Path) -> None:
    (root / "idea.py").write_text(unigram(SHARPNESS=0.77), encoding="utf-8")


def in_queue(root: Path) -> None:
    """Let a try wait, of a script that the night has tried."""
    tried = git(root, "show", "refs/experiments/t/0001:train_mlx.py")
    place = Place.of(root / "train_mlx.py")
    submit(place.queue, f"{tried}\n", "sharper", script="train_mlx.py", now="", words=("--tag", "t"))


EDIT = ("--anyway", "--edit", "idea.py", "-m", "sharper")
CASES = (
    Case("pack", command("pack", "--out", "../t.tar.gz"), refusal="is there already"),
    Case("unpack", command("unpack", "../t.tar.gz"), arrived, "is there already"),
    Case("pack --remove", command("pack", "t", "--remove")),
    Case("unpack of packed", command("unpack", "t"), packed_away, "is there already"),
    Case("init", command("init"), emptied),
    Case("export", command("export", "record", "t"), lambda root: run(root, *command("export", "record", "t"))),
    Case("try --queue", command("try", "--queue", *EDIT), edited, "waits already"),
    Case("try --start", command("try", "--start", *EDIT), edited, "waits already", in_a_night=True),
    Case("run --drain", command("run", "--drain", "--tag", "t"), in_queue),
    Case("prepare", [sys.executable, "-B", "-c", PREPARES]),  # -B: the bytecode that Python keeps is none of ours
)


# ---- killing ---------------------------------------------------------------------------------------------------------


def every_fault(reference: Reference, quick: bool) -> Iterator[Fault]:
    most = QUICK_KILLS if quick else MOST_KILLS
    return (Fault(case.name, killed, (reference, number, most)) for number, case in enumerate(CASES))


def killed(folder: Path, tally: Tally, reference: Reference, number: int, most: int) -> None:
    """Kill one command at as many calls as are asked for, the first and the last among them."""
    case, laid, whole = CASES[number], folder / "laid", folder / "whole"
    left_out = shutil.ignore_patterns("warm", "results.tsv.lock")
    shutil.copytree(reference.folder / "user", laid / "user", symlinks=True, ignore=left_out)
    call(command("status"), laid / "user")  # status keeps a file of its own in the night's folder
    case.lay(laid / "user")
    before = state_of(laid)
    shutil.copytree(laid, whole, symlinks=True)
    end = call(case.command, whole / "user", Strike(), folder / "points.txt", in_a_night=case.in_a_night)
    if end.code != 0:
        raise measure.Failed(f"{case.name} by itself ended with exit code {end.code}: {end.said[-300:]}")
    after = state_of(whole)
    for point in sorted({1 + round(index * (len(end.points) - 1) / (most - 1)) for index in range(most)}):
        struck = folder / str(point)
        shutil.copytree(laid, struck, symlinks=True)
        mine = kill_at(point, case, struck, before, after)
        tally.add(mine)
        if not mine.notes:
            shutil.rmtree(struck)


def kill_at(number: int, case: Case, folder: Path, before: State, after: State) -> Tally:
    """Kill the command at one call, check, give it again, and check again."""
    tally, root = Tally(Counter(command_kills=1)), folder / "user"
    strike = Strike(number, torn=number % 2)
    end = call(case.command, root, strike, folder.with_suffix(".txt"), in_a_night=case.in_a_night)
    if not end.killed:
        raise measure.Failed(f"{case.name} was not killed at {number}: it ended with {end.code}, {end.said}")
    check_between(state_of(folder), before, after, tally)
    check_words(call(command("status"), root), (0, 2, 3), tally)
    again = call(case.command, root, in_a_night=case.in_a_night)
    check_words(again, (0, 2) if case.refusal else (0,), tally)
    if again.code == 2 and case.refusal not in again.said:
        tally.blame("lost", f"the second call says: {again.said.strip()[-300:]}")
    check_after(state_of(folder), after, tally)
    tally.notes = [f"{note}  [killed at {number}: {end.points[-1]}; see {folder}]" for note in tally.notes]
    return tally


def check_between(now: State, before: State, after: State, tally: Tally) -> None:
    """Check that no file is half of what it was or is to be, and that none is gone before all else is there."""
    for path in (now.keys() & (before.keys() | after.keys())) - {GIT}:
        if now[path] not in (before.get(path), after.get(path)):
            tally.blame("damaged", f"{path} is neither as before nor as after")
    if not after.items() <= now.items():
        lost = [path for path, content in before.items() if path not in now and content not in now.values()]
        tally.blame("lost", f"gone: {lost[:3]}", len(lost))


def check_after(now: State, after: State, tally: Tally) -> None:
    """Check that the second call ends in the state in which an undisturbed one does."""
    lost, others = after.keys() - now.keys(), {path for path in now if now[path] != after.get(path)}
    tally.blame("lost", f"not there after the second call: {sorted(lost)[:3]}", len(lost))
    tally.blame("damaged", f"left behind, or not as undisturbed: {sorted(others)[:3]}", len(others))


def call(
    words: Sequence[str], root: Path, strike: Strike | None = None, trace: Path = Path(), *, in_a_night: bool = False
) -> Ended:
    """Give a command, wait for all of its processes, and return how it ended."""
    env, said = {**measure.with_path(), **(strike.env(trace) if strike else {})}, root.parent.with_suffix(".said")
    with only_night(root / GIT) if in_a_night else nullcontext():
        process = kills.begin(words, root, said, env)
        try:
            code = process.wait(LIMIT_S)
        finally:
            process.kill()  # some commands have no end
        until = time.monotonic() + ORPHAN_S
        while kills.running() and time.monotonic() < until:  # a git command outlives the call that was killed
            time.sleep(0.01)
    points = trace.read_text(encoding="utf-8", errors="replace").splitlines() if strike else []
    return Ended(code, said.read_text(encoding="utf-8", errors="replace"), points)


def check_words(end: Ended, codes: tuple[int, ...], tally: Tally) -> None:
    if end.code not in codes or "Traceback" in end.said:
        tally.blame("tracebacks", f"exit code {end.code}: {end.said.strip()[-400:]}")


# ---- states ----------------------------------------------------------------------------------------------------------


def state_of(folder: Path) -> State:
    """Return the content of each file of a scene, without the time at which it was written, and what git knows."""
    state: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if f"/{GIT}/" in name:
            if name.endswith(".lock") and not path.name.startswith("nightshift"):
                state[name] = b""
        elif path.is_file() and path.name not in READERS and not path.name.endswith((".lock", ".log")):
            state[name] = content_of(path, str(folder))
    root = folder / "user"
    if (root / GIT).exists():
        answers = [
            subprocess.run(["git", *ask.split()], cwd=root, capture_output=True, check=False) for ask in GIT_KNOWS
        ]
        state[GIT] = [(answer.returncode, answer.stdout) for answer in answers]
    return state


def content_of(path: Path, folder: str) -> object:
    try:
        if path.name == "journal.sqlite":
            with Journal.read(path) as journal:
                night = journal.night()
                return night.tag, night.started, night.pins, frozenset(facts_of(journal.attempts()))
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as tar:
                files = (member for member in tar if member.isreg() and member.name != "contents.json")
                return {member.name: tar.extractfile(member).read() for member in files}  # type: ignore[union-attr]
    except (NightshiftError, OSError, EOFError, tarfile.TarError) as error:
        return f"{type(error).__name__}: {error}"
    return OWN_TIME.sub(b"", path.read_bytes().replace(folder.encode(), b""))
