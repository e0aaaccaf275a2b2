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
how to correct it, since it is asked once more.
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise

from agent.errors import ScriptError
from agent.experiment import Proposal
from agent.script.contract import check_script, imports
from agent.script.dials import fingerprint
from agent.text import one_line

REPLY_CHARS = 512 << 10  # twice the largest script
MAX_EDITS = 50
QUOTE_CHARS = 80

# five to nine of a sign, as models miscount these, too; each mark is alone on its line
SEARCH, DIVIDER, REPLACE = r"<{5,9} ?SEARCH[ \t]*", r"={5,9}[ \t]*", r">{5,9} ?REPLACE[ \t]*"
LINES = rf"((?:(?!(?:{SEARCH}|{DIVIDER}|{REPLACE})$).*\n)*+)"
EDIT = re.compile(rf"^{SEARCH}\n{LINES}{DIVIDER}\n{LINES}{REPLACE}$", re.MULTILINE)
MARK = re.compile(rf"^(?:{SEARCH}|{REPLACE})$", re.MULTILINE)
CODE = re.compile(r"^ {0,3}`{3,}[^`\n]*\n((?:(?! {0,3}```).*\n)*+) {0,3}`{3,}[ \t]*$", re.MULTILINE)
BULLET = r"^[ \t#>*_]*"
FIELD_NAME = rf"{BULLET}(TITLE|HYPOTHESIS|FILE)[ \t*_]*:"
# a field goes on until the next, or until an empty line
FIELD = re.compile(rf"{FIELD_NAME}(.*(?:\n(?!{FIELD_NAME}).*\S.*)*)", re.MULTILINE | re.IGNORECASE)
THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)  # some servers send it before the answer
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
    thought = THOUGHT.match(text)
    text = text[thought.end() if thought else 0 :].replace("\r\n", "\n")
    edits = [(match[1], match[2]) for match in EDIT.finditer(text)]
    text = EDIT.sub("\n", text)
    if MARK.search(text) or len(edits) > MAX_EDITS:
        raise BadReply(
            f"block {len(edits) + 1} is not whole: write at most {MAX_EDITS} blocks, each with its three marks "
            f"<<<<<<< SEARCH, ======= and >>>>>>> REPLACE, each mark alone on a line"
        )
    code = [match[1] for match in CODE.finditer(text) if match[1].strip()]
    fields: dict[str, str] = {}
    for field in FIELD.finditer(CODE.sub("\n", text)):
        fields.setdefault(field[1].upper(), field[2].strip("*_ \t\n"))
    if (other := fields.get("FILE", name).strip("`*_\"' \t")) != name:
        raise BadReply(f"the reply names the file {_quoted(other)}: edit {name} alone, under just this name")
    if not edits and len(code) != 1:
        raise BadReply(f"the reply has no SEARCH/REPLACE block, and {len(code)} code blocks: {ANSWER}")
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
    title = fields["TITLE"].partition("\n")[0]
    return Proposal.of(script, title.strip("*_ \t"), fields["HYPOTHESIS"])


def _apply(edits: Sequence[tuple[str, str]], base: str, name: str) -> str:
    """Apply all edits; each refers to the unedited base, so their order does not matter."""
    lines = base.split("\n")
    text = "\n".join(["", *map(str.rstrip, lines), ""])  # models do not copy blanks at the end of a line
    spans = []
    for number, (search, new) in enumerate(edits, 1):
        wanted = "\n".join(["", *map(str.rstrip, search.split("\n"))])
        first = text.find(wanted) if wanted.strip() else -1
        if first < 0:
            raise BadReply(
                f"the SEARCH of block {number}, {_quoted(search)}, is not in {name}: copy whole lines exactly, "
                f"with their indentation and without leaving one out"
            )
        if text.find(wanted, first + 1) >= 0:
            raise BadReply(
                f"the SEARCH of block {number} is in several places of {name}: "
                f"copy more of the lines around it, so that it matches exactly one place"
            )
        start = text.count("\n", 0, first)
        spans.append((start, start + wanted.count("\n") - 1, new.split("\n")[:-1]))
    spans.sort()
    if any(end > following for (_, end, _), (following, _, _) in pairwise(spans)):
        raise BadReply("two blocks edit the same lines: join them into one")
    for start, end, new_lines in reversed(spans):
        lines[start:end] = new_lines
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return json.dumps(one_line(text, QUOTE_CHARS), ensure_ascii=False)
