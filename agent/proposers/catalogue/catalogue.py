"""Propose known ideas: the one with the largest expected gain among those that apply to the best script.

A proposal is a function of the ideas, the history and the earlier nights: nothing is drawn, so a resumed night goes on
like an undisturbed one. After an idea is kept, its dials are dials of the best script, and the search turns them.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.errors import Exhausted, ScriptError
from agent.experiment import History, Night, Proposal, best_of, kept
from agent.invocation import SCRIPT, STARTER, typed
from agent.judging.noise import noise
from agent.proposers.catalogue.evidence import PROPOSER, Prospect, prospects
from agent.proposers.catalogue.files import KnownIdea, idea_folders, read_ideas
from agent.proposers.proposer import Around, Briefing, Proposer
from agent.records.record import Record
from agent.script.contract import read_text
from agent.script.dials import DIAL
from agent.script.merge import PATCH_HUNK, check_edit, holds, patched, with_edit
from agent.text import percent_sure

DIAL_LINE = re.compile(rf"^({DIAL.pattern}) *=(?!=).*")

# lines that follow each other in a hunk, added or taken away, with the line before and the line after them
CHANGE = re.compile(r"(?<=\n)((?:[ \\].*)?)\n?((?:^[+-].*\n)+)(?=(.*))", re.MULTILINE)


class Catalogue(Proposer):
    """Propose ideas of the folders `ideas`: the one beside the script, and the shipped one."""

    name, help = PROPOSER, "known ideas, one patch each in ideas/, needs no key"

    @classmethod
    def of(cls, around: Around) -> "Catalogue":
        """Build it, and have the night say which files cannot be used."""
        catalogue = cls(around.place.script_path)
        for fault in read_ideas(*catalogue._folders)[1]:
            around.messages.say(fault)
        return catalogue

    def __init__(self, script: Path) -> None:
        self._folders = idea_folders(script)

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        """Return the best idea that applies; raise Exhausted when there is none for this best script."""
        ideas, _ = read_ideas(*self._folders)  # each time: a user may add one during the night
        night, script = briefing.night, briefing.parent.proposal.script
        bases = [attempt.proposal.script for attempt in reversed(kept(briefing.history))]
        for prospect in prospects(ideas, night, briefing.history, briefing.sigma_bpb, briefing.past):
            if not prospect.is_open or prospect.is_unlikely or not may_apply(prospect.idea.patch, script):
                continue
            with suppress(ScriptError):
                edited = applied(prospect.idea, script, bases, night.device_kind)
                if briefing.is_new(edited):
                    return [_proposal(prospect, edited, night)]
        raise Exhausted(
            f"all {len(ideas)} known ideas were tried, are unlikely to help, or do not apply to the best script; "
            f"see: {typed('ideas')}"
        )


def listing(
    file: Path, night: Night, script: str, history: History, past: Sequence[Record]
) -> tuple[list[Prospect], tuple[str, ...]]:
    """Return the ideas for the script in this file, and a sentence for each bad file.

    They come in the order in which the night tries them: the largest expected gain first, then those that it does not
    try now, and last those that do not apply.
    script: the text to which they are to apply, which a night may have edited since.
    """
    ideas, faults = read_ideas(*idea_folders(file))
    spread = noise(history) if best_of(history) is not None else None
    listed = [
        replace(prospect, applies=may_apply(prospect.idea.patch, script))
        for prospect in prospects(ideas, night, history, spread.sigma_bpb if spread else None, past)
    ]
    return sorted(listed, key=lambda prospect: (not prospect.applies, prospect.state != "yes")), faults


def _proposal(prospect: Prospect, script: str, night: Night) -> Proposal:
    """Make the proposal; its hypothesis has the findings of others, the measurements here, and the expected gain."""
    idea, expected = prospect.idea, prospect.estimate
    earlier = [measured.words for measured in prospect.measured if measured.tag != night.tag]
    near = [attempt.number for attempt in prospect.attempts[-1:]]
    words = [
        idea.why,
        f"Source: {idea.source}" if idea.source else "",
        f"Reported: {idea.reported}" if idea.reported else "",
        f"Gains in earlier nights: {', '.join(earlier)}." if earlier else "",
        *(f"Attempt {number} tried it on another script and came near." for number in near),
        f"Expected gain here: {expected.mean_percent:+.2f} % ± {expected.spread_percent:.2f} "
        f"({percent_sure(expected.sure)} sure), with {idea.gain_percent[night.device_kind]:g} % by the idea's file.",
    ]
    return Proposal.of(script, idea.title, "\n".join(filter(None, words)), f"{PROPOSER}: {idea.slug}")


# ---- an idea's edit --------------------------------------------------------------------------------------------------


def may_apply(patch: str, script: str) -> bool:
    """Return whether the lines that a patch takes away, and one beside each that it adds, are in a script.

    Values of dials do not matter. A merge with the edits kept since would tell exactly, but takes a fifth of a second,
    and there may be a hundred ideas.
    """
    text = _gist(script)
    changes = (change for hunk in PATCH_HUNK.finditer(f"{patch}\n") for change in CHANGE.finditer(f"\n{hunk['lines']}"))
    return all(any(_gist(part) in text for part in _old(change)) for change in changes)


def _old(change: re.Match[str]) -> Sequence[str]:
    """Return the lines that a change takes away, or else the line before and the one after it."""
    removed = "\n".join(line[1:] for line in change[2].split("\n") if line.startswith("-"))
    return (removed,) if removed else (change[1][1:], change[3][1:])


def _gist(text: str) -> str:
    """Return a text's lines without the values of its dials, between line breaks."""
    return "\n" + "\n".join(DIAL_LINE.sub(r"\1", line) for line in text.split("\n")) + "\n"


def applied(idea: KnownIdea, script: str, bases: Sequence[str], device_kind: str) -> str:
    """Return the script with an idea's edit; raise ScriptError, with the reason, where it does not apply.

    bases: scripts to which the patch may apply if it does not apply to this one, those nearest to it first. The shipped
    script is tried after them. Dials keep the script's values, except for those that the patch itself turns.
    """
    shipped = [read_text(STARTER / SCRIPT)] if (STARTER / SCRIPT).is_file() else []
    for base in dict.fromkeys((script, *bases, *shipped)):
        edited = patched(idea.patch, base)
        if edited is None:
            continue
        try:
            if base != script and holds(script, base, edited, device_kind):
                edited = script
            elif base != script:
                edited = with_edit(script, base, edited, device_kind)
            check_edit(edited, script)
        except (ScriptError, SyntaxError) as error:
            raise ScriptError(f"idea {idea.slug} does not go together with this script: {error}") from error
        if edited == script:
            raise ScriptError(f"idea {idea.slug} is in this script already; try another one")
        return edited
    raise ScriptError(f"idea {idea.slug} does not apply to this script; make its patch again, of this script")
