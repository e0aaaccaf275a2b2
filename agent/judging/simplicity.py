"""Is a script simpler than the one it was made from? Then it may be kept for no gain, within a bound. Pure.

Sizes are what the harness counts: the code by its syntax tree, the parameters by the header of the saved weights. What
keeps for simplicity may cost is bounded over all of them, against the last attempt that was kept for a measured gain.
"""

import ast

from agent.experiment import Attempt, History, Kind
from agent.judging.noise import Knowledge, line_of
from agent.script.contract import parse
from agent.script.dials import remembered

TIE = 0.25  # sigma: the largest expected cost of all simpler scripts together
FEWER = 0.99  # of the parameters: less than a per cent is rounding
COUNTED = (ast.stmt, ast.Constant, ast.Name, ast.Attribute, ast.arg, ast.alias, ast.keyword)


def simpler(attempt: Attempt, parent: Attempt) -> str | None:
    """Say in what: less code or fewer parameters, and not more of the other; None where it is not, or not known."""
    if attempt.weights is None or parent.weights is None:
        return None
    code, code_before = (code_size(side.proposal.script) for side in (attempt, parent))
    params, params_before = attempt.weights.params, parent.weights.params
    if code > code_before or params > params_before:
        return None
    if code < code_before:
        return f"{code_before - code:,} fewer statements, names and constants"
    if params < FEWER * params_before:
        return f"{params_before - params:,} fewer parameters"
    return None


@remembered
def code_size(script: str) -> int:
    """Count statements, names and constants; docstrings, comments and layout are free."""
    nodes = list(ast.walk(parse(script)))
    texts = sum(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in nodes)
    return sum(isinstance(node, COUNTED) for node in nodes) - 2 * texts  # each a statement and a constant


def price_of(attempt: Attempt, history: History, knowledge: Knowledge, price: float) -> tuple[float, str | None]:
    """Return what keeping an edit costs if it brings no gain, in sigma, and in what it is simpler if that lowers it.

    Where the noise is doubted, a quarter of sigma may be more than any edit brings: no tie is kept then.
    """
    before = line_of(attempt, history)[1:]
    what = simpler(attempt, before[0]) if knowledge.doubt is None else None
    last_gain = next(kept for kept in before if kept.kind is not Kind.SIMPLER)
    if what is None or knowledge.lead(last_gain.number, attempt.number) > TIE:
        return price, None
    return -TIE, what
