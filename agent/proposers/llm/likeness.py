"""Tell how alike two edits are, by the names that they touch: pure functions of the scripts.

An edit's traits are the words of code whose number its changed lines change, and the dials that they set. Values do not
count: two turns of one dial are alike, wherever they turn it. The likeness of two edits is the share of traits that
they have in common (Jaccard, 1901).
"""

import keyword
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from agent.experiment import History

Traits = frozenset[str]

WORD = re.compile(r"[^\W\d]\w*")
DIAL = re.compile(r"([A-Z][A-Z0-9_]*)\s*(?::[^=]*)?=(?!=)")  # set at the beginning of a line
EVERYWHERE = frozenset({*keyword.kwlist, "self"})


def traits(before: str, after: str) -> Traits:
    """Return what characterises the edit of one script into another."""
    old, new = Counter(_lines(before)), Counter(_lines(after))
    removed, added = old - new, new - old
    dials = {f"{found[1]} =" for line in (*removed, *added) if (found := DIAL.match(line))}
    had, has = Counter(_words(removed)), Counter(_words(added))
    changed = {word for word in {*had, *has} if had[word] != has[word]}
    return frozenset(dials | (changed or (set() if dials else {*had, *has})))


def likeness(one: Traits, other: Traits) -> float:
    """Return the share of traits in common, 0 to 1; an edit without traits is like any other."""
    return len(one & other) / len(one | other) if one and other else 1.0


def least_alike_first(edits: Sequence[Traits], tried: Sequence[Traits]) -> list[int]:
    """Order edits by how little each is like any that was tried and any before it; return their indices."""
    order: list[int] = []
    nearest = [max((likeness(edit, other) for other in tried), default=0.0) for edit in edits]
    while len(order) < len(edits):
        chosen = min((at for at in range(len(edits)) if at not in order), key=nearest.__getitem__)
        order.append(chosen)
        nearest = [max(near, likeness(edit, edits[chosen])) for near, edit in zip(nearest, edits, strict=True)]
    return order


def tried_traits(history: History) -> list[Traits]:
    """Return the traits of all ideas of a night so far, the one in flight among them."""
    return [
        traits(history[one.parent].proposal.script, one.proposal.script)
        for one in history
        if one.parent is not None and one.is_idea
    ]


def _lines(script: str) -> Iterator[str]:
    """Yield the lines of code without indentation and comments; a # inside a string may cut its line."""
    return (code for line in script.split("\n") if (code := line.partition("#")[0].strip()))


def _words(lines: Counter[str]) -> Iterator[str]:
    return (word for line in lines.elements() for word in WORD.findall(line) if word not in EVERYWHERE)
