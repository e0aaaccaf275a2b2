"""Read known ideas from their files: a patch of the training script under a header that says why it should help.

agent/ideas/README.md describes the format. A file that cannot be read is skipped, with a sentence that says why.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import get_args

from agent.errors import NightshiftError, ScriptError
from agent.files import check_plain
from agent.invocation import IDEAS, PACKAGE
from agent.lab.hardware import DeviceKind
from agent.script.contract import read_text
from agent.script.merge import EDITED, PATCH_HUNK
from agent.text import harmless, one_line, paragraphs

FIELDS = ("Title", "Why", "Source", "Reported", "Group", "Gain", "Cost")
SMALL_GAIN_PERCENT = 0.1  # expected of an idea whose file states no gain: most ideas bring little
NO_GROUP = "other"  # the group of ideas that have nothing in common
TITLE_CHARS, TEXT_CHARS, GROUP_CHARS = 80, 2000, 20

SLUG = re.compile(r"\w[\w.-]{0,79}", re.ASCII)  # commits, tables and the journal hold this name
PERCENT = re.compile(r"(\w+) +([+-]?\d+(?:\.\d+)?) *%?")


@dataclass(frozen=True, slots=True)
class KnownIdea:
    """A known idea: its change, the reason why it should help, its expected gain and its cost."""

    slug: str  # the name of its file
    title: str
    why: str
    source: str  # who had the idea: a paper, a repository
    reported: str
    group: str
    gain_percent: Mapping[str, float]  # device kind → by how much val_bpb is expected to fall in five minutes
    cost_percent: Mapping[str, float]  # device kind → the share of the tokens/s that it is expected to take
    patch: str
    file: Path


def idea_folders(script: Path) -> tuple[Path, ...]:
    """Return the folders of ideas for a script: the user's, beside the script, and then the shipped one."""
    return tuple(dict.fromkeys(folder.resolve() / IDEAS for folder in (script.parent, PACKAGE)))


def read_ideas(*folders: Path) -> tuple[tuple[KnownIdea, ...], tuple[str, ...]]:
    """Return the ideas in these folders by their slugs, and a sentence for every file that cannot be read.

    Of two ideas with one slug, that of the earlier folder counts.
    """
    ideas: dict[str, KnownIdea] = {}
    faults: list[str] = []
    for folder in folders:
        for file in sorted(folder.glob("*.patch")):
            if file.stem in ideas:
                continue
            try:
                ideas[file.stem] = read_idea(file)
            except NightshiftError as error:
                faults.append(harmless(str(error)))
    return tuple(ideas[slug] for slug in sorted(ideas)), tuple(faults)


def read_idea(file: Path) -> KnownIdea:
    """Read the file of an idea; raise NightshiftError, with the remedy, for a damaged one."""
    if SLUG.fullmatch(file.stem) is None:
        raise ScriptError(f"{file} has a name of other characters than a-z, A-Z, 0-9, _, - and .; give it another one")
    check_plain(file)
    fields, patch = read_header(read_text(file), FIELDS, file)
    pairs = EDITED.findall(patch)
    if len(pairs) != 1 or pairs[0][0] != pairs[0][1] or PATCH_HUNK.search(patch) is None:
        raise ScriptError(f"{file} is no patch of one file; make one with: git diff train_mlx.py")
    if not fields.get("Title"):
        raise ScriptError(f"{file} has no title; begin it with a line such as: Title: Warm up longer")
    return KnownIdea(
        slug=file.stem,
        title=one_line(fields["Title"], TITLE_CHARS),
        why=paragraphs(fields.get("Why", "").replace("\n", " "), TEXT_CHARS),
        source=one_line(fields.get("Source", ""), TEXT_CHARS),
        reported=one_line(fields.get("Reported", ""), TEXT_CHARS),
        group=one_line(fields.get("Group", NO_GROUP), GROUP_CHARS),
        gain_percent=_percent(fields, "Gain", SMALL_GAIN_PERCENT, file),
        cost_percent=_percent(fields, "Cost", 0.0, file),
        patch=patch,
        file=file,
    )


def read_header(text: str, names: Collection[str], file: Path) -> tuple[dict[str, str], str]:
    """Return the fields of a file's header, as in an email, and the rest; a line that goes on begins with spaces.

    Raise ScriptError for an unknown field, and for one that is given twice.
    """
    message = HeaderParser().parsestr(text)
    for name, times in Counter(message.keys()).items():
        if name not in names or times > 1:
            raise ScriptError(
                f"{file} gives {one_line(name, 40)!r}, which is no field of its header, or comes a second time; write "
                f"'Name: value' once with any of {', '.join(names)}, and two spaces before a line that goes on"
            )
    fields = {name: "\n".join(map(str.strip, value.split("\n"))) for name, value in message.items()}
    return fields, str(message.get_payload())


def _percent(fields: Mapping[str, str], name: str, default: float, file: Path) -> dict[str, float]:
    """Read a field such as `cuda 0.6, metal 0.5`; device kinds that it does not name have the default."""
    percents = dict.fromkeys(get_args(DeviceKind), default)
    for part in filter(None, (part.strip() for part in fields.get(name, "").split(","))):
        match = PERCENT.fullmatch(part)
        if match is None or match[1] not in percents or abs(float(match[2])) > 100:
            raise ScriptError(
                f"{file}: {name} {one_line(part, 40)!r} cannot be read; write percents as in: {name}: cuda 0.6, cpu 0.3"
            )
        percents[match[1]] = float(match[2])
    return percents
