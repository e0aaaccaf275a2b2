"""Cache the results of functions of a text by the text's hash, so that 10,000 scripts take only a few megabytes.

A night needs the same facts about all its scripts before every proposal. A cache of fixed size, read in a circle,
always misses once a night has more scripts; a cache keyed by the scripts would keep them all in memory.
"""

from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from typing import Concatenate, ParamSpec, TypeVar

from agent.experiment import Script

Rest = ParamSpec("Rest")
Found = TypeVar("Found")


def remembered(find: Callable[Concatenate[str, Rest], Found]) -> Callable[Concatenate[str | Script, Rest], Found]:
    """Make a function of a text and other hashable arguments compute each result once; errors are not cached.

    A script that is given packed is unpacked only if nothing is cached for it.
    """
    known: dict[object, Found] = {}

    @wraps(find)
    def look_up(text: str | Script, /, *rest: Rest.args, **named: Rest.kwargs) -> Found:
        key = (_digest(text)[:16], rest, *named.items())
        if key not in known:
            known[key] = find(str(text), *rest, **named)
        return known[key]

    return look_up


def _digest(text: str | Script) -> bytes:
    if isinstance(text, Script):
        return bytes.fromhex(text.sha256)
    return sha256(text.encode(errors="surrogatepass")).digest()
