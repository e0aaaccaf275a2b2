"""Run a night's processes in their sandbox and in fresh folders.

A script may leave anything in its folder: agent/files.py reads its files safely.
"""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import MachineError
from agent.experiment import SPLITS, Ending, Night, Split, repetitions
from agent.files import home_folder, plain_bytes, remove
from agent.invocation import typed
from agent.judging.failures import machine_fault
from agent.records.place import run_folder
from agent.runs.reported import SEED
from agent.sandbox.environment import TMP, sandbox_env
from agent.sandbox.places import View, places_of
from agent.sandbox.process import LOG, Outcome, supervise
from agent.sandbox.sandboxes import Sandbox, bring_in
from agent.sandbox.supervisor import ResourceLimits
from agent.work import LOCAL, WHOLE, DeviceSlot, Progress

WEIGHTS = "out/model.safetensors"
SHOWN = ("manifest.json", "token_bytes.npy", "tokenizer.*")  # files of the corpus in every sandbox
TRAINING_TEXT = ("train.*",)  # files that only a training sandbox has: a script that is scored could go on training
WARM = ("cache/kernels", "cache/blas", "mlx", ".nv")  # compiled code in a run's TMPDIR, copied to later runs
KEPT = "mlx"  # one of these folders; it exists, maybe empty, once attempt 0's code was kept
MAX_WARM_BYTES = 512 << 20
MAX_RESULT_BYTES = 64 << 20  # a log, a curve or a summary may have this size
REST_S, REST_SHARE = 60.0, 0.2  # the pause before an invalid run is repeated: 60 s, or this share of a short budget
POLL_S = 0.05
WARM_LOCK = threading.Lock()  # one worker may copy the warm caches while another adds to them


@dataclass(frozen=True, slots=True)
class Runner:
    """Run a night's processes in its sandbox and folders, and watch them."""

    night: Night
    folder: Path  # experiments/nights/<tag>
    sandbox: Sandbox
    resource_limits: ResourceLimits
    stopped: Callable[[], bool]  # whether the user has asked to end the current run
    progressed: Callable[[Progress | None], None]
    root: Path | None = None  # the repository, hidden from runs; None: the one around experiments/nights/<tag>
    slot: DeviceSlot = WHOLE  # the part of this machine that its processes may use

    @property
    def fixed(self) -> Path:
        return self.folder / "fixed"

    @property
    def warm(self) -> Path:
        """Return the folder of compiled code that every run starts with; only attempt 0, the user's own, adds to it."""
        return self.folder / "warm"

    @property
    def is_warm(self) -> bool:
        """Return whether runs find what attempt 0 compiled; a CPU's kernels were compiled when the night opened."""
        return self.night.device_kind == "cpu" or (self.warm / KEPT).is_dir()

    @property
    def script_name(self) -> str:
        return Path(self.night.script).name

    def run_folder(self, number: int, seed: int) -> Path:
        return run_folder(self.folder, number, seed)

    def dry_folder(self, number: int) -> Path:
        """Return the folder of a dry run; several workers may try attempt 0 at the same time, to check the machine."""
        whose = "" if number or self.slot.worker == LOCAL else "." + re.sub(r"\W+", "-", self.slot.worker)
        return self.folder / "runs" / f"{number:04d}" / f"dry{whose}"

    def losses(self, number: int, seed: int, split: Split = "validation") -> Path:
        """Return the file of committed losses: float32 in nats, one for every token of the evaluation rows."""
        return beside(self.run_folder(number, seed), "losses.f32" if split == "validation" else f"{split}.f32")

    def weights(self, number: int, seed: int) -> Path:
        return self.run_folder(number, seed) / WEIGHTS

    def drop_weights(self, number: int, seed: int) -> None:
        """Delete a run's weights and losses to free disk space; leave anything else in the place of the weights."""
        for split in SPLITS:
            self.losses(number, seed, split).unlink(missing_ok=True)
        if plain_bytes(self.weights(number, seed)) is not None:
            self.weights(number, seed).unlink(missing_ok=True)

    def lay_out(self, folder: Path, script: str) -> None:
        """Empty a folder and fill it with the committed script, the fixed files and the warm caches."""
        remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self.fixed.is_dir():  # checking the checksums ends a night whose folder was deleted
            shutil.copytree(self.fixed, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        (folder / self.script_name).write_bytes(script.encode())
        # a copy, so that a run's changes to its caches affect no other run
        with WARM_LOCK:
            if self.warm.is_dir():
                shutil.copytree(self.warm, folder / TMP)
        (folder / TMP / "cache").mkdir(parents=True, exist_ok=True)
        for path, link in self._links(folder):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)

    def call(
        self,
        command: list[str],
        folder: Path,
        limit_s: float,
        *readable: Path,
        trains: bool = False,
        seed: int = 0,
        progress: Callable[[], Progress | None] = lambda: None,
        hopeless: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Run a command in the sandbox, in a folder from lay_out(); it may also read the `readable` files.

        The training text is visible only if it trains. hopeless() is asked repeatedly and ends the run early.
        """
        # leave out the training text: no scoring process can read it
        bring_in(self.sandbox, self.view(folder, *readable))
        outcome = supervise(
            self.sandbox.wrap(command, self.view(folder, *readable, trains=trains)),
            folder,
            limits=self.resource_limits,
            env=sandbox_env(folder, self.night.data, self.slot) | {SEED: str(seed)},
            cores=self.slot.cores,
            limit_s=limit_s,
            is_fair=self.night.device_kind == "cpu",
            stopped=self.stopped,
            tick=lambda: self.progressed(progress()),
            hopeless=hopeless,
        )
        # open what the script has closed to us; without setuid bits, by which others could run a file with our rights
        subprocess.run(["chmod", "-R", "u+rwX,ug-s", "--", str(folder)], capture_output=True, check=False)
        if outcome.ending is not Ending.CRASHED or outcome.why_invalid is not None:
            return outcome
        was_killed = outcome.exit_code == -signal.SIGKILL  # the system kills so when memory runs out
        why_invalid = (
            "the system killed it" if was_killed else machine_fault(outcome.last_lines, self.night.device_kind)
        )
        return replace(outcome, why_invalid=why_invalid)

    @property
    def rest_s(self) -> float:
        """Return the pause before a repeat: other programs may free memory and disk, and the machine cools down."""
        return min(REST_S, REST_SHARE * self.night.budget_s)

    def wait(self, wait_s: float) -> None:
        """Wait for wait_s seconds, or until the user asks to end the current run, and report progress meanwhile."""
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and not self.stopped():
            self.progressed(None)
            time.sleep(min(POLL_S, wait_s))

    def until_it_counts(self, number: int, once: Callable[[], Outcome]) -> Outcome:
        """Run a process until its outcome counts, and return the outcome; no journal lists the process.

        It is repeated after each sleep of the machine, and as often as repetitions() says if the machine makes it
        invalid. Raise Stopped if the user has ended it, and MachineError if attempt 0 is invalid at its last try.
        """
        left = repetitions(number)
        while True:
            outcome = once()
            if outcome.ending is Ending.STOPPED:
                raise Stopped
            if outcome.why_invalid is not None and left:
                left -= 1
                self.wait(self.rest_s)
            elif outcome.ending is not Ending.SLEPT:
                self.check_not_baseline(number, outcome.why_invalid)
                return outcome

    def check_not_baseline(self, number: int, why_invalid: str | None) -> None:
        """Raise MachineError where the machine has made attempt 0's last try invalid: there is no night."""
        if number == 0 and why_invalid is not None:
            again = typed("run", "--tag", self.night.tag)
            raise MachineError(
                f"attempt 0 was ended at its last try: {why_invalid}; repair that and go on with: {again}"
            )

    def view(self, folder: Path, *readable: Path, trains: bool = False) -> View:
        """Return the paths that a sandboxed process sees: its folder, these files, no held-out text."""
        data, patterns = Path(self.night.data), (*SHOWN, *(TRAINING_TEXT if trains else ()))
        shown = (path for pattern in patterns for path in sorted(data.glob(pattern)))
        root = self.root or self.folder.parents[2]
        hidden, options = (*filter(None, [home_folder()]), root, data), self.night.options
        if trains and options.metric:
            own = () if options.python is None else places_of(options.python, hidden)
            readable += (*map(Path, options.read), *own)
        return View(folder, (*shown, *readable), hidden)

    def _links(self, folder: Path) -> Iterator[tuple[Path, Path]]:
        """Yield what a script may read, and where it finds that: beside itself or in its home, as outside."""
        beside = ((self.root or self.folder.parents[2]) / self.night.script).parent
        for path in map(Path, self.night.options.read):
            for place, to in ((beside, folder), (home_folder(), folder / TMP)):
                link = to / path.relative_to(place) if place is not None and path.is_relative_to(place) else to
                if not os.path.lexists(link):
                    yield path, link
                    break

    def keep_only(self, folder: Path, *results: str) -> None:
        """Delete what a process left in its folder, except for its log and these results: many runs would fill a disk.

        results: paths in its folder. Only plain files are results, and only weights may be large.
        """
        kept = set()
        for path in (folder / name for name in (LOG, *results)):
            size = plain_bytes(path)
            if size is not None and (size <= MAX_RESULT_BYTES or path == folder / WEIGHTS):
                kept.add(path)
        out, folders = folder / "out", {path.parent for path in kept}
        for place in (folder, out) if out in folders else (folder,):
            if place.is_dir():
                remove(*(path for path in place.iterdir() if path not in kept and path not in folders))

    def keep_warm(self, folder: Path) -> None:
        """Add the code that attempt 0 compiled in training to the warm caches, unless it is implausibly large.

        Never from a scorer: it has read validation text, and could store it there for a later run.
        """
        fresh = self.folder / "warm.new"
        with WARM_LOCK:
            remove(fresh)
            with suppress(OSError, RecursionError):  # unreadable or endlessly nested folders: not a compiler's
                if self.warm.is_dir():
                    shutil.copytree(self.warm, fresh)
                (fresh / KEPT).mkdir(parents=True, exist_ok=True)
                for place, _, names in os.walk(folder):  # os.walk follows no link
                    compiled = any(Path(place).is_relative_to(folder / TMP / name) for name in WARM)
                    for path in (Path(place, name) for name in names if compiled):
                        copy = fresh / path.relative_to(folder / TMP)
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        if plain_bytes(path) is not None:
                            shutil.copyfile(path, copy)
                if sum(path.stat().st_size for path in fresh.rglob("*") if path.is_file()) <= MAX_WARM_BYTES:
                    remove(self.warm)  # a night that is killed here goes on with cold caches
                    fresh.replace(self.warm)
            remove(fresh)


class Stopped(Exception):
    """Say that the user has stopped a process, so that it has no result."""


def beside(run_folder: Path, what: str) -> Path:
    """Return a path beside a run's folder for the harness's own files: inside, a script could have placed a link."""
    return run_folder.with_name(f"{run_folder.name}.{what}")
