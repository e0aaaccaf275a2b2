"""Is a script simpler than the one it was made from? Then it may be kept for no gain, within a bound. Pure."""

import io
import tokenize
from functools import lru_cache

from agent.experiment import Attempt

TIE = 0.25  # sigma: what a simpler script may be expected to cost at most
FEWER = 0.99  # of the parameters: less than a per cent is rounding
NO_CODE = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
)  # fmt: skip


def simpler(attempt: Attempt, parent: Attempt) -> str | None:
    """In what: fewer lines of code or parameters, and not more of the other; None where it is not."""
    lines, before = (lines_of_code(one.proposal.script) for one in (attempt, parent))
    params, params_before = (one.summary.num_params_M if one.summary else None for one in (attempt, parent))
    fewer = params is not None and params_before is not None and params < FEWER * params_before
    more = params is not None and params_before is not None and params > params_before
    if lines < before and not more:
        return f"{before - lines} line{'s' if before - lines > 1 else ''} fewer"
    if fewer and lines <= before:
        return f"{params_before - params:.1f} M parameters fewer"  # type: ignore[operator]  # fewer: neither is None
    return None


def price_of(attempt: Attempt, parent: Attempt, price: float) -> float:
    """What keeping it costs should it bring no gain, in sigma; simplicity is worth something by itself."""
    return price if simpler(attempt, parent) is None else -TIE


@lru_cache(maxsize=1024)
def lines_of_code(script: str) -> int:
    """Neither blank lines nor comments; a text that is no Python has those that are not blank."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(script).readline))
    except (tokenize.TokenError, SyntaxError):
        return sum(bool(line.strip()) for line in script.splitlines())
    return len({token.start[0] for token in tokens if token.type not in NO_CODE})
