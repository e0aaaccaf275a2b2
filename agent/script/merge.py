"""Carry an edit over to another script, or take it back: by its dials, else by a three-way merge of its lines.

An edit may come as a unified diff, too: one of an earlier best script is carried over in the same way.

Git tells how lines differ. Changes that only touch are merged: two insertions at one place are no contradiction, and
neither is an insertion beside lines that the other side takes back.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

from agent.errors import MachineError, ScriptError
from agent.experiment import Attempt, History, best_of, line_of
from agent.files import throwaway_folder
from agent.git import detached_git
from agent.invocation import typed
from agent.script.contract import check_script, imports_of_edits, parse
from agent.script.dials import Value, set_dials, values_of
from agent.text import SAID_CHARS, one_line

# ---- what an edited script was made from -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Basis:
    """Say what a script was made from."""

    number: int | None  # the kept attempt whose script is nearest; None: the committed script, which is none of them
    missing: tuple[Attempt, ...] = ()  # edits that were kept after it, the oldest first


def basis_of(script: str, history: History, committed: str) -> Basis:
    """Return the basis of a script: the kept script from which the fewest lines differ, of several the latest.

    committed: the script of HEAD, which may be in no attempt.
    """
    best = best_of(history)
    if best is None:
        return Basis(None)
    line = line_of(best, history)  # the latest first
    nearest = min(line, key=lambda attempt: _distance(script, attempt.proposal.script))
    is_basis = _distance(script, nearest.proposal.script) <= _distance(script, committed)
    missing = line[: line.index(nearest)][::-1]
    return Basis(nearest.number if is_basis else None, tuple(missing))


def _distance(script: str, other: str) -> int:
    """Count the lines of which only one of the scripts has a copy, without blanks, comments and indentation."""
    lines, others = (
        Counter(line for text in source.splitlines() if (line := text.strip()) and not line.startswith("#"))
        for source in (script, other)
    )
    return (lines - others).total() + (others - lines).total()


# ---- edits -----------------------------------------------------------------------------------------------------------


def merged(script: str, base: str, edited: str, device_kind: str) -> str | None:
    """Return the script with the edit base → edited made in it; None where that conflicts or changes nothing.

    A dial that both the script and the edit have turned is a conflict. With the edited script as the base, and the base
    as the edited one, the edit is taken back.
    """
    try:
        text = merge_texts(script, *_sides(script, base, edited, device_kind))
        if text is None or text == script:
            return None
        check_edit(text, script)
    except (ScriptError, SyntaxError):
        return None
    return text


def without_edits(history: History, best: Attempt, edits: Iterable[int], device_kind: str) -> str | None:
    """Return the script of the best attempt without these edits; None where later edits are in the way."""
    script: str | None = best.proposal.script
    for number in sorted(edits, reverse=True):  # the latest first
        edit = history[number]
        if script is None or edit.parent is None:
            return None
        script = merged(script, edit.proposal.script, history[edit.parent].proposal.script, device_kind)
    return script


def with_edit(script: str, base: str, edited: str, device_kind: str) -> str:
    """Return the script with the edit base → edited made in it, for an edit made without knowing of the script's own.

    Dials keep the script's values, also beside changed lines, except for those that the edit turns. Raise ScriptError
    where lines conflict, or where the edit could not be taken out alone: it shares an added line with the script.
    """
    before, after = _sides(script, base, edited, device_kind, overrule=True)
    text = merge_texts(script, before, after)
    if text is None:
        raise ScriptError("it changes lines that are not as they were any more")
    if merge_texts(text, after, before) != script:
        raise ScriptError("it shares lines with what was kept since, and could not be taken out alone")
    return text


def holds(script: str, base: str, edited: str, device_kind: str) -> bool:
    """Return whether the lines that the edit base → edited changes are in the script already, whatever its dials."""
    now = values_of(script, device_kind)
    before, after = (_with_dials(text, now, device_kind) for text in (base, edited))
    text = merge_texts(script, after, before)
    return text is not None and text != script


def _sides(script: str, base: str, edited: str, device_kind: str, *, overrule: bool = False) -> tuple[str, str]:
    """Return both sides of an edit with the script's values of the dials that the edit leaves alone.

    A dial that both have turned is a conflict; with overrule, the edit's value counts.
    """
    old, new, now = (values_of(text, device_kind) for text in (base, edited, script))
    turned = {name for name in old.keys() & new.keys() if old[name] != new[name]}
    return (
        _with_dials(base, now, device_kind, but=frozenset() if overrule else turned),
        _with_dials(edited, now, device_kind, but=new.keys() - old.keys() | turned),
    )


def _with_dials(text: str, values: Mapping[str, Value], device_kind: str, but: Set[str] = frozenset()) -> str:
    """Return a text with these values of all dials that it has, except for some."""
    own = values_of(text, device_kind)
    shared = (values.keys() & own.keys()) - but
    return set_dials(text, device_kind, {name: values[name] for name in shared if own[name] != values[name]})


def check_edit(edited: str, script: str) -> None:
    """Raise ScriptError if an edit breaks the contract, or defines a name that the script has already."""
    check_script(edited, "the edited script", imports_of_edits(script))
    twice = _defined_twice(edited)
    if twice and (new := twice - _defined_twice(script)):
        raise ScriptError(f"{min(new)} would be defined twice")


def _defined_twice(script: str) -> set[str]:
    """Return the names with two definitions in the module, or in one of its classes."""
    tree = parse(script)
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    names = Counter((at, name) for at, body in enumerate(bodies) for node in body if (name := _name(node)))
    return {name for (_, name), times in names.items() if times > 1}


def _name(node: ast.stmt) -> str | None:
    """Return the one name that a statement defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


# ---- lines -----------------------------------------------------------------------------------------------------------

HUNK = re.compile(r"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class _Edit:
    """The lines that take the place of lines start to end of a base; no lines: those were removed."""

    start: int  # counts from 0; the line `end` stays
    end: int
    lines: tuple[str, ...]


def merge_texts(ours: str, base: str, theirs: str) -> str | None:
    """Return ours with the changes from base to theirs; None where both change the same lines.

    The lines of two insertions at one place are ours and then theirs; an insertion beside a change is none of its
    lines. Texts may lack a line break at the end; the merged one has it unless ours lacks it.
    """
    is_ended = ours.endswith("\n")
    ours, base, theirs = (text if text.endswith("\n") else f"{text}\n" for text in (ours, base, theirs))
    with throwaway_folder() as folder:
        (folder / "base").write_bytes(base.encode())
        both = dict.fromkeys([*_edits(folder, ours), *_edits(folder, theirs)])
    edits = sorted(both, key=lambda edit: (edit.start, edit.end))  # an insertion comes before a change
    if any(later.start < edit.end for edit, later in pairwise(edits)):
        return None
    lines, parts, done = _lines(base), list[str](), 0
    for edit in edits:
        parts += [*lines[done : edit.start], *edit.lines]
        done = edit.end
    text = "".join([*parts, *lines[done:]])
    return text if is_ended else text.removesuffix("\n")


def _edits(folder: Path, edited: str) -> list[_Edit]:
    """Return how a text differs from the base, which is the file of that name in the folder, as git sees it."""
    (folder / "edited").write_bytes(edited.encode())
    done = detached_git(folder, "diff", "--no-index", "--no-ext-diff", "--text", "-U0", "base", "edited")
    if done.returncode > 1:  # 1: they differ
        raise MachineError(f"git could not compare two scripts (exit code {done.returncode}); see: {typed('doctor')}")
    lines, edits = _lines(edited), []
    for hunk in HUNK.finditer(done.stdout.decode()):
        start, count, at, length = (1 if number is None else int(number) for number in hunk.groups())
        start, at = start - (count > 0), at - (length > 0)  # git names the line before an empty range
        edits.append(_Edit(start, start + count, tuple(lines[at : at + length])))
    return edits


def _lines(text: str) -> list[str]:
    return re.split(r"(?<=\n)", text)


# ---- patches ---------------------------------------------------------------------------------------------------------

# What paths a patch names is read to tell what it is about, and nothing is written there: its hunks edit a text.
EDITED = re.compile(r"^--- (?:[abciow]/)?([^\t\n]++).*\n\+\+\+ (?:[abciow]/)?([^\t\n]++).*\n(?=@@ )", re.MULTILINE)
# up to a mail's signature
PATCH_HUNK = re.compile(r"^@@ -(\d+).*\n(?P<lines>(?:(?!-- \n)[ +\\-].*\n|\n)+)", re.MULTILINE)
MORE_THAN_AN_EDIT = re.compile(r"^(old mode|new mode|new file|deleted file|rename|copy|GIT binary) ", re.MULTILINE)


def is_patch(text: str) -> bool:
    """Return whether a text holds a unified diff."""
    return EDITED.search(text) is not None


def check_patch(patch: str, script: str) -> None:
    """Raise ScriptError if a patch does more than edit the script, whose file name is that of its old side.

    `diff -u train_mlx.py ../idea.py` names another file on the new side.
    """
    edited = EDITED.findall(patch)
    sides = [(PurePosixPath(old).name, new != "/dev/null") for old, new in edited]
    is_edit = PATCH_HUNK.search(f"{patch}\n") is not None and not MORE_THAN_AN_EDIT.search(patch)
    if not is_edit or sides != [(PurePosixPath(script).name, True)]:
        names = one_line(", ".join(dict.fromkeys(name for pair in edited for name in pair)), SAID_CHARS) or "nothing"
        raise ScriptError(
            f"a patch may edit {script} and nothing else (this one is about {names}, or makes, removes or renames "
            f"files); make it again"
        )


def patched(patch: str, script: str) -> str | None:
    """Return the script with a patch's hunks, each where its lines stand nearest to its number; None if one does not.

    In Python, since git takes ten milliseconds for a patch, and there may be a hundred.
    """
    patch = patch.rstrip("\n") + "\n"
    lines = script.split("\n")
    done, grown = 0, 0  # lines that earlier hunks have settled, and by how many the script has grown
    for hunk in PATCH_HUNK.finditer(patch):
        hunk_lines = hunk["lines"].removesuffix("\n").split("\n")
        old, new = ([line[1:] for line in hunk_lines if line[:1] in f" {sign}"] for sign in "-+")  # blanks may be cut
        start = int(hunk[1][:9]) - 1  # Python reads no number of thousands of digits
        places = [at for at in range(done, len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if not old or not places:
            return None
        at = min(places, key=lambda place: abs(place - start - grown))
        lines[at : at + len(old)] = new
        done, grown = at + len(new), at - start + len(new) - len(old)
    return "\n".join(lines)


def apply_patch(patch: str, script: str, bases: Sequence[tuple[int, str]]) -> str:
    """Return the first base with the patch's edit; bases are attempts and their scripts, the one to be edited first.

    If the patch fits only a later base, the changes between the two are merged. Raise ScriptError if it fits no base,
    or if the two edits touch the same lines.
    """
    check_patch(patch, script)
    (best, ours), *_ = bases
    for number, base in bases:
        edited = patched(patch, base)
        if edited is None:
            continue
        text = edited if number == best else merge_texts(ours, base, edited)
        if text is None:
            conflict = f"the patch conflicts with edits kept since attempt {number}"
            raise ScriptError(f"{conflict}; make it again, of the best script so far")
        return text
    raise ScriptError(f"the patch does not apply to attempt {best}, the best script so far; make it again")
