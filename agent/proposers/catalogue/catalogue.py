"""Propose known ideas: the one from which most is expected, of those that apply to the best script.

A proposal is a function of the ideas, the history and the earlier nights: nothing is drawn, so a resumed night goes on
like an undisturbed one. After an idea is kept, its dials are dials of the best script, and the search turns them.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.errors import Exhausted, ScriptError
from agent.experiment import Attempt, History, Night, Proposal, incumbent, kept
from agent.invocation import SCRIPT, STARTER, typed
from agent.judging.noise import noise
from agent.proposers.briefing import Briefing
from agent.proposers.catalogue.evidence import SOURCE, Prospect, prospects
from agent.proposers.catalogue.idea import Idea, idea_folders, read_ideas
from agent.records.shipped import PastNight
from agent.script.contract import read_text
from agent.script.dials import DIAL, fingerprint, tried_as
from agent.script.merge import PATCH_HUNK, Conflict, carried, check_edit, holds, patched
from agent.text import one_line, percent_sure

DIAL_LINE = re.compile(rf"^({DIAL.pattern}) *=(?!=).*")

# lines that follow each other in a hunk, added or taken away, with the line before and the line after them
CHANGE = re.compile(r"(?<=\n)((?:[ \\].*)?)\n?((?:^[+-].*\n)+)(?=(.*))", re.MULTILINE)


def listing(
    file: Path, night: Night, script: str, history: History, past: Sequence[PastNight], *, exactly: str | None = None
) -> tuple[list[Prospect], tuple[str, ...]]:
    """Return the ideas for the script in this file, and a sentence for each bad file.

    They come in the order in which the night tries them, the one first from which most is expected. At the end are
    those that it does not try now, and last those that do not apply.
    script: the text to which they are to apply, which a night may have edited since; exactly: the idea of which it is
    told to the last line whether it does.
    """
    ideas, faults = read_ideas(*idea_folders(file))
    spread, bases = noise(history) if incumbent(history) is not None else None, bases_of(history)
    found = [
        replace(one, why_not=_why_not(one.idea, script, bases, night.device_kind, exactly=one.idea.slug == exactly))
        for one in prospects(ideas, night, history, spread.sigma_bpb if spread else None, past)
    ]
    return sorted(found, key=lambda one: (one.why_not is not None, one.state != "yes")), faults


def _why_not(idea: Idea, script: str, bases: Sequence[str], device_kind: str, *, exactly: bool) -> str | None:
    """Return why an idea does not apply; None where it does. exactly: merge it, instead of looking for its lines."""
    if not exactly:
        is_at_home = patched(idea.patch, script) is not None or may_apply(idea.patch, script)
        return None if is_at_home else f"idea {idea.slug} is about lines that this script does not have"
    try:
        applied(idea, script, bases, device_kind)
    except ScriptError as error:
        return str(error)
    return None


MOST_BASES = 3  # kept scripts, besides the first: git takes some milliseconds for each, and there are many ideas
SAID_NAMES = 8  # of skipped ideas, in one sentence


class Catalogue:
    """Propose ideas of the folders `ideas`: the one beside the script, and the shipped one.

    past: earlier nights, whose measurements count as well; say: told once of every idea that cannot be used.
    """

    def __init__(
        self, script: Path, past: Sequence[PastNight] = (), say: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._folders = idea_folders(script)
        self._past = past
        self._say = say
        self._told: set[str] = set()  # sentences about files, and slugs of ideas that did not apply
        self._conflicts: set[tuple[str, str]] = set()  # a patch, and the hash of a script to which it does not apply

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        """Return the best idea that applies; raise Exhausted when there is none for this incumbent."""
        known, faults = read_ideas(*self._folders)  # each time: a user may add one during the night
        for fault in faults:
            if fault not in self._told:
                self._told.add(fault)
                self._say(fault)
        sigma_bpb = briefing.noise.sigma_bpb if briefing.noise else None
        refused = {fingerprint(one.proposal.script) for one in briefing.refused}
        skipped: list[str] = []
        try:
            for one in prospects(known, briefing.night, briefing.history, sigma_bpb, self._past):
                script = self._edited(one.idea, briefing, skipped) if one.is_open and not one.is_unlikely else None
                if script is None or fingerprint(script) in refused:
                    continue
                if tried_as(script, briefing.history) is None:
                    return [proposal_of(one, script, briefing.night)]
        finally:
            self._tell([slug for slug in skipped if slug not in self._told], briefing.parent)
        if not known:
            raise Exhausted(f"there is no idea in {' or '.join(map(str, self._folders))}")
        why = "were tried, are unlikely to help, or do not apply to the best script"
        raise Exhausted(f"all {len(known)} known ideas {why}; see: {typed('ideas')}")

    def _edited(self, idea: Idea, briefing: Briefing, skipped: list[str]) -> str | None:
        """Return the best script with the idea's edit; None, and its name in `skipped`, where it does not apply."""
        best = briefing.parent.proposal
        key = idea.patch, best.script
        if key not in self._conflicts:
            try:
                return applied(idea, best.script, bases_of(briefing.history), briefing.night.device_kind)
            except ScriptError:
                self._conflicts.add(key)
        skipped.append(idea.slug)
        return None

    def _tell(self, slugs: Sequence[str], best: Attempt) -> None:
        """Say once of each idea that it does not apply to the best script."""
        if slugs:
            more = f" and {len(slugs) - SAID_NAMES} more" if slugs[SAID_NAMES:] else ""
            names = f"{', '.join(slugs[:SAID_NAMES])}{more}"
            self._say(
                f"ideas that do not apply to attempt {best.number} rest until they do: {names}; see: {typed('ideas')}"
            )
            self._told.update(slugs)


def bases_of(history: History) -> list[str]:
    """Return scripts to which a patch may apply if not to the best one: the latest kept, and the first."""
    known = kept(history)
    return [one.proposal.script for one in (*reversed(known[1:][-MOST_BASES:]), *known[:1])]


def proposal_of(one: Prospect, script: str, night: Night) -> Proposal:
    """Make the proposal, whose hypothesis says what others found, what was measured here, and what is expected."""
    idea, expected = one.idea, one.estimate
    words = [
        idea.why,
        f"Source: {idea.source}" if idea.source else "",
        f"Reported: {idea.reported}" if idea.reported else "",
        *past_words(one, night),
        f"Expected here: val_bpb changes by {-expected.mean_percent:+.2f} % ± {expected.spread_percent:.2f} "
        f"({percent_sure(expected.sure)} sure of a gain), "
        f"with {idea.gain_percent[night.device_kind]:g} % by the idea's file.",
    ]
    return Proposal.of(script, idea.title, "\n".join(filter(None, words)), f"{SOURCE}: {idea.slug}")


def past_words(one: Prospect, night: Night) -> list[str]:
    """Say what was measured of an idea, in sentences: in earlier nights, and in this one."""
    earlier = [measured for measured in one.measured if measured.tag != night.tag]
    words = [f"Earlier nights: {', '.join(measured.words for measured in earlier)}."] if earlier else []
    if one.attempts:
        last = one.attempts[-1]
        why = one_line(last.decision.reason, 120) if last.decision else "not decided"
        words.append(f"Attempt {last.number} tried it on another script and came near: {why}.")
    return words


# ---- an idea's edit --------------------------------------------------------------------------------------------------


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
