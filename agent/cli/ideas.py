"""The command that lists the known ideas."""

import argparse
import sys
from dataclasses import dataclass

from agent.cli.reading.which import known_tag, night_in, place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError
from agent.experiment import Attempt, Night, incumbent
from agent.invocation import IDEAS as FOLDER
from agent.invocation import typed
from agent.lab.hardware import has_cuda_build
from agent.proposers.catalogue.listing import Listed, listing
from agent.records.past import past_nights
from agent.records.place import Place, read_script
from agent.view.answer import Answer, AnswersTo
from agent.view.ideas import EXPECTED, LEGEND, idea_facts, idea_lines, ideas_lines
from agent.view.screen import print_folded, print_lines, terminal_width


@dataclass(frozen=True, slots=True)
class IdeasOptions:
    name: str | None
    tag: str | None
    answer: Answer


def ideas(options: IdeasOptions) -> int:
    place = place_meant(options.tag)
    night, history = _night(place, options.tag)
    best = incumbent(history)
    script = best.proposal.script if best is not None else read_script(place)
    found, faults = listing(place.script_path, night, script, history, past_nights(place, night.tag))
    for fault in faults:
        print(fault, file=sys.stderr)
    if options.name is not None:
        found = [_named(options.name, found)]
    if not found:
        raise NightError(f"there is no idea in {place.script_path.parent / FOLDER}; put patches of your script there")
    of = f"attempt {best.number} of night {night.tag}" if best is not None else place.script
    if options.answer.on_stdout:
        options.answer.give({"applies_to": of, "ideas": [idea_facts(one) for one in found], "faults": list(faults)})
    elif options.name is not None:
        print_lines(idea_lines(found[0], of, terminal_width()))
    else:
        lines = ideas_lines(found, terminal_width())
        print("\n".join(lines))
        applying = sum(one.why_not is None for one in found)
        bad = f", {len(faults)} {'file' if len(faults) == 1 else 'files'} left out (see above)" if faults else ""
        last = f"{len(found)} ideas, {applying} apply to {of}{bad}; one in full: {typed('ideas', 'NAME')}"
        print_folded([*([LEGEND] if EXPECTED in lines[0] else []), last])
    return 0


def _night(place: Place, tag: str | None) -> tuple[Night, tuple[Attempt, ...]]:
    """Return the night of this tag, or the latest; without any night, one that would begin here now."""
    if tag is not None or place.tags():
        return night_in(place, known_tag(place, tag))
    kind = "metal" if sys.platform == "darwin" else "cuda" if has_cuda_build() else "cpu"
    nothing = dict.fromkeys(("tag", "branch", "base", "device", "protocol", "data", "started"), "")
    return Night(**nothing, script=place.script, budget_s=300.0, seed=0, device_kind=kind), ()


def _named(name: str, found: list[Listed]) -> Listed:
    one = next((one for one in found if one.prospect.idea.slug == name), None)
    if one is None:
        raise NightError(f"there is no idea {name}; see them all with: {typed('ideas')}")
    return one


def _ideas_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("name", nargs="?", metavar="NAME", help="show this idea in full, with its patch")
    words.add_argument("--tag", help="as this night knows them (default: the latest)")
    words.add_argument("--json", action="store_true", help="print them as JSON, or why that failed")


IDEAS = Subcommand(
    "ideas",
    "the known ideas: what is expected of each, what nights found, and whether it applies",
    IdeasOptions,
    ideas,
    _ideas_words,
    answers=AnswersTo.STDOUT,
)
