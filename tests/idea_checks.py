"""Check ideas in this process on the CPU: they train, look at no later token and no other row, and are saved whole.

    uv run python tests/idea_checks.py agent/ideas/*.patch

checks a few files, which takes about two seconds each.
"""

import gc
import io
import json
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import conftest  # must be imported before MLX and NumPy: it sets their threads, and the fast BLAS
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

import prepare
from agent.invocation import ABOVE, SCRIPT
from agent.proposers.catalogue.catalogue import applied
from agent.proposers.catalogue.files import read_idea
from agent.script.dials import set_dials

SHIPPED = (ABOVE / SCRIPT).read_text()
SMALL = {"DEPTH": 4, "ASPECT_RATIO": 16, "HEAD_DIM": 32, "BATCH_ROWS": 4, "MICRO_STEPS": 1, "LOG_EVERY_S": 1e6}
STEPS = 40
FALL_NATS = 0.5  # least fall over these steps; the shipped script's loss falls by 1.3
ROUNDING = 1e-4  # products of other shapes add up in another order


@contextmanager
def as_module(source: str) -> Iterator[types.ModuleType]:
    """Import a script under a fresh name, with tiny dials, from a file, whose text decides about its kernels."""
    module = types.ModuleType("idea_under_test")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    with tempfile.TemporaryDirectory() as folder:
        module.__file__ = str(Path(folder, SCRIPT))
        text = set_dials(source, "cpu", SMALL)
        Path(module.__file__).write_text(text)
        try:
            exec(compile(text, module.__file__, "exec"), module.__dict__)
            yield module
        finally:
            del sys.modules[module.__name__]


def check(source: str, out: Path) -> str:
    """Train a script for some steps; raise AssertionError for a broken promise, else say how it learnt.

    $NIGHTSHIFT_DATA names the corpus.
    """
    with as_module(source) as script:
        losses = _train(script, out)
        assert np.isfinite(losses).all()
        assert losses[-1] < losses[0] - FALL_NATS, f"the loss fell from {losses[0]:.3f} to {losses[-1]:.3f} only"
        data = prepare.load_data(verify=False)
        trained = script.load_model(out / "model.safetensors")
        mx.random.seed(0)
        fresh = script.GPT(trained.config)
        _check_parameters(fresh, trained)
        tokens = np.array(data.split("train").tokens[: 4 * data.seq_len], np.int32).reshape(4, -1)
        _check_logits(trained, tokens, data.vocab_size)
        _check_compilation(script, fresh, tokens)
        _check_saving(script, trained, tokens, out)
        assert script.flops_per_token(trained) > 0
    return f"loss {losses[0]:.4f} → {losses[-1]:.4f} in {STEPS} steps"


def _train(script: types.ModuleType, out: Path) -> list[float]:
    """Train by the command line of the contract, which covers the whole schedule; return the smooth loss by steps."""
    try:
        with redirect_stdout(io.StringIO()):
            code = script.main(["--budget-s", "1000000", "--max-steps", str(STEPS), "--no-eval", "--out", str(out)])
    finally:
        gc.unfreeze()  # a run freezes what there is, since its process ends with it
    assert code == 0, "the script refused to train, or diverged: see its message above"
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def _check_parameters(fresh, trained) -> None:
    """Check that training has changed every parameter, and that each was saved."""
    before, after = (dict(tree_flatten(model.trainable_parameters())) for model in (fresh, trained))
    assert before.keys() == after.keys(), f"not saved: {sorted(before.keys() ^ after.keys())}"
    still = [name for name in before if mx.array_equal(before[name], after[name])]
    assert still == [], f"training changes nothing of {', '.join(still)}: does an optimizer take it?"


def _check_logits(model, tokens: np.ndarray, vocab_size: int) -> None:
    """Check shape, repeatability, that no logit knows a later token, and that rows do not see each other."""
    logits = np.array(model(mx.array(tokens)))
    assert logits.shape == (*tokens.shape, vocab_size)
    assert np.isfinite(logits).all()
    assert np.array_equal(logits, np.array(model(mx.array(tokens)))), "scoring twice gives two results"
    length = tokens.shape[1]
    for cut in (1, 2, length // 2 - 1, length // 2, length - 1):
        other = tokens.copy()
        other[0, cut:] = (other[0, cut:] + 1 + np.arange(length - cut)) % vocab_size
        seen = np.abs(np.array(model(mx.array(other))) - logits)
        assert seen[0, :cut].max() < ROUNDING, f"not causal: tokens from position {cut} change logits before it"
        assert seen[0, cut:].max() > ROUNDING, "the logits do not depend on the tokens"
        assert seen[1:].max() < ROUNDING, "a row's logits depend on another row"
    for row in range(len(tokens)):
        alone = np.array(model(mx.array(tokens[row : row + 1])))[0]
        assert np.abs(alone - logits[row]).max() < ROUNDING, "a row's logits depend on how many rows there are"


def _check_compilation(script: types.ModuleType, model, rows: np.ndarray) -> None:
    """Check that mx.compile, which a Mac uses, can trace a step: it reads no value of an array.

    Nothing is evaluated, since to compile what was traced takes a C++ compiler many seconds.
    """
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = script.MuonAdamW(params, model.config.width)
    script.COMPILE, evaluate, mx.async_eval = True, mx.async_eval, lambda *arrays: None
    try:
        step = script.make_step(model, optimizer)
        step(params, optimizer.init(params), iter([rows]), script.schedule(0, 0.5))
    except (ValueError, RuntimeError) as error:
        raise AssertionError(f"mx.compile cannot trace a step: {error}") from error
    finally:
        script.COMPILE, mx.async_eval = False, evaluate


def _check_saving(script: types.ModuleType, model, tokens: np.ndarray, out: Path) -> None:
    """Check that a model with other weights, all of them active, comes back as it was saved."""
    mx.random.seed(1)
    weights = tree_flatten(model.trainable_parameters())
    model.load_weights([(name, weight + 0.02 * mx.random.normal(weight.shape)) for name, weight in weights])
    script.save_model(model, out / "again.safetensors")
    loaded = script.load_model(out / "again.safetensors")
    assert mx.array_equal(loaded(mx.array(tokens)), model(mx.array(tokens))), "a saved model comes back as another"
    _check_logits(loaded, tokens, model.config.vocab_size)


def main(files: list[str]) -> int:
    """Check files of ideas, with a small corpus made of the standard library."""
    broken = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        text = conftest.write_library_text(folder / "library.txt", chars=1_500_000)
        with redirect_stdout(io.StringIO()):
            os.environ["NIGHTSHIFT_DATA"] = str(
                prepare.prepare(str(text), conftest.TEST_SCALE, cache=folder / "cache", workers=1)
            )
        for number, file in enumerate(files):
            try:
                idea = read_idea(Path(file))
                verdict = check(applied(idea, SHIPPED, (), "cpu"), folder / str(number))
            except Exception as error:
                broken += 1
                verdict = f"BROKEN: {type(error).__name__}: {error}"
            print(f"{file}: {verdict}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
