"""Remember what was found out about a text, by a hash of the text: ten thousand scripts take megabytes to remember.

A night asks for the same facts of all its scripts before every proposal. A cache of fixed size that is read in a circle
misses every time once the night outgrows it, and one that is keyed by the scripts themselves keeps all of them.
"""

from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from typing import Concatenate, ParamSpec, TypeVar

Rest = ParamSpec("Rest")
Found = TypeVar("Found")


def remembered(find: Callable[Concatenate[str, Rest], Found]) -> Callable[Concatenate[str, Rest], Found]:
    """Make a function of a text, and of little else that can be hashed, find out once; errors are not remembered."""
    known: dict[object, Found] = {}

    @wraps(find)
    def look_up(text: str, /, *rest: Rest.args, **named: Rest.kwargs) -> Found:
        key = (blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest(), rest, *named.items())
        if key not in known:
            known[key] = find(text, *rest, **named)
        return known[key]

    return look_up
