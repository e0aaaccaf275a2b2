"""Make an idea's edit in a script that has taken other edits since the idea's patch was made."""

import re
from collections.abc import Sequence
from contextlib import suppress

from agent.errors import ScriptError
from agent.invocation import SCRIPT, STARTER
from agent.proposers.catalogue.idea import Idea
from agent.script.contract import read_text
from agent.script.dials import DIAL
from agent.script.merge import PATCH_HUNK, Conflict, carried, check_edit, holds, patched

DIAL_LINE = re.compile(rf"^({DIAL.pattern}) *=(?!=).*")

# lines that follow each other in a hunk, added or taken away, with the line before and the line after them
CHANGE = re.compile(r"(?<=\n)((?:[ \\].*)?)\n?((?:^[+-].*\n)+)(?=(.*))", re.MULTILINE)


def may_apply(patch: str, script: str) -> bool:
    """Return whether the lines that a patch takes away, and one beside each that it adds, are in a script.

    What its dials are is no matter. To merge an idea with what was kept since would tell exactly, but takes a fifth of
    a second, and there may be a hundred ideas.
    """
    text = _gist(script)
    changes = (change for hunk in PATCH_HUNK.finditer(f"{patch}\n") for change in CHANGE.finditer(f"\n{hunk[4]}"))
    return all(any(_gist(part) in text for part in _old(change)) for change in changes)


def _old(change: re.Match[str]) -> Sequence[str]:
    """Return the lines that a change takes away, or else the line before and the one after it."""
    gone = "\n".join(line[1:] for line in change[2].split("\n") if line.startswith("-"))
    return (gone,) if gone else (change[1][1:], change[3][1:])


def _gist(text: str) -> str:
    """Return a text's lines without the values of its dials, between line breaks."""
    return "\n" + "\n".join(DIAL_LINE.sub(r"\1", line) for line in text.split("\n")) + "\n"


def applied(idea: Idea, script: str, bases: Sequence[str], device_kind: str) -> str:
    """Return the script with an idea's edit; raise ScriptError, with the reason, where it does not apply.

    bases: scripts to which the patch may apply if it does not apply to this one, those nearest to it first. The shipped
    script is tried after them. Dials keep the script's values, except for those that the patch itself turns.
    """
    text = patched(idea.patch, script)
    if text is not None:
        return _checked(idea, text, script)
    for base in dict.fromkeys((*bases, *_shipped())):
        if (edited := patched(idea.patch, base)) is not None:
            return _carried(idea, script, base, edited, device_kind)
    raise ScriptError(f"idea {idea.slug} does not apply to this script; make its patch again, of this script")


def _shipped() -> tuple[str, ...]:
    with suppress(ScriptError):
        return (read_text(STARTER / SCRIPT),)
    return ()


def _carried(idea: Idea, script: str, base: str, edited: str, device_kind: str) -> str:
    """Merge an idea's edit of another script; raise ScriptError where it conflicts, or is there already."""
    try:
        text = script if holds(script, base, edited, device_kind) else carried(script, base, edited, device_kind)
    except Conflict as conflict:
        raise ScriptError(
            f"idea {idea.slug} conflicts with what was kept since: {conflict} of the script; make its patch again, "
            f"of this script"
        ) from None
    except (ScriptError, SyntaxError) as error:
        raise ScriptError(f"idea {idea.slug} does not go together with this script: {error}") from error
    return _checked(idea, text, script)


def _checked(idea: Idea, text: str, script: str) -> str:
    if text == script:
        raise ScriptError(f"idea {idea.slug} is in this script already; try another one")
    try:
        check_edit(text, script)
    except ScriptError as error:
        raise ScriptError(f"idea {idea.slug} does not go together with this script: {error}") from error
    return text
