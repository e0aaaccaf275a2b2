"""An edit of the script always wins: a kernel runs in the place of an operation only while that is as it was shipped.

The edits are made of plain.py itself: of every operation, and of every function, class and constant that one reads.
"""

import ast
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from inspect import signature
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import train_mlx
from agent.lab.kernels import fast, plain, swap, twins
from agent.lab.kernels.device import kernel_device
from agent.lab.operations import OPERATIONS, closure, reference, set_by, unchanged

SHIPPED = Path(train_mlx.__file__).read_bytes().decode()
DEFINED, READ = reference()
USERS = {  # definition in plain.py → the operations with kernels that read it, in their order
    name: [operation for operation in OPERATIONS if name in closure(operation, READ)]
    for name, (node, *_) in DEFINED.items()
    if not isinstance(node, ast.Import | ast.ImportFrom)
}
USERS = {name: users for name, users in USERS.items() if users}
needs_kernels = pytest.mark.skipif(kernel_device() is None, reason="no kernels of our own for this device")

# Of a step; in bfloat16 another order of sums may turn the sign of a small entry, and with it a step of AdamW.
ROUNDING = 0.5 if kernel_device() is not None and kernel_device().DTYPE.size == 2 else 1e-3

# Returned in the place of a result: other arrays, or blocks whose first query sees a key less.
CHANGED = """
def changed(result):
    match result:
        case mx.array():
            return 1.5 * result
        case (int(start), int(stop), int(first)):
            return (start, stop, min(start, first + 1))
        case list():
            return [changed(part) for part in result]
        case tuple():
            parts = map(changed, result)
            return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)


"""
ITERATION = ast.parse("def __iter__(self): return iter((1.5 * self.q, self.k, self.v))").body


def edited(name: str) -> str:
    """Return the script with another result of the function, class or constant of this name."""
    (node,) = (node for node in ast.parse(SHIPPED).body if name in set_by(node))
    lines = SHIPPED.splitlines(keepends=True)
    first = min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))
    before, after = lines[: first - 1], lines[node.end_lineno :]
    match node:
        case ast.FunctionDef():
            for inside in ast.walk(node):
                if isinstance(inside, ast.Return):
                    inside.value = ast.Call(ast.Name("changed", ast.Load()), [inside.value], [])
        case ast.ClassDef():
            node.body += ITERATION
        case ast.Assign(value=ast.Constant()):
            node.value = ast.Constant(0.5)
        case _:
            raise AssertionError(f"make an edit of {name}, which is {ast.unparse(node)}")
    return "".join([*before, CHANGED, ast.unparse(ast.fix_missing_locations(node)), "\n", *after])


@contextmanager
def loaded(text: str) -> Iterator[types.ModuleType]:
    """Import a script from a file."""
    module = types.ModuleType("edited_script")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train_mlx.py")
        file.write_text(text)
        try:
            exec(compile(text, str(file), "exec"), module.__dict__)
            yield module
        finally:
            del sys.modules[module.__name__]


def step_of(script: types.ModuleType) -> dict[str, np.ndarray]:
    """Return all that a step of a small model computes: the loss, new parameters and moments, and logits before it."""
    mx.random.seed(0)
    sizes = {"vocab_size": 64, "seq_len": 32, "depth": 2, "width": 64, "heads": 2, "kv_heads": 2, "windows": (16, 32)}
    more = {"mlp_ratio": 4, "softcap": 5.0, "rope_base": 100.0, "engram_layers": (1,), "engram_rows": 64}
    model = script.GPT(script.GPTConfig(**sizes, **more))
    weights = tree_flatten(model.trainable_parameters())
    model.load_weights([(name, w + 0.2 * mx.random.normal(w.shape)) for name, w in weights])
    rows = np.random.default_rng(0).integers(0, 64, (4, 33), dtype=np.int32)
    logits = model(mx.array(rows[:, :-1]))
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = script.MuonAdamW(params, 64)
    step = script.make_step(model, optimizer)
    params, state, loss = step(params, optimizer.init(params), iter([rows]), script.schedule(400, 0.3))
    arrays = {
        **params,
        **{f"state of {name}": moment for name, moment in state.items()},
        "loss": loss,
        "logits": logits,
    }
    return {name: np.array(array.astype(mx.float32)) for name, array in arrays.items()}


@cache
def shipped_step() -> dict[str, np.ndarray]:
    with loaded(SHIPPED) as script:
        return step_of(script)


def distance(results: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> float:
    """Return the largest relative distance of an array."""
    return max(
        float(np.linalg.norm(results[name] - other) / (np.linalg.norm(other) + 1e-3)) for name, other in others.items()
    )


def test_every_operation_of_the_script_is_the_one_that_its_kernel_was_written_for():
    same = unchanged(SHIPPED.encode())
    assert [name for name in OPERATIONS if not same[name]] == []
    for name in OPERATIONS:
        ours, theirs = (signature(getattr(module, name)).parameters.values() for module in (plain, twins))
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name


@needs_kernels
@pytest.mark.parametrize("name", USERS)
def test_an_edit_of_an_operation_or_of_what_it_reads_is_what_runs_and_is_said(name):
    shipped = shipped_step()
    with loaded(edited(name)) as script:
        assert fast.plain == USERS[name]
        for operation in OPERATIONS:
            assert (getattr(script, operation) is getattr(twins, operation)) == (operation not in USERS[name])
        assert distance(step_of(script), shipped) > 0.05


@needs_kernels
def test_comments_docstrings_and_layout_are_free():
    tree = ast.parse(SHIPPED)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
            node.body[0] = ast.Expr(ast.Constant("Something else."))
    text = ast.unparse(ast.fix_missing_locations(tree)).replace("\n", "  # said here\n\n")
    shipped = shipped_step()
    with loaded(text) as script:
        assert fast.plain == []
        assert [name for name in OPERATIONS if getattr(script, name) is not getattr(twins, name)] == []
        assert distance(step_of(script), shipped) < 1e-6


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_kernel_can_be_left_aside_by_itself(operation):
    """What a kernel returns is what the plain text returns: shapes, layouts and dtypes fit the others."""
    shipped = shipped_step()
    with loaded(SHIPPED) as script:
        setattr(script, operation, getattr(plain, operation))
        assert distance(step_of(script), shipped) < ROUNDING


NORM = "norm's users"
EDITS = {  # added at the end of the script → the operations that it takes from their kernels
    "EPS = 1.0": NORM,
    "EPS += 1.0": NORM,
    "def norm(x): return x": NORM,
    "norm = lambda x: x": NORM,
    "from prepare import main as norm": NORM,
    "import prepare as norm": NORM,
    "for EPS in range(3): pass": NORM,
    "with open('f') as EPS: pass": NORM,
    "if DEPTH: norm = abs": NORM,
    "try: pass\nexcept OSError as norm: pass": NORM,
    "match DEPTH:\n    case norm: pass": NORM,
    "(norm := abs)": NORM,
    "del norm": NORM,
    "def later():\n    global EPS\n    EPS = 1.0": NORM,
    "norm.__code__ = gated_add.__code__": NORM,
    "setattr(norm, '__code__', None)": NORM,
    "def sum(x): return x": [],
    "spans = None": ["rotary_qkv"],
    "zip = range = None": ["rotary_qkv"],
    "mx.fast.rms_norm = None": "all",
    "def later():\n    mx.square = None": "all",
    "from numpy import *": "all",
    "globals()['EPS'] = 1.0": "all",
    "exec('EPS = 1.0')": "all",
    "eval('EPS')": "all",
    "locals()['EPS'] = 1.0": "all",
    "norm.__globals__['EPS'] = 1.0": "all",
    "mx.fast.__dict__.update(rms_norm=None)": "all",
    "def fast(operation): return operation": "all",
    "fast = abs": "all",
    "from prepare import main as fast": "all",
    "attend = fast(attend)": ["attend"],
    "def later():\n    norm = EPS = 1.0\n    norm.mx = norm": [],
    "class Other:\n    def norm(self): self.EPS = 1.0": [],
    "def later(mx): mx.square = None": [],
    "SPANS = spans(8, 4)": [],
}


@pytest.mark.parametrize("line", EDITS)
def test_what_the_script_does_elsewhere_to_a_name_is_an_edit_of_all_that_read_it(line):
    wanted = {"all": OPERATIONS, NORM: USERS["norm"]}.get(str(EDITS[line]), EDITS[line])
    same = unchanged(f"{SHIPPED}\n{line}\n".encode())
    assert [name for name in OPERATIONS if not same[name]] == list(wanted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@fast\ndef attend", "def attend"),
        ("@fast\ndef attend", "@fast\n@partial\ndef attend"),
        ("@fast\ndef attend", "@partial\n@fast\ndef attend"),
        ("@fast\ndef attend", "if DEPTH:\n  def attend(pieces): pass\n@fast\ndef attend"),
        ('mask="causal"', "mask=None"),
    ],
)
def test_an_operation_in_another_dress_is_another(old, new):
    assert SHIPPED.count(old) == 1
    same = unchanged(SHIPPED.replace(old, new).encode())
    assert [name for name in OPERATIONS if not same[name]] == ["attend"]


@needs_kernels
def test_without_its_text_a_script_runs_as_it_is(tmp_path):
    space: dict[str, object] = {"fast": fast, "mx": mx}
    for file in ("<string>", str(tmp_path / "gone.py")):
        exec(compile("@fast\ndef relu_squared(x): return x", file, "exec"), space)
        assert space["relu_squared"] is not twins.relu_squared
        assert fast.plain == list(OPERATIONS)
    assert swap.compared(str(tmp_path / "gone.py")) == dict.fromkeys(OPERATIONS, False)


@needs_kernels
def test_an_operation_that_the_script_compiles_itself_is_left_to_it():
    text = SHIPPED.replace("@fast\ndef relu_squared", "@fast\n@mx.compile\ndef relu_squared")
    with loaded(text) as script:
        assert fast.plain == ["relu_squared"]
        assert script.relu_squared is not twins.relu_squared


@needs_kernels
def test_a_method_or_another_function_with_the_name_of_an_operation_is_none(tmp_path):
    text = f"{SHIPPED}\nclass Other:\n    @fast\n    def attend(self): return 1\n\n@fast\ndef mine(): return 2\n"
    with loaded(text) as script:
        assert (script.Other().attend(), script.mine(), fast.plain) == (1, 2, [])
