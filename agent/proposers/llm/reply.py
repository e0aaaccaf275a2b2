"""Parse a language model's reply strictly into a title, a hypothesis and an edited script, without executing anything.

Small local models miscount the lines of a diff and make mistakes when they repeat a long file. But nearly all can copy
the lines to change and write their replacement:

    TITLE: what is changed
    HYPOTHESIS: why it should help
    <<<<<<< SEARCH
    lines of the script
    =======
    lines that replace them
    >>>>>>> REPLACE

A whole script in one fenced block is accepted, too. Anything unclear is refused with a sentence that tells the model
how to correct it, since it is asked once more. In an answer of several ideas each is read by itself, so that an unclear
one does not cost the others.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from agent.errors import ScriptError
from agent.proposers.author.near import Combinable
from agent.script.contract import check_script
from agent.script.dials import fingerprint
from agent.text import one_line

REPLY_CHARS = 512 << 10  # twice the largest script
MAX_EDITS = 50
MOST_IDEAS = 3  # of one reply
QUOTE_CHARS = 80

# five to nine of a sign, as models miscount these, too
SEARCH = re.compile(r"<{5,9} ?SEARCH\s*")
DIVIDER = re.compile(r"={5,9}\s*")
REPLACE = re.compile(r">{5,9} ?REPLACE\s*")
# the part of a block that a mark begins, and what is wrong with one elsewhere
PARTS: dict[tuple[str, re.Pattern[str] | None], str] = {
    ("rest", SEARCH): "search",
    ("search", DIVIDER): "replace",
    ("replace", REPLACE): "rest",
}
NO_DIVIDER = "block {number} has no ======= line between SEARCH and REPLACE: write it"
NO_END = "block {number} does not end with >>>>>>> REPLACE before the next begins: end it"
MISPLACED: dict[tuple[str, re.Pattern[str] | None], str] = {
    ("rest", REPLACE): "a REPLACE line ends no block after block {before}: begin each with <<<<<<< SEARCH",
    ("search", SEARCH): NO_DIVIDER,
    ("search", REPLACE): NO_DIVIDER,
    ("replace", SEARCH): NO_END,
    ("replace", DIVIDER): NO_END,
}
FENCE = re.compile(r" {0,3}(`{3,})([^`]*)")
FIELD = re.compile(r"[\s#>*_]*(TITLE|HYPOTHESIS|FILE|COMBINES)[\s*_]*:(.*)", re.IGNORECASE)
IDEA = re.compile(r"[\s#>*_]*IDEA\s+#?[0-9]{1,2}[\s*_]*(?:[:.–—-].*)?", re.IGNORECASE)  # the line above an idea
NUMBERS = re.compile(r"(?:[\s,;&+#.0-9]|and|attempts?)+", re.IGNORECASE)
# a line that is only a path, as models write above a block; and a path after the language of a block
PATH = re.compile(r"[\s#*`\"']*((?:[\w./\\~:-]*[\w~-]\.\w{1,8})|(?:[./\\~][\w./\\~-]*))[`*:\"'\s]*")
LANGUAGE = re.compile(r"(?:python3?|py)?[\s:]*(?:(?:title|file(?:name)?|path)=)?", re.IGNORECASE)
THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)  # some servers send it before the answer
ANSWER = "answer with TITLE:, HYPOTHESIS: and at least one SEARCH/REPLACE block, and nothing else"


class BadReply(ValueError):
    """Tell the model in one sentence what is wrong with its reply and how to correct it."""


@dataclass(frozen=True, slots=True)
class Edited:
    """Hold the parsed reply."""

    title: str
    hypothesis: str
    script: str  # the whole text
    combines: str = ""  # the text of that field


@dataclass(frozen=True, slots=True)
class _Replacement:
    search: list[str]
    replace: list[str]


@dataclass(frozen=True, slots=True)
class _Block:
    info: str  # the text after the opening fence
    lines: list[str]

    @property
    def is_blank(self) -> bool:
        return not any(line.strip() for line in self.lines)


def read_reply(text: str, base: str, name: str) -> Edited:
    """Apply a reply to the script `base`, whose file is called `name`.

    Raise BadReply if the reply has another form, edits another file, searches for lines that match no place or several,
    changes nothing, or makes a script that does not parse or breaks the contract.
    """
    if len(text) > REPLY_CHARS:
        raise BadReply(f"the reply has {len(text):,} characters, more than {REPLY_CHARS:,}: answer with short edits")
    if not text.strip():
        raise BadReply(f"the reply is empty: {ANSWER}")
    edits, rest = _take_edits(_without_thought(text))
    blocks, prose = _take_blocks(rest)
    _check_names([*_names(prose), *(named for block in blocks for named in _names_of(block))], name)
    code = [block for block in blocks if not block.is_blank and not all(map(_path, filter(str.strip, block.lines)))]
    script = _edited(base, edits, code, name)
    title, hypothesis = _field(prose, "title"), _hypothesis(prose)
    for field, value in (("TITLE", title), ("HYPOTHESIS", hypothesis)):
        if not value:
            raise BadReply(f"the reply has no line that begins with {field}: and says something; {ANSWER}")
    return Edited(title, hypothesis, script, _field(prose, "combines"))


def read_ideas(text: str, base: str, name: str, *, is_whole: bool = True) -> tuple[Edited, ...]:
    """Read the first MOST_IDEAS ideas of a reply, each by itself; leave out the broken ones and repetitions.

    is_whole: False for a reply that was cut off, whose last idea is not read. Raise BadReply if no idea is sound.
    """
    ideas = _split(text) if len(text) <= REPLY_CHARS else [text]
    sound: dict[str, Edited] = {}
    wrong: list[str] = []
    for number, idea in enumerate(ideas[:MOST_IDEAS], 1):
        if number == len(ideas) and not is_whole:
            wrong.append(f"idea {number}: the answer was cut off in it")
            continue
        try:
            edited = read_reply(idea, base, name)
        except BadReply as error:
            wrong.append(f"idea {number}: {error}" if ideas[1:] else str(error))
        else:
            sound.setdefault(fingerprint(edited.script), edited)
    if not sound:
        raise BadReply("; ".join(wrong))
    return tuple(sound.values())


def read_combination(text: str, base: str, name: str, parts: Combinable) -> Edited:
    """Read a reply that combines some of these parts; say in its hypothesis which."""
    edited = read_reply(text, base, name)
    numbers = sorted({int(number) for number in re.findall("[0-9]{1,6}", edited.combines)})
    if not numbers or not NUMBERS.fullmatch(edited.combines):
        raise BadReply("the reply has no line COMBINES: with the numbers of the attempts that it combines: add it")
    offered = {*parts.near, *parts.keeps}
    strange = next((number for number in numbers if number not in offered), None)
    if strange is not None:
        raise BadReply(f"attempt {strange} is not among {_listed(offered)}: combine some of these")
    if len(numbers) < 2 or not set(numbers) & set(parts.near):
        raise BadReply(f"COMBINES: names {_listed(numbers)}: name two or more, at least one of {_listed(parts.near)}")
    together = " and ".join(f"#{number}" for number in numbers)
    return replace(edited, hypothesis=f"Combines {together}. {edited.hypothesis}")


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _split(text: str) -> list[str]:
    """Split a reply into its ideas: each begins with a line IDEA n, or with its TITLE; the whole if there is no such.

    Inside a block, such a line may be the script's own. There it begins an idea only if the next line is a further
    field, as after a block that its author forgot to end.
    """
    lines = _without_thought(text)
    starts: list[int] = []
    is_titled = in_edit = in_fence = False
    for at, line in enumerate(lines):
        is_header, is_title = IDEA.fullmatch(line) is not None, _is_field(line, "title")
        if is_header or is_title:
            following = next((lines[after] for after in range(at + 1, len(lines)) if lines[after].strip()), "")
            if not (in_edit or in_fence) or _is_field(following, "title" if is_header else "hypothesis"):
                if is_header or is_titled or not starts:
                    starts.append(at)
                is_titled, in_edit, in_fence = is_title, False, False
        elif in_edit or SEARCH.fullmatch(line):
            in_edit = not REPLACE.fullmatch(line)
        elif FENCE.fullmatch(line):
            in_fence = not in_fence
    parts = [lines[at:end] for at, end in pairwise([*starts, len(lines)])]
    # a plan before the ideas may name them, too
    return ["\n".join(part[1:] if IDEA.fullmatch(part[0]) else part) for part in parts if _is_idea(part)] or [text]


def _is_idea(lines: Sequence[str]) -> bool:
    return any(_is_field(line, "title") or SEARCH.fullmatch(line) for line in lines)


def _without_thought(text: str) -> list[str]:
    """Return the lines of a reply after the thoughts that some servers send."""
    thought = THOUGHT.match(text)
    return text[thought.end() if thought else 0 :].replace("\r\n", "\n").split("\n")


def _is_field(line: str, name: str) -> bool:
    field = FIELD.fullmatch(line)
    return field is not None and field[1].lower() == name


def _edited(base: str, edits: Sequence[_Replacement], code: Sequence[_Block], name: str) -> str:
    if edits and code:
        raise BadReply("the reply has SEARCH/REPLACE blocks and other code blocks: give the blocks alone")
    if edits:
        script = _apply(edits, base, name)
    elif len(code) == 1:
        if code[0].info.lower().startswith(("diff", "patch")):
            raise BadReply(f"a diff is not read here: {ANSWER}")
        script = "\n".join(code[0].lines).strip("\n") + "\n"
    else:
        found = f"{len(code)} code blocks" if code else "no SEARCH/REPLACE block and no code block"
        raise BadReply(f"the reply has {found}: {ANSWER}")
    try:
        check_script(script, name)
    except ScriptError as error:
        raise BadReply(f"with this edit {one_line(str(error), 3 * QUOTE_CHARS)}") from error
    if fingerprint(script) == fingerprint(base):
        raise BadReply("the edit changes nothing that runs, at most comments or layout: change the code")
    return script


def _apply(edits: Sequence[_Replacement], base: str, name: str) -> str:
    """Apply all edits; each refers to the unedited base, so their order does not matter."""
    lines = base.split("\n")
    keys = [line.rstrip() for line in lines]  # models do not copy blanks at the end of a line
    spans = sorted(
        ((_find(edit, keys, number, name), number, edit) for number, edit in enumerate(edits, 1)),
        key=lambda span: span[0],
    )
    for (start, number, edit), (following, other, _) in pairwise(spans):
        if start + len(edit.search) > following:
            raise BadReply(f"blocks {number} and {other} edit the same lines: join them into one")
    for start, _, edit in reversed(spans):
        lines[start : start + len(edit.search)] = edit.replace
    return "\n".join(lines)


def _find(edit: _Replacement, keys: Sequence[str], number: int, name: str) -> int:
    """Return the index of the line where the searched lines begin; raise BadReply unless there is exactly one."""
    wanted = [line.rstrip() for line in edit.search]
    if not any(wanted):
        raise BadReply(f"block {number} has an empty SEARCH: copy the lines into it that are to be replaced")
    starts = _starts(keys, wanted)
    if len(starts) > 1:
        raise BadReply(
            f"the SEARCH of block {number} stands in {name} at lines {' and '.join(str(at + 1) for at in starts)}: "
            f"copy more of the lines around it, so that it matches exactly one place"
        )
    if not starts:
        known = set(keys)
        strange = next((line for line in wanted if line not in known), None)
        hint = f"; no line there is {_quoted(strange)}" if strange is not None else ""
        raise BadReply(
            f"the SEARCH of block {number} does not stand in {name}{hint}: copy whole lines exactly, "
            f"with their indentation and without leaving one out"
        )
    return starts[0]


def _starts(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the first two places where the wanted lines occur; searched as text, in linear time."""
    text, part = ("\n".join(["", *some, ""]) for some in (lines, wanted))
    first = text.find(part)
    second = text.find(part, first + 1) if first >= 0 else -1
    return [text.count("\n", 0, at) for at in (first, second) if at >= 0]


def _take_edits(lines: Sequence[str]) -> tuple[list[_Replacement], list[str]]:
    """Split lines into SEARCH/REPLACE blocks and the rest, with an empty line in place of each block."""
    edits: list[_Replacement] = []
    parts: dict[str, list[str]] = {"rest": [], "search": [], "replace": []}
    part = "rest"
    for line in lines:
        mark = next((mark for mark in (SEARCH, DIVIDER, REPLACE) if mark.fullmatch(line)), None)
        if (part, mark) in MISPLACED:
            raise BadReply(MISPLACED[part, mark].format(number=len(edits) + 1, before=len(edits)))
        if (part, mark) not in PARTS:
            parts[part].append(line)
            continue
        part = PARTS[part, mark]
        if part == "search":
            parts |= {"rest": [*parts["rest"], ""], "search": [], "replace": []}
        elif part == "rest":
            edits.append(_Replacement(parts["search"], parts["replace"]))
    if part != "rest":
        raise BadReply(f"block {len(edits) + 1} is not finished: end it with >>>>>>> REPLACE, and keep the reply short")
    if len(edits) > MAX_EDITS:
        raise BadReply(f"the reply has {len(edits)} blocks, more than {MAX_EDITS}: one idea at a time")
    return edits, parts["rest"]


def _take_blocks(lines: Sequence[str]) -> tuple[list[_Block], list[str]]:
    """Split lines into fenced blocks and the prose around them, with an empty line in place of each block."""
    blocks: list[_Block] = []
    prose: list[str] = []
    fence = ""  # the opening backticks, inside a block
    for line in lines:
        mark = FENCE.fullmatch(line)
        if not fence and mark:
            fence = mark[1]
            blocks.append(_Block(mark[2].strip(), []))
            prose.append("")
        elif fence and mark and len(mark[1]) >= len(fence) and not mark[2].strip():
            fence = ""
        else:
            (blocks[-1].lines if fence else prose).append(line)
    if fence:
        raise BadReply("a code block is not closed: finish the reply, and prefer short SEARCH/REPLACE blocks")
    return blocks, prose


def _names(lines: Sequence[str]) -> list[str]:
    """Return the files that the lines name, in a FILE field or as a line that is only a path."""
    fields = [found for line in lines if (found := FIELD.fullmatch(line)) and found[1].lower() == "file"]
    named = [field[2].strip("`*_\"' \t") for field in fields]
    return named + [path for line in lines if (path := _path(line)) is not None]


def _names_of(block: _Block) -> list[str]:
    after = LANGUAGE.sub("", block.info, count=1)
    heads = [path] if after and (path := _path(after)) is not None else []
    alone = [line for line in block.lines if line.strip()]
    return heads + (_names(alone) if all(map(_path, alone)) else [])


def _path(line: str) -> str | None:
    found = PATH.fullmatch(line)
    return found[1] if found else None


def _check_names(found: Sequence[str], name: str) -> None:
    other = next((one for one in found if one != name), None)
    if other is not None:
        raise BadReply(f"the reply names the file {_quoted(other)}: edit {name} alone, under just this name")


def _field(prose: Sequence[str], name: str) -> str:
    found = (FIELD.fullmatch(line) for line in prose)
    return next((field[2].strip("*_ \t") for field in found if field and field[1].lower() == name), "")


def _hypothesis(prose: Sequence[str]) -> str:
    """Return the text from the HYPOTHESIS field to the next field or an empty line."""
    words: list[str] | None = None
    for line in prose:
        field = FIELD.fullmatch(line)
        if words is None:
            words = [field[2].strip("*_ \t")] if field and field[1].lower() == "hypothesis" else None
        elif field or (any(words) and not line.strip()):
            break
        else:
            words.append(line)
    return "\n".join(words or []).strip()


def _quoted(text: str) -> str:
    return json.dumps(one_line(text, QUOTE_CHARS), ensure_ascii=False)
