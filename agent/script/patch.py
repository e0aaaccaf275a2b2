"""Apply a unified diff of the script, by git in a throwaway folder.

A patch of an earlier best script is carried over to the current one by a three-way merge.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from subprocess import CompletedProcess

from agent.errors import ScriptError
from agent.files import throwaway_folder
from agent.git import detached_git
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
    said = ""
    with laid_out(patch, script) as bench:
        for number, base in bases:
            edited = bench.edit(base)
            if edited is None:
                said = said or bench.said
            elif number == best:
                return edited
            else:
                return _merge(ours, base, edited, number)
    raise ScriptError(f"the patch does not apply to attempt {best}, the best script so far ({said}); make it again")


@dataclass(slots=True)
class Bench:
    """Hold a folder with the patch, and a place for the script where the patch expects it."""

    folder: Path
    strip: int  # number of leading parts of the patch's paths to ignore: a/ and b/
    script: Path
    said: str = ""  # git's message when an edit failed

    def edit(self, base: str) -> str | None:
        """Return the base with the patch applied; None if it does not fit.

        A mail program or an editor may have changed the patch's line ends, so plain ones are tried, too.
        """
        for name in ("patch", "patch-lf"):
            self.script.write_bytes(base.encode())
            done = detached_git(self.folder / "tree", "apply", "--whitespace=nowarn", f"-p{self.strip}", f"../{name}")
            if done.returncode == 0:
                return _decoded(self.script.read_bytes())
            self.said = _first_line(done)
            if not (self.folder / "patch-lf").exists():
                break
        return None


@contextmanager
def laid_out(patch: str, script: str) -> Iterator[Bench]:
    """Lay out a patch in a folder; raise ScriptError if git cannot read it, or if it edits more than the script."""
    with throwaway_folder() as folder:
        (folder / "tree").mkdir()
        patch = patch if patch.endswith("\n") else f"{patch}\n"
        (folder / "patch").write_bytes(_encoded(patch))
        if "\r\n" in patch:
            (folder / "patch-lf").write_bytes(_encoded(patch.replace("\r\n", "\n")))
        strip, path = _place(folder, script)
        place = folder / "tree" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        yield Bench(folder, strip, place)


def _place(folder: Path, script: str) -> tuple[int, str]:
    """Return how many parts of the patch's path to strip, and the rest: the script's name or path in the repository.

    Raise ScriptError unless the patch edits exactly the script.
    """
    said = ""
    for strip in (1, 0):  # as git writes it, and as diff does
        options = ("apply", f"-p{strip}", "../patch", "-z")
        touched = detached_git(folder / "tree", *options, "--numstat")
        more = detached_git(folder / "tree", *options, "--summary")
        said = said or _first_line(touched)
        paths = [line.split("\t")[2] for line in _decoded(touched.stdout).split("\0") if line.count("\t") == 2]
        if touched.returncode == 0 and not more.stdout and paths in ([script], [PurePosixPath(script).name]):
            if not is_below(paths[0]):
                break
            return strip, paths[0]
        if touched.returncode == 0:
            # the summary of files made, removed, renamed or linked comes from the patch: do not trust its text
            found = one_line(", ".join(paths), SAID_CHARS) or "nothing"
            said = f"this one is about {found}" + (" and makes, removes or renames files" if more.stdout else "")
    raise ScriptError(f"a patch may edit {script} and nothing else ({said or 'git cannot read it'}); make it again")


def _merge(ours: str, base: str, edited: str, number: int) -> str:
    text = merge_lines(ours, base, edited)
    if text is None:
        raise ScriptError(
            f"the patch conflicts with edits kept since attempt {number}; make it again, of the best script so far"
        )
    return text


def _first_line(done: CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return one_line(lines[0].removeprefix("error: "), SAID_CHARS) if lines else ""


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ScriptError("the patch is no UTF-8 text; make it again") from error


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ScriptError("the patch makes something of the script that is no UTF-8 text; make it again") from error
