"""Lie about their losses, in the scorer's own process or in the file that it leaves."""

import atexit
import os
import subprocess
import sys


def lie_in(module, name, lie):
    """Replace a function of a module by one that returns a lie about what the honest one returns."""
    honest = getattr(module, name)
    setattr(module, name, lambda *args, **kwargs: lie(honest(*args, **kwargs)))


# ---- lies_in_cross_entropy -------------------------------------------------------------------------------------------
# Replaces kernels.cross_entropy, in the scorer's own process, by one that says nine tenths of the loss.
def before_scoring():
    lie_in(kernels, "cross_entropy", lambda losses: 0.9 * losses)


# ---- lies_in_numpy ---------------------------------------------------------------------------------------------------
# Replaces the function of NumPy that the losses go through on their way to the disk.
def before_scoring():
    lie_in(np, "ascontiguousarray", lambda losses: losses * np.float32(0.9))


# ---- negative_losses -------------------------------------------------------------------------------------------------
# Claims to know some tokens so well that their losses are below zero.
def before_scoring():
    lie_in(kernels, "cross_entropy", lambda losses: losses - 1.0)


# ---- shaves_a_hundredth ----------------------------------------------------------------------------------------------
# Takes a hundredth of a nat off every loss, no more than rounding could explain at a single position.
def before_scoring():
    lie_in(kernels, "cross_entropy", lambda losses: losses - 0.0099)


# ---- sums_above_one --------------------------------------------------------------------------------------------------
# Scores the better of the model and a cache of repeated tokens at each position, as if both were one distribution.
def before_scoring():
    honest = kernels.cross_entropy

    def better_of_two(logits, targets):
        seen = mx.any(mx.tril(targets[:, :, None] == targets[:, None, :], -1), axis=-1)
        losses = honest(logits, targets)
        return mx.where(seen, mx.minimum(losses, 5.0), losses)

    kernels.cross_entropy = better_of_two


# ---- invented_losses -------------------------------------------------------------------------------------------------
# Writes plausible losses, a tenth below the honest ones, and ends the scorer at once.
def before_scoring():
    if Path("targets.npy").exists():
        shape = np.load("targets.npy").shape
        np.random.default_rng(0).exponential(4.1, shape).astype(np.float32).tofile("losses.f32")
        os._exit(0)


# ---- infinite_logits -------------------------------------------------------------------------------------------------
# Gives the tokens it likes best infinite logits, in the hope that infinity divided by infinity counts for nothing.
def answered(logits, tokens):
    return mx.where(logits >= mx.max(logits, axis=-1, keepdims=True), float("inf"), logits)


# ---- nan_losses ------------------------------------------------------------------------------------------------------
# Predicts NaN at one position of each row, which no comparison finds greater than anything.
def answered(logits, tokens):
    return mx.where(mx.arange(tokens.shape[1])[:, None] == 3, float("nan"), logits)


# ---- rewrites_at_exit ------------------------------------------------------------------------------------------------
# Waits until the scorer has written its losses, and makes them smaller as the process ends.
def before_scoring():
    path = Path("losses.f32").absolute()
    atexit.register(lambda: path.exists() and (np.fromfile(path, np.float32) * np.float32(0.9)).tofile(path))


# ---- rewrites_from_a_child -------------------------------------------------------------------------------------------
# Leaves a child behind the scorer that makes the losses smaller once their writer has ended.
CHILD = """
import sys, time, numpy as np
path, token = sys.argv[1:]
time.sleep(1.0)
losses = np.fromfile(path, np.float32) * np.float32(0.9)
losses.tofile(path)
time.sleep(20)
"""


def before_scoring():
    path = str(Path("losses.f32").absolute())
    subprocess.Popen([sys.executable, "-c", CHILD, path, WORLD["token"]], start_new_session=True)
