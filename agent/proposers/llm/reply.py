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

A whole script in one fenced block is accepted, too. Models put all of this into fences, lists, headings and tags: an
answer whose meaning is certain is read. Anything unclear is refused with a sentence that tells the model how to correct
it, since it is asked once more.
"""

import json
import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.errors import ScriptError
from agent.experiment import HYPOTHESIS_CHARS, Proposal
from agent.script.contract import check_script, imports
from agent.script.dials import fingerprint
from agent.text import one_line

REPLY_CHARS = 512 << 10  # twice the largest script
MAX_EDITS = 50
QUOTE_CHARS = 80

# ---- marks of blocks: five to nine of a sign, as models miscount these, too; each on a line of its own
SEARCH, DIVIDER, REPLACE = r"[ \t]*<{5,9}[ \t]*SEARCH\b", r"[ \t]*={5,9}[ \t]*$", r"[ \t]*>{5,9}[ \t]*REPLACE\b"
LINES = rf"((?:(?!{SEARCH}|{DIVIDER}|{REPLACE}).*\n)*+)"
EDIT = re.compile(rf"^{SEARCH}.*\n{LINES}{DIVIDER}\n{LINES}{REPLACE}.*$", re.MULTILINE | re.IGNORECASE)
MARK = re.compile(rf"^(?:{SEARCH}|{REPLACE})(.*)$", re.MULTILINE | re.IGNORECASE)
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`]*)")
TAG = r"</?[a-z][\w-]*>"

# ---- fields, in whatever markup: each goes on until the next, or until an empty line
NAMES = "TITLE|HYPOTHESIS|FILE"
BEFORE, COLON = rf"^(?:[ \t#>*_`+•-]|\d+[.)]|{TAG})*+", r"[ \t*_`]*[:：](?:[*_`]+(?=\s))?"
FIELD_NAME = rf"{BEFORE}(?:{NAMES}){COLON}"
FIELD = re.compile(
    rf"{BEFORE}({NAMES}){COLON}(?:[ \t]*\n)*+(?!{FIELD_NAME})(.*(?:\n(?!{FIELD_NAME}).*\S.*)*)",
    re.MULTILINE | re.IGNORECASE,
)
FIELDS_FIRST = re.compile(rf"(?:[ \t]*\n|{FIELD_NAME}.*\n)*+", re.MULTILINE | re.IGNORECASE)
HEADING = re.compile(rf"^[ \t]*(?:#+[ \t]*|\*\*|__|<)[*_]*({NAMES})(?:>|[*_#]*[ \t]*$)", re.MULTILINE | re.IGNORECASE)
TAGS_ALONE = re.compile(rf"^[ \t]*(?:{TAG}[ \t]*)++$", re.MULTILINE | re.IGNORECASE)
LAST_TAGS = re.compile(rf"(?:{TAG}\s*)++$", re.IGNORECASE)

# some servers send what a model thought before its answer, and some without the tag that begins it
THOUGHT = re.compile(r"\A.*</(?:think(?:ing)?|thought|reasoning|analysis)>", re.DOTALL | re.IGNORECASE)
ANSWER = "answer with TITLE:, HYPOTHESIS: and at least one SEARCH/REPLACE block, and nothing else"


class BadReply(ValueError):
    """Tell the model in one sentence what is wrong with its reply and how to correct it."""


def read_reply(text: str, base: str, name: str) -> Proposal:
    """Apply a reply to the script `base`, whose file is called `name`.

    Raise BadReply if the reply has another form, names another file, searches for lines that match no place or several,
    changes nothing, or makes a script that does not parse or breaks the contract.
    """
    if len(text) > REPLY_CHARS:
        raise BadReply(f"the reply has {len(text):,} characters, more than {REPLY_CHARS:,}: answer with short edits")
    text = THOUGHT.sub("", text.removeprefix("\ufeff").replace("\r\n", "\n"))
    edits = _edits(text, name)
    outside, around, innermost = _fenced(EDIT.sub("\n", text))
    code = innermost
    if not edits:  # the whole script in a fence, perhaps below the fields
        ends = [match.end() for content in innermost if (match := FIELDS_FIRST.match(content))]
        code = [content[end:] for content, end in zip(innermost, ends, strict=True) if content[end:].strip()]
        innermost = [content[:end] for content, end in zip(innermost, ends, strict=True)]
    if not edits and len(code) != 1:
        raise BadReply(f"the reply has no SEARCH/REPLACE block, and {len(code)} code blocks: {ANSWER}")
    fields = _fields("\n\n".join([*around, *innermost]), name) | _fields(outside, name)
    script = _apply(edits, base, name) if edits else code[0].strip("\n") + "\n"
    try:
        check_script(script, name, imports(base))
    except ScriptError as error:
        raise BadReply(f"with this edit {one_line(str(error), 3 * QUOTE_CHARS)}") from error
    if fingerprint(script) == fingerprint(base):
        raise BadReply("the edit changes nothing that runs, at most comments or layout: change the code")
    for wanted in ("TITLE", "HYPOTHESIS"):
        if not fields.get(wanted):
            raise BadReply(f"the reply has no line that begins with {wanted}: and says something; {ANSWER}")
    return Proposal.of(script, fields["TITLE"], fields["HYPOTHESIS"])


def _check_file(named: str, name: str) -> None:
    if (other := named.strip("`*_\"' \t")) != name:
        raise BadReply(f"the reply names the file {_quoted(other)}: edit {name} alone, under just this name")


# ---- its parts -------------------------------------------------------------------------------------------------------


def _fenced(text: str) -> tuple[str, list[str], list[str]]:
    """Return what stands outside of all code fences, in each fence around others, and in each with none in it.

    A fence with a language begins one, in another fence as well. One that does not end is none.
    """
    levels: list[tuple[str, list[str]]] = [("", [])]
    around: list[str] = []
    innermost: list[str] = []
    is_innermost = False
    for line in text.split("\n"):
        fence = FENCE.fullmatch(line)
        if fence is None:
            levels[-1][1].append(line)
            continue
        is_end = len(levels) > 1 and fence[1].startswith(levels[-1][0]) and not fence[2].strip()
        if is_end:
            (innermost if is_innermost else around).append("".join(f"{line}\n" for line in levels.pop()[1]))
        levels[-1][1].append("")
        if not is_end:
            levels.append((fence[1], []))
        is_innermost = not is_end
    return "\n".join(line for _, lines in levels for line in lines), around, innermost


def _fields(text: str, file: str) -> dict[str, str]:
    """Return name → value of the first field of each name; raise BadReply for a second title, or another file."""
    fields: dict[str, str] = {}
    for name, said in FIELD.findall(TAGS_ALONE.sub("", HEADING.sub(r"\1:", text))):
        name, value = name.upper(), LAST_TAGS.sub("", said[:HYPOTHESIS_CHARS]).strip("*_ \t\n")
        line = value.partition("\n")[0].strip("*_ \t")
        if name == "FILE":
            _check_file(line, file)
        if name == "TITLE" and fields.setdefault(name, line).casefold() != line.casefold():
            both = f"{_quoted(fields[name])} and {_quoted(line)}"
            raise BadReply(f"the reply has two titles, {both}: propose one edit with one title")
        fields.setdefault(name, value)
    return fields


# ---- its blocks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold the lines of a block, and the indentation of its first mark."""

    indent: str
    search: list[str]
    new: list[str]

    def forms(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the lines to search for, and the new ones, as they stand and without the indentation of the mark.

        That may be of a list around the block, or of the script.
        """
        yield self.search, self.new
        if self.indent and all(line.startswith(self.indent) for line in (*self.search, *self.new) if line.strip()):
            search, new = ([line.removeprefix(self.indent) for line in side] for side in (self.search, self.new))
            yield search, new


def _edits(text: str, name: str) -> list[Edit]:
    """Return the blocks of a reply; raise BadReply for one that is not whole, or is about another file."""
    edits: list[Edit] = []
    is_whole = True
    for match in EDIT.finditer(text):
        first, last = MARK.findall(match[0])
        is_whole = _is_no_code(first, name) and _is_no_code(last, name, may_be_words=True)
        if not is_whole:
            break
        indent = match[0].partition("<")[0]
        edits.append(Edit(indent, _without_fences(match[1]), _without_fences(match[2])))
    if not is_whole or len(edits) > MAX_EDITS or MARK.search(EDIT.sub("\n", text)):
        raise BadReply(
            f"block {len(edits) + 1} is not whole: write at most {MAX_EDITS} blocks, each with its three marks "
            f"<<<<<<< SEARCH, ======= and >>>>>>> REPLACE, each mark alone on a line"
        )
    return edits


def _is_no_code(said: str, name: str, *, may_be_words: bool = False) -> bool:
    """Return whether what stands behind a mark is no line of the script; raise BadReply where it names another file."""
    said = re.sub(TAG, "", said, flags=re.IGNORECASE).strip(" \t:`*_\"'()[]#-")
    if re.fullmatch(r"[\w./\\-]+\.[a-z]\w*", said):
        _check_file(said, name)
        return True
    if re.fullmatch(r"(?i:block )?\d*", said):
        return True
    return may_be_words and not re.search(r"[=(]", said) and not keyword.iskeyword(said.split()[0])


def _without_fences(side: str) -> list[str]:
    """Return the lines of one side of a block, without fences around them."""
    lines = side.split("\n")[:-1]
    while lines and FENCE.fullmatch(lines[0]):
        lines = lines[1:]
    while lines and FENCE.fullmatch(lines[-1]):
        lines = lines[:-1]
    return lines


def _apply(edits: Sequence[Edit], base: str, name: str) -> str:
    """Apply all edits; each refers to the unedited base, so their order does not matter."""
    lines = base.split("\n")
    text = "\n".join(["", *map(str.rstrip, lines), ""])  # models do not copy blanks at the end of a line
    spans = []
    for number, edit in enumerate(edits, 1):
        places = [(place, new) for search, new in edit.forms() for place in _places(search, text)]
        if not places:
            raise BadReply(
                f"the SEARCH of block {number}, {_quoted(' '.join(edit.search))}, is not in {name}: copy whole lines "
                f"exactly, with their indentation and without leaving one out"
            )
        if len(places) > 1:
            raise BadReply(
                f"the SEARCH of block {number} is in several places of {name}: "
                f"copy more of the lines around it, so that it matches exactly one place"
            )
        ((start, new),) = places
        spans.append((start, start + len(edit.search), new))
    spans.sort()
    if any(end > following for (_, end, _), (following, _, _) in pairwise(spans)):
        raise BadReply("two blocks edit the same lines: join them into one")
    for start, end, new in reversed(spans):
        lines[start:end] = new
    return "\n".join(lines)


def _places(search: Sequence[str], text: str) -> list[int]:
    """Return the numbers of the first two lines at which these lines stand in a text of "", the lines, and ""."""
    wanted, places, at = "\n".join(["", *map(str.rstrip, search), ""]), list[int](), -1
    while wanted.strip() and len(places) < 2 and (at := text.find(wanted, at + 1)) >= 0:
        places.append(text.count("\n", 0, at))
    return places


def _quoted(text: str) -> str:
    return json.dumps(one_line(text, QUOTE_CHARS), ensure_ascii=False)
