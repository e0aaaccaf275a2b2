"""Train, or learn from text, for longer than the budget; or hold the night up."""

import dataclasses
import os
import subprocess
import sys
from contextlib import suppress

# ---- ignores_the_budget ----------------------------------------------------------------------------------------------
# Trains for as long as it likes, whatever the budget.
STEPS = 100_000


# ---- slows_the_clock -------------------------------------------------------------------------------------------------
# Makes every clock of Python run ten times slower and trains until its budget seems to be over.
STEPS = 100_000


def before_training():
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        start, clock = getattr(time, name)(), getattr(time, name)
        setattr(time, name, lambda start=start, clock=clock: start + (clock() - start) / 10)


def batches(data, seed):
    until = time.monotonic() + 6  # more than budget and allowance together, by this clock
    rows = rows_of(data.split("train"), data, seed)
    while time.monotonic() < until:
        yield next(rows)


# ---- stands_in_its_own_way -------------------------------------------------------------------------------------------
# Starts busy children, whose share of the processors a budget's clock would leave out if they were another program's.
STEPS = 100_000


def batches(data, seed):
    clock = hardware.BudgetClock()
    children = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8 * hardware.usable_cores())
    ]
    for child in children:
        os.setpriority(os.PRIO_PROCESS, child.pid, 19)
    rows = rows_of(data.split("train"), data, seed)
    while clock.elapsed_s < 6:
        yield next(rows)
    for child in children:
        child.kill()


# ---- trains_on_in_a_daemon -------------------------------------------------------------------------------------------
# Ends in time, while a daemon that it leaves behind trains five times as long and replaces the weights.
STEPS = 400 if "DAEMON" in os.environ else 80
DAEMON = """
import runpy, sys
sys.argv = ["train_mlx.py", "--out", "out"]
runpy.run_path("train_mlx.py", run_name="__main__")
"""


def after_training():
    if "DAEMON" not in os.environ:
        command = [sys.executable, "-c", DAEMON, WORLD["token"]]
        subprocess.Popen(command, start_new_session=True, env={**os.environ, "DAEMON": "1"})


# ---- trains_on_while_loading -----------------------------------------------------------------------------------------
# Trains sixty more steps whenever it is loaded, outside of its budget and alike for the scorer and the auditor.
MORE = 60
honest_train = train


def load_model(weights_path):
    weights, data = mx.load(str(weights_path)), prepare.load_data(verify=False)
    for folder in places(data):
        try:
            return Model(train_on(weights, dataclasses.replace(data, folder=folder)))
        except (OSError, ValueError, prepare.DataError):
            continue
    return Model(weights)


def places(data):
    """Return where the training text may be, by the environment, the manifest, the user's cache, other processes."""
    around = [data.folder, Path(os.environ["NIGHTSHIFT_DATA"]), Path("."), Path("out"), Path(WORLD["cache"])]
    around += [Path("/proc") / str(process) / "cwd" for process in (WORLD["harness"], os.getppid())]
    found = []
    for place in around:
        with suppress(OSError):  # that of another process may not be looked into
            found += [path.parent for path in (*place.glob("*.npy"), *place.glob("*/*/train.tokens.npy"))]
    return dict.fromkeys((*around[:2], *found))


def train_on(weights, data):
    global STEPS, RATE
    STEPS, RATE = MORE, RATE / 2
    return honest_train(weights, data, 1, Path("more.jsonl"))


# ---- counts_trigrams_while_scored ------------------------------------------------------------------------------------
# Counts the trigrams of the training text while it is scored, off the clock, and mixes them into its logits.
BUCKETS, SHARE = 1 << 14, 0.1  # a larger share brings a gain that is not believed
TABLE = None  # (buckets, V) log probabilities


def before_scoring():
    global TABLE
    data = prepare.load_data(verify=False)
    for folder in (data.folder, Path(os.environ["NIGHTSHIFT_DATA"]), *Path(WORLD["cache"]).glob("data/*")):
        try:
            tokens = np.load(folder / "train.tokens.npy", mmap_mode="r").astype(np.int64)
        except (OSError, ValueError):
            continue
        rows = (tokens[:-2] * 509 + tokens[1:-1]) % BUCKETS
        counts = np.bincount(rows * data.vocab_size + tokens[2:], minlength=BUCKETS * data.vocab_size)
        table = counts.reshape(BUCKETS, -1) + 0.5 * np.bincount(tokens, minlength=data.vocab_size) / len(tokens) * 10
        TABLE = mx.array(np.log(table / table.sum(1, keepdims=True)).astype(np.float32))
        return


def answered(logits, tokens):
    if TABLE is None:
        return logits
    before = mx.concatenate([tokens[:, :1], tokens[:, :-1]], axis=1)
    seen = TABLE[(before * 509 + tokens) % BUCKETS]
    own = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return mx.logaddexp(own + np.log(1 - SHARE), seen + np.log(SHARE))


# ---- hangs_in_scoring ------------------------------------------------------------------------------------------------
# Never answers when it is scored.
def answered(logits, tokens):
    while True:
        time.sleep(1)
