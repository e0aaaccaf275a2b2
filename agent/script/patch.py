"""Apply a unified diff of the script, by git in a throwaway folder.

A patch of an earlier best script is carried over to the current one by a three-way merge.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.errors import ScriptError
from agent.files import throwaway_folder
from agent.git import detached_git
from agent.script.contract import decoded
from agent.script.merge import merge_lines
from agent.text import SAID_CHARS, one_line

HUNK = re.compile(r"^--- .*\n\+\+\+ .*\n@@ ", re.MULTILINE)
PATH_BYTES = 255


def is_patch(text: str) -> bool:
    """Return whether a text holds a unified diff."""
    return HUNK.search(text) is not None


def is_below(path: str) -> bool:
    """Return whether a path of a patch stays below the folder that it starts from, and can be made on a disk."""
    parts = PurePosixPath(path).parts
    is_relative = bool(parts) and not parts[0].startswith("/") and ".." not in parts
    return is_relative and path.isprintable() and len(path.encode()) <= PATH_BYTES


def check_patch(patch: str, script: str) -> None:
    """Raise ScriptError if git cannot read a patch, or if it does more than edit the script."""
    with laid_out(patch, script):
        pass


def apply_patch(patch: str, script: str, bases: Sequence[tuple[int, str]]) -> str:
    """Return the first base with the patch's edit; bases are attempts and their scripts, the one to be edited first.

    If the patch fits only a later base, the changes between the two are merged. Raise ScriptError if it fits no base,
    or if the two edits touch the same lines.
    """
    (best, ours), *_ = bases
    reason = ""
    with laid_out(patch, script) as bench:
        for number, base in bases:
            edited = bench.edit(base)
            if edited is None:
                reason = reason or bench.said
                continue
            text = edited if number == best else merge_lines(ours, base, edited)
            if text is None:
                conflict = f"the patch conflicts with edits kept since attempt {number}"
                raise ScriptError(f"{conflict}; make it again, of the best script so far")
            return text
    raise ScriptError(f"the patch does not apply to attempt {best}, the best script so far ({reason}); make it again")


@dataclass(slots=True)
class Bench:
    """Hold a folder with the patch, and a place for the script where the patch expects it."""

    folder: Path
    patch: str
    strip: int  # number of leading parts of the patch's paths to ignore: a/ and b/
    path: str
    said: str = ""  # git's message when an edit failed

    def edit(self, base: str) -> str | None:
        """Return the base with the patch applied; None if it does not fit.

        A mail program or an editor may have changed the patch's line ends: they count only where the base has such.
        """
        place = self.folder / "tree" / self.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(base.encode())
        patch = self.patch if "\r\n" in base else self.patch.replace("\r\n", "\n")
        (self.folder / "patch").write_bytes(patch.encode())
        self.said = _applied(self.folder, f"-p{self.strip}", "--whitespace=nowarn")[1]
        return None if self.said else decoded(place.read_bytes(), "the patched script")


@contextmanager
def laid_out(patch: str, script: str) -> Iterator[Bench]:
    """Lay out a patch in a folder; raise ScriptError if git cannot read it, or if it edits more than the script.

    It has to name the script by its path in the repository, or alone.
    """
    patch = patch if patch.endswith("\n") else f"{patch}\n"
    reason = ""
    with throwaway_folder() as folder:
        (folder / "tree").mkdir()
        try:
            (folder / "patch").write_bytes(patch.encode())
        except UnicodeEncodeError as error:
            raise ScriptError("the patch is no UTF-8 text; make it again") from error
        for strip in (1, 0):  # as git writes it, and as diff does
            listed, said = _applied(folder, f"-p{strip}", "-z", "--numstat", "--summary")
            *entries, summary = listed.split("\0")
            paths = [entry.split("\t")[-1] for entry in entries]
            if paths in ([script], [PurePosixPath(script).name]) and not said and not summary and is_below(paths[0]):
                yield Bench(folder, patch, strip, paths[0])
                return
            if not said:
                # the summary of files made, removed, renamed or linked comes from the patch: do not trust its text
                names = one_line(", ".join(paths), SAID_CHARS) or "nothing"
                said = f"this one is about {names}" + (" and makes, removes or renames files" if summary else "")
            reason = reason if reason and listed == "" else said
    raise ScriptError(f"a patch may edit {script} and nothing else ({reason}); make it again")


def _applied(folder: Path, *options: str) -> tuple[str, str]:
    """Let git apply the patch in the folder, or only list it; return its output, and the first line of its errors."""
    done = detached_git(folder / "tree", "apply", *options, "../patch")
    first, *_ = done.stderr.decode(errors="replace").strip().splitlines() or ["git cannot read it"]
    said = "" if done.returncode == 0 else one_line(first.removeprefix("error: "), SAID_CHARS)
    return done.stdout.decode(errors="replace"), said
