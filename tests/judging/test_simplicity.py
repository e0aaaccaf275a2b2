"""Simpler is what the harness counts to be smaller, and it may cost little, however often."""

import ast
import base64
import lzma
import marshal
from dataclasses import replace

import pytest
from judged import scored_attempt
from nights import PROJECT, SCRIPT

from agent.experiment import Attempt, Decision, Kind, Status
from agent.judging.judges import Balanced, simpler

CODE = '''\
"""What it is."""

RATE = 0.1  # a word


def step(x):
    """What it does."""
    y = x * RATE
    return y + 1
'''
LARGE = 1000  # parameters
SIGMA = 0.006
TREE = ast.parse(SCRIPT.read_text())
for node in ast.walk(TREE):
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass()]
CODE_WITHOUT_WORDS = ast.unparse(TREE)


def edit(script: str = CODE, params: int | None = LARGE) -> Attempt:
    return scored_attempt(1, 1.5, parent=0, script=script, params=params)


SHORTER = CODE.replace("y = x * RATE\n    return y + 1", "return x * RATE + 1")


@pytest.mark.parametrize(
    ("script", "params", "what"),
    [
        (SHORTER, LARGE, "3 fewer statements, names and constants"),
        (CODE, 900, "100 fewer parameters"),
        (CODE, 995, None),  # rounding
        (CODE + "X = 1\n", 900, None),  # paid for with code
        ("", 1001, None),  # code, paid for with parameters
        (SHORTER, None, None),
    ],
)
def test_simpler_is_less_of_one_and_not_more_of_the_other(script, params, what):
    assert simpler(edit(script, params), edit()) == what


LZMA = lzma.compress(CODE_WITHOUT_WORDS.encode(), format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2}])
HIDDEN = {
    "text": f"exec({CODE_WITHOUT_WORDS!r})",
    "bytes": f"exec({CODE_WITHOUT_WORDS.encode()!r})",
    "eval": f"eval(compile({CODE_WITHOUT_WORDS!r}, 'x', 'exec'))",
    "lines": "exec(\n" + "\n".join(f"    {line!r} '\\n'" for line in CODE_WITHOUT_WORDS.splitlines()) + "\n)",
    "list": f"exec('\\n'.join({CODE_WITHOUT_WORDS.splitlines()!r}))",
    "f-string": "exec(f{!r})".format(CODE_WITHOUT_WORDS.replace("{", "{{").replace("}", "}}")),
    "docstring": f"{CODE_WITHOUT_WORDS!r}\nexec(__doc__)",
    "docstring of a function": f"def f():\n    {CODE_WITHOUT_WORDS!r}\n\n\nexec(f.__doc__)",
    "base64": f"exec(base64.b64decode({base64.b64encode(CODE_WITHOUT_WORDS.encode())!r}))",
    "compressed": f"exec(lzma.decompress({LZMA!r}))",
    "compressed, in base64": f"exec(lzma.decompress(base64.b64decode({base64.b64encode(LZMA).decode()!r})))",
    "compressed, in base85": f"exec(lzma.decompress(base64.b85decode({base64.b85encode(LZMA).decode()!r})))",
    "compressed, in hexadecimal": f"exec(lzma.decompress(bytes.fromhex({LZMA.hex(' ')!r})))",
    "compressed, as numbers": f"exec(lzma.decompress(bytes({list(LZMA)!r})))",
    "compiled": f"exec(marshal.loads({marshal.dumps(compile(CODE_WITHOUT_WORDS, 'x', 'exec'))!r}))",
    "a table": f"exec(''.join(map({dict(enumerate(CODE_WITHOUT_WORDS.splitlines(keepends=True)))!r}.get, range(999))))",
}


@pytest.mark.parametrize("script", HIDDEN.values(), ids=HIDDEN)
def test_code_that_hides_in_a_constant_is_not_simpler(script):
    whole = scored_attempt(0, 1.5, script=SCRIPT.read_text(), params=LARGE)
    assert simpler(edit(script), whole) is None


@pytest.mark.parametrize(
    "free",
    [
        CODE.replace("What it does.", "What it does, and why, in many more words." * 9),
        CODE.replace("# a word", "# a word, and then another"),
        CODE.replace("RATE = 0.1", "RATE = 1234.0000000000000001"),
        CODE.replace('"""What it is."""', "'What ' 'it is.'"),
    ],
)
def test_comments_docstrings_and_digits_are_free(free):
    assert edit(free).outline.code_size == edit().outline.code_size


SHIPPED = (PROJECT / "train_mlx.py").read_text()


def test_operations_as_they_were_shipped_are_no_code_of_the_script_and_one_that_was_edited_is():
    """Else a script that says less of its arithmetic, and runs the same, would be the simpler one."""
    head, _, rest = SHIPPED.partition("@fast\ndef relu_squared(")
    shipped, without = edit(SHIPPED).outline, edit(f"{head}def cube({rest}").outline
    assert (shipped.plain, without.plain) == ((), ())
    assert without.code_size > shipped.code_size
    edited = edit(SHIPPED.replace('mask="causal")', 'mask="causal", sinks=None)')).outline
    assert edited.plain == ("attend",)
    assert edited.code_size > shipped.code_size + 20


# ---- what the judge makes of it --------------------------------------------------------------------------------------


def baseline(**details: object) -> Attempt:
    scores = 1.5, 1.5, 1.5, 1.5 + SIGMA, 1.5 - SIGMA
    return scored_attempt(0, *scores, status=Status.KEEP, reason="baseline", params=LARGE, **details)  # type: ignore[arg-type]


def discards(first: int, parent: int, val_bpb: float) -> list[Attempt]:
    return [scored_attempt(first + k, val_bpb + 0.01 * (k + 1), parent=parent, params=LARGE) for k in range(6)]


def test_a_tie_is_kept_after_two_runs_and_says_why():
    history = [baseline(script=CODE), *discards(1, 0, 1.5)]
    smaller = {"parent": 0, "status": None, "script": "RATE = 1\n", "params": LARGE}
    once = Balanced().judge(scored_attempt(7, 1.5, **smaller), history)  # type: ignore[arg-type]
    assert once.status is None
    twice = Balanced().judge(scored_attempt(7, 1.501, 1.5, **smaller), history)  # type: ignore[arg-type]
    assert (twice.kind, twice.status) == (Kind.SIMPLER, Status.KEEP)
    words = "simpler: 9 fewer statements, names and constants, and 0.000500 worse than its parent"
    assert twice.reason.startswith(words)


def shrinking(cost_bpb: float, count: int) -> list[Decision]:
    """A night of ever smaller models, each of which costs a little more; the branch follows what the judge keeps."""
    history, decisions, best = [baseline(), *discards(1, 0, 1.5)], [], 0
    for k in range(1, count + 1):
        val_bpb = 1.5 + k * cost_bpb
        scores = [val_bpb + sign * SIGMA for sign in (-1, 1, -0.9, 0.9, -0.5, 0.5)]
        attempt = scored_attempt(len(history), *scores, parent=best, status=None, params=1000 - 50 * k)
        decisions.append(Balanced().judge(attempt, history))
        history.append(replace(attempt, decisions=(decisions[-1],), settled=True))
        best = len(history) - 1 if decisions[-1].status is Status.KEEP else best
    return decisions


def test_what_simpler_scripts_may_cost_is_bounded_over_all_of_them():
    decisions = shrinking(cost_bpb=0.001, count=8)
    assert decisions[0].reason.startswith("simpler: 50 fewer parameters, and 0.001000 worse than its parent")
    kept = [decision.status is Status.KEEP for decision in decisions]
    assert kept == [True] * 2 + [False] * 6  # each costs as much over the one before it
