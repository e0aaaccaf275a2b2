"""Where a night's processes work: a fresh folder for each, and what is read from it afterwards.

A script may leave anything there: links to other places, pipes, folders a thousand deep. It is read as bytes from plain
files, never through a link, and never more than asked for.
"""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent.errors import Starved
from agent.experiment import Ending, Night, Progress, Run
from agent.files import remove
from agent.sandbox.box import Box, View
from agent.sandbox.environment import TMP, boxed_env
from agent.sandbox.limits import Caps
from agent.sandbox.process import LOG, Outcome, read_tail, supervise

WEIGHTS = "out/model.safetensors"
SHOWN = ("manifest.json", "token_bytes.npy", "tokenizer.*")  # of a corpus, to every box
TRAINING_TEXT = ("train.*",)  # and to training alone: in a scoring box a script could train on, off the clock
WARM = ("cache/kernels", "cache/blas", "mlx", ".nv")  # machine code that a run leaves in its TMPDIR for the next one
MAX_WARM_BYTES = 512 << 20
STARVED_TRIES, STARVED_WAIT_S = 3, 60.0  # other programs are given some time to leave memory and disk again
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Workshop:
    """A night's box and folders, and how its processes are watched."""

    night: Night
    folder: Path  # experiments/nights/<tag>
    box: Box
    caps: Caps
    allowance_s: float | None  # beyond the budget; None: learnt from attempt 0
    stopped: Callable[[], bool]  # has the user asked to end the run itself?
    progressed: Callable[[Progress | None, float], None]

    @property
    def fixed(self) -> Path:
        return self.folder / "fixed"

    @property
    def warm(self) -> Path:
        """The machine code that every run begins with; only attempt 0, the user's own script, has filled it."""
        return self.folder / "warm"

    @property
    def script_name(self) -> str:
        return Path(self.night.script).name

    def run_folder(self, number: int, seed: int) -> Path:
        return self.folder / "runs" / f"{number:04d}" / f"seed{seed}"

    def score_folder(self, number: int, seed: int) -> Path:
        """Beside the run's folder, as all that the harness itself writes: within, a script could have laid a link."""
        return self._beside(number, seed, "score")

    def audit_folder(self, number: int, seed: int) -> Path:
        return self._beside(number, seed, "audit")

    def dry_folder(self, number: int) -> Path:
        return self.folder / "runs" / f"{number:04d}" / "dry"

    def losses(self, number: int, seed: int, split: str = "validation") -> Path:
        """What the scorer committed to: float32, one for every token of the evaluation rows."""
        return self._beside(number, seed, "losses.f32" if split == "validation" else f"{split}.f32")

    def evidence(self, number: int, seed: int, split: str = "validation") -> Path:
        """What a failed audit found."""
        return self._beside(number, seed, "audit.json" if split == "validation" else f"{split}.audit.json")

    def weights(self, number: int, seed: int) -> Path:
        return self.run_folder(number, seed) / WEIGHTS

    def drop_weights(self, number: int, seed: int) -> None:
        """Space for the next run; what a script put in the place of its weights stays, being none of our files."""
        for split in ("validation", "holdout"):
            self.losses(number, seed, split).unlink(missing_ok=True)
        if weights_bytes(self.run_folder(number, seed)) is not None:
            _reopen(self.weights(number, seed).parent)
            self.weights(number, seed).unlink(missing_ok=True)

    def _beside(self, number: int, seed: int, what: str) -> Path:
        folder = self.run_folder(number, seed)
        return folder.with_name(f"{folder.name}.{what}")

    def log(self, number: int, run: Run) -> Path:
        """What the last process about this run said: its scoring, where the training ended well."""
        folder = self.score_folder if run.ending is Ending.FINISHED else self.run_folder
        return folder(number, run.seed) / LOG

    def lay_out(self, folder: Path, script: str) -> None:
        """A fresh folder with the committed script, the fixed files and the warm caches; what was there is gone."""
        remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self.fixed.is_dir():  # where it was swept away with its night, the pins end the night
            shutil.copytree(self.fixed, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        (folder / self.script_name).write_bytes(script.encode())
        # a copy: what a run does to its caches ends with it
        if self.warm.is_dir():
            shutil.copytree(self.warm, folder / TMP)
        (folder / TMP / "cache").mkdir(parents=True, exist_ok=True)

    def call(
        self,
        command: list[str],
        folder: Path,
        limit_s: float,
        *readable: Path,
        trains: bool = False,
        progress: Callable[[], Progress | None] = lambda: None,
        hopeless: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Run a command, boxed, in a folder that was laid out; it sees the readable files besides.

        Only one that trains is shown the training text.
        """
        outcome = supervise(
            command,
            self.view(folder, *readable, trains=trains),
            box=self.box,
            caps=self.caps,
            env=boxed_env(folder, self.night.data),
            limit_s=limit_s,
            stopped=self.stopped,
            tick=lambda elapsed_s: self.progressed(progress(), elapsed_s),
            hopeless=hopeless,
        )
        _reopen(folder)
        # what runs with the rights of its owner would do so for whoever finds it later
        subprocess.run(["chmod", "-R", "ug-s", "--", str(folder)], capture_output=True, check=False)
        return outcome

    def wait(self, wait_s: float) -> None:
        """Until that has passed, or the user wants the run itself to end."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and not self.stopped():
            time.sleep(min(POLL_S, wait_s))

    def view(self, folder: Path, *readable: Path, trains: bool = False) -> View:
        data, patterns = Path(self.night.data), (*SHOWN, *(TRAINING_TEXT if trains else ()))
        shown = (path for pattern in patterns for path in sorted(data.glob(pattern)))
        root = self.folder.parents[2]
        return View(folder, (*shown, *readable), hidden=(root, Path.home(), data))

    def drop_temporary(self, folder: Path) -> None:
        remove(folder / TMP)

    def drop_all_but_log(self, folder: Path) -> None:
        """What a scorer worked on is as large as the evaluation text, and all here already."""
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name != LOG:
                remove(path)

    def keep_warm(self, folder: Path) -> None:
        """Add the machine code that a training run of attempt 0 compiled; more than is plausible is left alone.

        Only training: a scorer has seen validation text, and could leave it there for whoever comes later.
        """
        fresh = self.folder / "warm.new"
        remove(fresh)
        with suppress(OSError, RecursionError):  # closed, or nested without end: nothing that a compiler leaves
            if self.warm.is_dir():
                shutil.copytree(self.warm, fresh)
            for name in WARM:
                if _is_folder_without_links(folder, f"{TMP}/{name}"):
                    shutil.copytree(folder / TMP / name, fresh / name, ignore=_links_and_pipes, dirs_exist_ok=True)
            size = sum(path.stat().st_size for path in fresh.rglob("*") if path.is_file())
            if fresh.is_dir() and size <= MAX_WARM_BYTES:
                remove(self.warm)  # killed right here, the night goes on with cold caches
                fresh.replace(self.warm)
        remove(fresh)


class Repeats:
    """Which processes are done over because of what the machine did; for those that no journal lists one by one."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._late = False
        self._starved = 0

    def wanted(self, ending: Ending, words: str, busy: str | None) -> bool:
        """Whether one that ended like this is done again; raises Starved when there was no room several times.

        After a sleep each time, after an overrun on a busy machine once.
        """
        if ending is Ending.STARVED:
            self._starved += 1
            if self._starved >= STARVED_TRIES:
                raise Starved(words.rpartition("\n")[2])
            self._shop.wait(STARVED_WAIT_S)
            return True
        if busy is not None and not self._late:
            self._late = True
            return True
        return ending is Ending.SLEPT


def _is_folder_without_links(root: Path, name: str) -> bool:
    steps = [root / name, *(root / step for step in Path(name).parents)]
    return all(step.is_dir() and not step.is_symlink() for step in steps)


def _links_and_pipes(folder: str, names: list[str]) -> list[str]:
    kinds = {name: (Path(folder) / name).lstat().st_mode for name in names}
    return [name for name, mode in kinds.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]


def _reopen(folder: Path) -> None:
    """A script may close a folder to everybody, us included; what is in there is removed later."""
    with suppress(OSError):
        if not folder.is_symlink():
            folder.chmod(0o700)


@contextmanager
def open_plain(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Open a plain file right in this folder; raises OSError for a link, a pipe or nothing."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # a pipe of that name would keep a plain open waiting without end
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=inside)
    finally:
        os.close(inside)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):  # before Python makes a file of it, which fails for a folder
            raise OSError(f"{folder / name} is no plain file")
        with os.fdopen(file, "rb", closefd=False) as plain:
            yield plain
    finally:
        os.close(file)


def read_end(folder: Path, name: str, most_bytes: int) -> bytes:
    """The last bytes of a plain file right in this folder; raises OSError for anything else."""
    with open_plain(folder, name) as plain:
        return read_tail(plain, most_bytes)


def weights_bytes(run_folder: Path) -> int | None:
    """Return the size of the plain weights that a script left in its own out folder; None where there are none.

    Links do not count, since they could lead to the weights of another run.
    """
    weights = run_folder / WEIGHTS
    with suppress(OSError):
        found = weights.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and not weights.parent.is_symlink():
            return found.st_size
    return None
