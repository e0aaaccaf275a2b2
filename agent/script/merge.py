"""Carry an edit over to another script, or take it back: by its dials, else by a three-way merge of its lines."""

from collections.abc import Iterable
from contextlib import suppress

from agent.errors import ScriptError
from agent.experiment import Attempt, History
from agent.files import throwaway_folder
from agent.git.run import detached_git
from agent.script.contract import check_script
from agent.script.dials import only_dials_differ, set_dials, values_of


def merged(script: str, base: str, edited: str, device_kind: str) -> str | None:
    """Return the script with the edit base → edited made in it; None where that conflicts or changes nothing."""
    if only_dials_differ(base, edited, device_kind):
        with suppress(ScriptError):  # a later edit has left dials that cannot be read
            return _turned(script, base, edited, device_kind)
    text = merge_lines(script, base, edited)
    if text is None or text == script:
        return None
    try:
        check_script(text, "script")
    except ScriptError:
        return None
    return text


def undone(script: str, before: str, after: str, device_kind: str) -> str | None:
    """Return the script with the edit before → after taken back; None where later edits are in the way."""
    return merged(script, after, before, device_kind)


def without_edits(history: History, best: Attempt, edits: Iterable[int], device_kind: str) -> str | None:
    """Return the script of the best attempt without these edits; None where later edits need their lines."""
    script: str | None = best.proposal.script
    for number in sorted(edits, reverse=True):  # the latest first
        edit = history[number]
        if script is None or edit.parent is None:
            return None
        script = undone(script, history[edit.parent].proposal.script, edit.proposal.script, device_kind)
    return script


def merge_lines(ours: str, base: str, theirs: str) -> str | None:
    """Return ours with the changes from base to theirs, by git's three-way merge; None where the changes conflict."""
    texts = {"ours": ours, "base": base, "theirs": theirs}
    with throwaway_folder() as folder:
        for name, text in texts.items():
            (folder / name).write_bytes(text.encode())
        done = detached_git(folder, "merge-file", "-p", "-q", *texts)
    return done.stdout.decode() if done.returncode == 0 else None


def _turned(script: str, base: str, edited: str, device_kind: str) -> str | None:
    """Return the script with the edit's dials turned; None where it has turned one of them itself."""
    old, new, now = (values_of(text, device_kind) for text in (base, edited, script))
    turned = {name: value for name, value in new.items() if old.get(name) != value}
    if not turned or any(name not in now or now[name] != old[name] for name in turned):
        return None
    return set_dials(script, device_kind, turned)
