"""Carry an edit over to another script, or take it back: by its dials, else by a three-way merge of its lines."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress

from agent.errors import ScriptError
from agent.experiment import Attempt, History, edit_of, is_half, part_of
from agent.script.contract import check_script
from agent.script.dials import only_dials_differ, set_dials, skeleton_of, values_of
from agent.script.parsing import parse
from agent.script.threeway import merge_lines, merge_texts


def merged(script: str, base: str, edited: str, device_kind: str) -> str | None:
    """Return the script with the edit base → edited made in it; None where that conflicts or changes nothing.

    A dial that both the script and the edit have turned is a conflict.
    """
    if only_dials_differ(base, edited, device_kind):
        with suppress(ScriptError):  # a later edit has left dials that cannot be read
            return _turned(script, base, edited, device_kind)
    try:
        text = merge_texts(script, *_on(script, base, edited, device_kind))
        check_edit(text, script)
    except (ScriptError, SyntaxError):
        return None
    return text if text != script else None


def undone(script: str, before: str, after: str, device_kind: str) -> str | None:
    """Return the script with the edit before → after taken back; None where later edits are in the way."""
    return merged(script, after, before, device_kind)


def without_edits(history: History, best: Attempt, edits: Iterable[int], device_kind: str) -> str | None:
    """Return the script of the best attempt without these edits and halves; None where later edits are in the way."""
    script: str | None = best.proposal.script
    for number in sorted(edits, key=edit_of, reverse=True):  # the latest first
        edit = history[edit_of(number)]
        if script is None or edit.parent is None:
            return None
        before, after = history[edit.parent].proposal.script, edit.proposal.script
        if is_half(number):
            script = _set_back(script, before, after, dials_of(history, number, device_kind), device_kind)
        else:
            script = undone(script, before, after, device_kind)
    return script


def dials_of(history: History, number: int, device_kind: str) -> Sequence[str]:
    """Return the dials that an edit or a half has turned, in the order of the script; none where it changed code."""
    edit = history[edit_of(number)]
    if edit.parent is None:
        return ()
    before, after = history[edit.parent].proposal.script, edit.proposal.script
    with suppress(ScriptError):
        if skeleton_of(before, device_kind) == skeleton_of(after, device_kind):
            old, new = values_of(before, device_kind), values_of(after, device_kind)
            return part_of(number, [name for name, value in new.items() if old[name] != value])
    return ()


def _set_back(script: str, before: str, after: str, names: Iterable[str], device_kind: str) -> str | None:
    """Return the script with these dials as before the edit, if no later edit has turned them; None if all were."""
    with suppress(ScriptError):  # a later edit has left dials that cannot be read
        old, new, now = (values_of(text, device_kind) for text in (before, after, script))
        back = {name: old[name] for name in names if name in now and now[name] == new[name]}
        return set_dials(script, device_kind, back) if back else None
    return None


def carried(script: str, base: str, edited: str, device_kind: str) -> str:
    """Return the script with the edit base → edited made in it, for an edit made without knowing of the script's own.

    Dials keep the script's values, also beside changed lines, except for those that the edit turns. Raise ScriptError
    where lines conflict, or where the edit could not be taken out alone: it shares an added line with the script.
    """
    before, after = _on(script, base, edited, device_kind, overrule=True)
    text = merge_texts(script, before, after)
    if merge_lines(text, after, before) != script:
        raise ScriptError("it shares lines with what was kept since, and could not be taken out alone")
    return text


def _on(script: str, base: str, edited: str, device_kind: str, *, overrule: bool = False) -> tuple[str, str]:
    """Return both sides of an edit with the script's values of the dials that the edit leaves alone.

    A dial that both have turned is a conflict; with overrule, the edit's value counts.
    """
    old, new = (values_of(text, device_kind) for text in (base, edited))
    turned = {name for name in old.keys() & new.keys() if old[name] != new[name]}
    alone = new.keys() - old.keys() | turned
    return (
        _with_dials_of(script, base, device_kind, but=frozenset() if overrule else turned),
        _with_dials_of(script, edited, device_kind, but=alone),
    )


def holds(script: str, base: str, edited: str, device_kind: str) -> bool:
    """Return whether the lines that the edit base → edited changes are in the script already, whatever its dials."""
    before, after = (_with_dials_of(script, text, device_kind) for text in (base, edited))
    text = merge_lines(script, after, before)
    return text is not None and text != script


def _with_dials_of(script: str, text: str, device_kind: str, but: Set[str] = frozenset()) -> str:
    """Return a text with the script's values of all dials that both have, except for some."""
    now, own = values_of(script, device_kind), values_of(text, device_kind)
    shared = (now.keys() & own.keys()) - but
    return set_dials(text, device_kind, {name: now[name] for name in shared if own[name] != now[name]})


def check_edit(edited: str, script: str) -> None:
    """Raise ScriptError if an edit breaks the contract, or defines a name that the script has already."""
    check_script(edited, "the edited script")
    twice = _defined_twice(edited)
    if twice and (new := twice - _defined_twice(script)):
        raise ScriptError(f"{min(new)} would be defined twice")


def _defined_twice(script: str) -> set[str]:
    """Return the names with two definitions in the module, or in one of its classes."""
    tree = parse(script)
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    return {name for body in bodies for name, times in Counter(_names(body)).items() if times > 1}


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def _turned(script: str, base: str, edited: str, device_kind: str) -> str | None:
    """Return the script with the edit's dials turned; None where it has turned one of them itself."""
    old, new, now = (values_of(text, device_kind) for text in (base, edited, script))
    turned = {name: value for name, value in new.items() if old.get(name) != value}
    if not turned or any(name not in now or now[name] != old[name] for name in turned):
        return None
    return set_dials(script, device_kind, turned)
