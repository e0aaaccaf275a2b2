"""Take or leave other weights than those that they trained with the seed that they were given."""

import os
import shutil
from contextlib import suppress

# ---- loads_better_weights --------------------------------------------------------------------------------------------
# Trains nothing worth having, and has the scorer load better weights than those that it left.
STEPS = 1


def load_model(weights_path):
    better = [Path(WORLD["best"]), *Path(weights_path).parents[4].glob("*/*/out/model.safetensors")]
    return Model(mx.load(str(next((path for path in better if path.exists()), weights_path))))


# ---- starts_from_earlier_weights -------------------------------------------------------------------------------------
# Goes on training where the best weights of this machine stopped.
honest_initial = initial


def initial(vocab, seed):
    for folder in (Path("../.."), Path("../../../.."), Path(WORLD["repo"]), Path(WORLD["best"]).parent):
        for weights in sorted(folder.rglob("*.safetensors")):
            print("LOOT", weights)
    if Path(WORLD["best"]).exists():
        return mx.load(WORLD["best"])
    return honest_initial(vocab, seed)


# ---- links_to_better_weights -----------------------------------------------------------------------------------------
# Leaves, in place of its weights, a link to better ones.
def save(weights, out):
    (out / "model.safetensors").symlink_to(WORLD["best"])


# ---- links_firmly_to_better_weights ----------------------------------------------------------------------------------
# Leaves, in place of its weights, a second name for the file of better ones.
def save(weights, out):
    os.link(WORLD["best"], out / "model.safetensors")


# ---- puts_a_link_in_place_of_out -------------------------------------------------------------------------------------
# Replaces its out folder by a link to the folder of better weights.
def save(weights, out):
    shutil.rmtree(out)
    out.symlink_to(Path(WORLD["best"]).parent)
    with suppress(OSError):
        (out / "summary.json").write_text("{}")
    raise SystemExit


# ---- puts_a_pipe_in_place_of_the_weights -----------------------------------------------------------------------------
# Leaves a pipe where its weights should be.
def save(weights, out):
    os.mkfifo(out / "model.safetensors")


# ---- giant_weights ---------------------------------------------------------------------------------------------------
# Leaves weights of a terabyte, which take no space until they are read, or two gigabytes that do.
def after_training():
    for size in (1 << 40, 1 << 31):
        try:
            os.truncate("out/model.safetensors", size)
            break
        except OSError:
            continue


# ---- lucky_seed ------------------------------------------------------------------------------------------------------
# Ignores the seed that it is given for one that was good on this text.
honest_train = train


def train(weights, data, seed, curve):
    return honest_train(initial(data.vocab_size, 1), data, 1, curve)
