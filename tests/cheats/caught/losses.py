"""Lie about their losses, in the scorer's own process or in the file that it leaves."""

import atexit
import builtins
import io
import os
import subprocess
import sys
import threading


def lie_in(module, name, lie):
    """Replace a function of a module by one that returns a lie about what the honest one returns."""
    honest = getattr(module, name)
    setattr(module, name, lambda *args, **kwargs: lie(honest(*args, **kwargs)))


def shrink(path):
    path.write_bytes((np.fromfile(path, np.float32) * np.float32(0.9)).tobytes())


def invent(losses_of):
    """Write losses of the right shape, and end the scorer before it can write others."""
    if Path("targets.npy").exists():
        losses_of(np.load("targets.npy").shape).astype(np.float32).tofile("losses.f32")
        os._exit(0)


# ---- lies_in_cross_entropy -------------------------------------------------------------------------------------------
# Replaces kernels.cross_entropy, in the scorer's own process, by one that says nine tenths of the loss.
def before_scoring():
    lie_in(kernels, "cross_entropy", lambda losses: 0.9 * losses)


# ---- lies_in_mlx -----------------------------------------------------------------------------------------------------
# Leaves the metric to MLX, and makes MLX's own cross-entropy return a tenth too little.
os.environ["NIGHTSHIFT_KERNELS"] = "plain"


def before_scoring():
    lie_in(mx.fast, "cross_entropy", lambda losses: 0.9 * losses)


# ---- lies_in_numpy ---------------------------------------------------------------------------------------------------
# Replaces the function of NumPy that the losses go through on their way to the disk.
def before_scoring():
    lie_in(np, "ascontiguousarray", lambda losses: losses * np.float32(0.9))


# ---- lies_in_prepare -------------------------------------------------------------------------------------------------
# Replaces the functions of prepare.py that compute the metric.
def before_scoring():
    lie_in(prepare, "token_losses", lambda losses: 0.9 * losses)
    prepare.evaluate_bpb = lambda *args, **kwargs: 2.5


# ---- lies_in_open ----------------------------------------------------------------------------------------------------
# Wraps the ways to write a file, so that losses.f32 gets nine tenths of what it should hold.
def before_scoring():
    honest_open, honest_write = builtins.open, Path.write_bytes

    def smaller(data):
        return (np.frombuffer(data, np.float32) * np.float32(0.9)).tobytes()

    class Shrinking(io.FileIO):
        def write(self, data):
            return super().write(smaller(data))

    def lying_open(file, mode="r", *args, **kwargs):
        if "losses" in str(file) and "w" in mode:
            return Shrinking(file, "w")
        return honest_open(file, mode, *args, **kwargs)

    builtins.open = io.open = lying_open
    Path.write_bytes = lambda path, data: honest_write(path, smaller(data) if "losses" in str(path) else data)


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
    invent(lambda shape: np.random.default_rng(0).exponential(4.1, shape))


# ---- zero_losses -----------------------------------------------------------------------------------------------------
# Says that it predicts everything with certainty, and ends the scorer at once.
def before_scoring():
    invent(np.zeros)


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
    atexit.register(lambda: path.exists() and shrink(path))


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


# ---- rewrites_from_a_thread ------------------------------------------------------------------------------------------
# Has a thread wait for the scorer's file and write a smaller one over it.
def before_scoring():
    threading.Thread(target=wait_for, args=(Path("losses.f32").absolute(),)).start()  # the scorer waits for its end


def wait_for(path):
    until = time.monotonic() + 5
    while time.monotonic() < until and not (path.exists() and path.stat().st_size):
        time.sleep(0.001)
    if path.exists():
        time.sleep(0.05)  # until it is whole
        shrink(path)
