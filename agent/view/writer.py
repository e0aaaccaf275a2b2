"""Keep the page of a running night up to date, in a process of low priority beside it.

The night never waits for it and never fails with it: one process at most, and a failure is told once.
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from agent.files import read_plain
from agent.invocation import own_command, typed
from agent.records.place import Place
from agent.text import SAID_CHARS, one_line

PAGE = "report.html"
LEAST_S = 30.0  # s between the starts of two pages; attempts that settle sooner are in the next one
PATIENCE_S = 60.0  # s for the last page, at the night's end
GENTLY = ("nice", "-n", "19")


def is_page(path: Path) -> bool:
    """Return whether a file may be replaced by the page of a night: there is none, it is empty, or such a page."""
    text = read_plain(path)
    return not text or (text.lstrip().startswith("<!doctype html>") and "Written by nightshift on" in text)


class PageWriter:
    """Write the page of a night when its results change and, as a context manager, at its end."""

    def __init__(self, place: Place, tag: str, said: Callable[[str], None], hurried: Callable[[], bool]) -> None:
        self.out = place.folder(tag) / PAGE
        self._tag, self._root = tag, place.repo.root
        self._said, self._hurried = said, hurried
        self._child: subprocess.Popen[bytes] | None = None
        self._began_s = time.monotonic()
        self._has_failed = False

    def __enter__(self) -> "PageWriter":
        return self

    def __exit__(self, *_: object) -> None:
        """Write the last page and say where it is; wait for it, but not for long."""
        if self._child is not None:
            self._child.kill()  # a page of an earlier state
            self._child.wait()
        self._start([])  # the night needs the machine no longer
        with suppress(subprocess.TimeoutExpired):
            if self._child is not None and not self._hurried():
                self._child.wait(PATIENCE_S)
        later = ", written in a moment" if self._is_at_work() else ""
        if not self._has_failed:
            self._said(f"report: {self.out}{later}")

    def record_changed(self) -> None:
        """Begin to write the page, unless one is being written or was begun just now."""
        if not self._is_at_work() and time.monotonic() - self._began_s >= LEAST_S:
            self._start(GENTLY)

    def _start(self, gently: Sequence[str]) -> None:
        self._began_s = time.monotonic()
        try:
            self._child = subprocess.Popen(
                [*gently, *own_command("report", self._tag, "--out", str(self.out))],
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is meant for the night
            )
        except OSError as error:
            self._child = None
            self._fail(str(error))

    def _is_at_work(self) -> bool:
        """Return whether a page is being written; say why the last one was not, if it failed."""
        if self._child is None or self._child.poll() is None:
            return self._child is not None
        *_, last = ["", *self._child.communicate()[1].decode(errors="replace").strip().splitlines()]
        if self._child.returncode != 0:
            self._fail(last.removeprefix("nightshift: ") or f"exit code {self._child.returncode}")
        self._child = None
        return False

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            again = typed("report", self._tag)
            self._said(f"the report was not written ({one_line(why, SAID_CHARS)}); the night is not touched by that, "
                       f"and this writes it: {again}")  # fmt: skip
