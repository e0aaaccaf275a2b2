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
import re
from collections.abc import Sequence
from itertools import pairwise
from textwrap import dedent

from agent.errors import ScriptError
from agent.experiment import HYPOTHESIS_CHARS, Proposal
from agent.script.contract import check_script, imports_of_edits
from agent.script.dials import fingerprint
from agent.text import one_line, plain_lines

REPLY_CHARS = 512 << 10  # twice the largest script
MAX_EDITS = 50
QUOTE_CHARS = 80

# ---- marks of blocks: five to nine of a sign, as models miscount these, too; each on a line of its own
# Groups are atomic, (?>…): Python 3.11.2 finds no match of possessive ones.
SEARCH, DIVIDER, REPLACE = r"[ \t]*<{5,9}[ \t]*SEARCH\b", r"[ \t]*={5,9}[ \t]*$", r"[ \t]*>{5,9}[ \t]*REPLACE\b"
LINES = rf"((?>(?:(?!{SEARCH}|{DIVIDER}|{REPLACE}).*\n)*))"
EDIT = re.compile(rf"^({SEARCH}(.*)\n{LINES}{DIVIDER}\n{LINES}{REPLACE}(.*))$", re.MULTILINE | re.IGNORECASE)
MARK = re.compile(rf"^(?:{SEARCH}|{REPLACE})", re.MULTILINE | re.IGNORECASE)

# ---- fences: one with a language begins one, in another fence as well
FENCE = r"[ \t]*(?:`{3,}|~{3,})[^`\n]*\n"
FENCES = re.compile(f"^{FENCE}", re.MULTILINE)
AROUND = re.compile(rf"\A{FENCE}|^{FENCE}\Z", re.MULTILINE)
CODE = re.compile(rf"^{FENCE}((?>(?:(?!{FENCE}).*\n)*))[ \t]*(?:`{{3,}}|~{{3,}})[ \t]*\n", re.MULTILINE)

# ---- fields, in whatever markup: each goes on until the next, or until an empty line
NAMES = "TITLE|HYPOTHESIS|FILE"
TAG = rf"<(?!(?:{NAMES})>)/?[a-z][\w-]*>"  # any tag except for those of a field
BEFORE, AFTER = rf"^(?>(?:{TAG}|\(?\w{{1,2}}[.)]|_|[^\w\n\"'(])*)", r"(?:>|[ \t*_`#]*(?:[:：](?:[*_`]+(?=\s))?|$))"
FIELD_NAME = rf"{BEFORE}(?:{NAMES}){AFTER}"
FIELD = re.compile(
    rf"{BEFORE}({NAMES}){AFTER}(?>(?:[ \t]*\n)*)(?!{FIELD_NAME})(.*(?:\n(?!{FIELD_NAME}).*\S.*)*)",
    re.MULTILINE | re.IGNORECASE,
)
FIELDS_FIRST = re.compile(rf"((?>(?:[ \t]*\n|{FIELD_NAME}.*\n)*))", re.MULTILINE | re.IGNORECASE)
LAST_TAGS = re.compile(rf"(?>(?:{TAG}\s*)+)$", re.IGNORECASE)
ASIDE = re.compile(rf"{TAG}|\([^()=]*\)|(?:block )?\d+$", re.IGNORECASE)  # words that may follow a mark
FILE_NAME = re.compile(r"[\w./\\-]+\.[a-z]\w*", re.IGNORECASE)

# some servers send what a model thought before its answer, and some without the tag that begins it
THOUGHT = re.compile(r"\A.*</(?:think(?:ing)?|thought|reasoning|analysis)>", re.DOTALL | re.IGNORECASE)
ANSWER = "answer with TITLE:, HYPOTHESIS: and at least one SEARCH/REPLACE block, and nothing else"
Edit = tuple[list[str], list[str]]  # the lines to search for, and the new ones


class BadReply(ValueError):
    """Tell the model in one sentence what is wrong with its reply and how to correct it."""


def read_reply(text: str, base: str, name: str) -> Proposal:
    """Apply a reply to the script `base`, whose file is called `name`.

    Raise BadReply if the reply has another form, names another file, searches for lines that match no place or several,
    changes nothing, or makes a script that does not parse or breaks the contract.
    """
    if len(text) > REPLY_CHARS:
        raise BadReply(f"the reply has {len(text):,} characters, more than {REPLY_CHARS:,}: answer with short edits")
    text = THOUGHT.sub("", plain_lines(text)) + "\n"
    edits, rest = _edits(text, name), EDIT.sub("\n", text)
    code: list[str] = []
    if not edits:  # the whole script in a fence, perhaps below the fields
        parts = [FIELDS_FIRST.split(content, maxsplit=1)[1:] for content in CODE.findall(rest)]
        code = [script for _, script in parts if script.strip()]
        rest = "\n".join([CODE.sub("\n", rest), *(fields for fields, _ in parts)])
        if len(code) != 1:
            raise BadReply(f"the reply has no SEARCH/REPLACE block, and {len(code)} code blocks: {ANSWER}")
    fields = _fields(FENCES.sub("\n", rest), name)
    script = _apply(edits, base, name) if edits else code[0].strip("\n") + "\n"
    try:
        check_script(script, name, imports_of_edits(base))
    except ScriptError as error:
        raise BadReply(f"with this edit {one_line(str(error), 3 * QUOTE_CHARS)}") from error
    if fingerprint(script) == fingerprint(base):
        raise BadReply("the edit changes nothing that runs, at most comments or layout: change the code")
    for wanted in ("TITLE", "HYPOTHESIS"):
        if not fields.get(wanted):
            raise BadReply(f"the reply has no line that begins with {wanted}: and says something; {ANSWER}")
    return Proposal.of(script, fields["TITLE"], fields["HYPOTHESIS"])


def _check_file(named: str, name: str) -> None:
    if (other := named.strip("`*_\"' \t").removeprefix("./")) != name:
        raise BadReply(f"the reply names the file {_quoted(other)}: edit {name} alone, under just this name")


def _fields(text: str, file: str) -> dict[str, str]:
    """Return name → value of the first field of each name; raise BadReply for a second title, or another file."""
    fields: dict[str, str] = {}
    for name, said in FIELD.findall(text):
        name, value = name.upper(), LAST_TAGS.sub("", said[:HYPOTHESIS_CHARS]).strip("*_ \t\n")
        line = value.partition("\n")[0].strip("*_ \t")
        if name == "FILE":
            _check_file(line, file)
        if name == "TITLE" and fields.setdefault(name, line).casefold() != line.casefold():
            both = f"{_quoted(fields[name])} and {_quoted(line)}"
            raise BadReply(f"the reply has two titles, {both}: propose one edit with one title")
        fields.setdefault(name, value)
    return fields


def _edits(text: str, name: str) -> list[list[Edit]]:
    """Return each block of a reply in its forms; raise BadReply for one that is not whole, or is about another file."""
    blocks = EDIT.findall(text)
    edits = [_forms(block) for block, first, _, _, last in blocks if _is_mark(first, name) and _is_mark(last, name)]
    if len(edits) < len(blocks) or len(edits) > MAX_EDITS or MARK.search(EDIT.sub("\n", text)):
        raise BadReply(
            f"a block is not whole: write at most {MAX_EDITS} blocks, each with its three marks <<<<<<< SEARCH, "
            f"======= and >>>>>>> REPLACE, each mark alone on a line"
        )
    return edits


def _is_mark(said: str, name: str) -> bool:
    """Return whether no code stands behind a mark; raise BadReply where it names another file."""
    said = ASIDE.sub("", said).strip(" \t:`*_\"'[]#-")
    if is_file := FILE_NAME.fullmatch(said):
        _check_file(said, name)
    return not said or is_file is not None


def _forms(block: str) -> list[Edit]:
    """Return the lines to search for, and the new ones: as they stand, and without the indentation of a whole block.

    That may be of a list around the block, or of the script.
    """
    found = filter(None, map(EDIT.match, dict.fromkeys((block, dedent(block)))))
    return [(_side(match[3]), _side(match[4])) for match in found]


def _side(lines: str) -> list[str]:
    return AROUND.sub("", lines).split("\n")[:-1]


def _apply(edits: Sequence[Sequence[Edit]], base: str, name: str) -> str:
    """Apply all edits; each refers to the unedited base, so their order does not matter."""
    lines = base.split("\n")
    text = "\n".join(["", *map(str.rstrip, lines), ""])  # models do not copy blanks at the end of a line
    spans: list[tuple[int, int, list[str]]] = []
    for number, forms in enumerate(edits, 1):
        spots = [(place, place + len(search), new) for search, new in forms for place in _places(search, text)]
        if not spots:
            raise BadReply(
                f"the SEARCH of block {number}, {_quoted(' '.join(forms[0][0]))}, is not in {name}: copy whole lines "
                f"exactly, with their indentation and without leaving one out"
            )
        if len(spots) > 1:
            raise BadReply(
                f"the SEARCH of block {number} is in several places of {name}: "
                f"copy more of the lines around it, so that it matches exactly one place"
            )
        spans += spots
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
