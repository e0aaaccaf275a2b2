"""Parse Python in one thread at a time: a source is asked for an idea while the driver reads scripts."""

import ast
from threading import Lock

# CPython 3.11 counts the depth of the tree that it makes in one place for all threads, and raises SystemError when two
# of them disagree: github.com/python/cpython/issues/106905
_one_at_a_time = Lock()


def parse(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a source; raise what ast.parse raises."""
    with _one_at_a_time:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """Return the syntax tree of one expression; raise what ast.parse raises."""
    with _one_at_a_time:
        return ast.parse(source, mode="eval").body
