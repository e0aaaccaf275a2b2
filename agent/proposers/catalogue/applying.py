"""Make an idea's edit in a script that has taken other edits since the idea's patch was made."""

import re
from collections.abc import Sequence
from contextlib import suppress

from agent.errors import ScriptError
from agent.invocation import SCRIPT, STARTER
from agent.proposers.catalogue.idea import HUNK, Idea
from agent.script.contract import read_text
from agent.script.dials import DIAL
from agent.script.merge import Conflict, carried, check_edit, holds
from agent.script.patch import laid_out

DIAL_LINE = re.compile(rf"({DIAL.pattern}) *=(?!=)")
FAIR_SHARE = 1 / 3  # the rest may have been edited since


def is_about(idea: Idea, script: str) -> bool:
    """Return whether a script has a fair share of the lines around each edit of a patch, whatever its dials are.

    Git takes tens of milliseconds to say that a patch does not apply, and a folder may hold many for other scripts.
    """
    known = set(map(_gist, script.splitlines()))
    for hunk in HUNK.split(idea.patch)[1:]:
        around = {gist for line in hunk.splitlines()[1:] if line[:1] in (" ", "-") and (gist := _gist(line[1:]))}
        if len(around & known) < FAIR_SHARE * len(around):
            return False
    return True


def _gist(line: str) -> str:
    """Return the name in a line that sets a dial, else the line without its indentation."""
    found = DIAL_LINE.match(line)
    return found[1] if found is not None else line.strip()


def applied(idea: Idea, script: str, bases: Sequence[str], device_kind: str) -> str:
    """Return the script with an idea's edit; raise ScriptError, with the reason, where it does not apply.

    bases: scripts to which the patch may apply if it does not apply to this one, those nearest to it first. The shipped
    script is tried after them. Dials keep the script's values, except for those that the patch itself turns.
    """
    with laid_out(idea.patch, idea.edits) as bench:
        text = bench.edit(script)
        if text is not None:
            return _checked(idea, text, script)
        said = bench.said
        for base in dict.fromkeys((*bases, *_shipped())):
            edited = bench.edit(base)
            if edited is not None:
                return _carried(idea, script, base, edited, device_kind)
    raise ScriptError(f"idea {idea.slug} does not apply to this script ({said}); make its patch again, of this script")


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
