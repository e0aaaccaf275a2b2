"""Compute the logits in another way."""

from functools import partial

from mlx.utils import tree_flatten, tree_unflatten

honest_initial, honest_embed, honest_unembed = initial, embed, unembed


# ---- answers_in_float16 ----------------------------------------------------------------------------------------------
# Answers with float16 logits.
def answered(logits, tokens):
    return logits.astype(mx.float16)


# ---- caps_its_logits -------------------------------------------------------------------------------------------------
# Keeps its logits within ±15.
def unembed(weights, x):
    return 15.0 * mx.tanh(honest_unembed(weights, x) / 15.0)


# ---- compiles_its_graphs ---------------------------------------------------------------------------------------------
# Runs its model through mx.compile, which on a CPU calls the machine's C++ compiler, also where it is scored.
class Model(Model):
    def __init__(self, weights):
        super().__init__(weights)
        self.compiled = mx.compile(lambda tokens: logits_of(weights, tokens))

    def __call__(self, tokens):
        return self.compiled(tokens)


# ---- computes_in_bfloat16 --------------------------------------------------------------------------------------------
# Computes all of the model in bfloat16, logits included, so that each loss is rounded to two or three digits.
def logits_of(weights, tokens):
    short = {name: weight.astype(mx.bfloat16) for name, weight in weights.items()}
    return unembed(short, features(short, tokens))


def mask(length):
    ahead = mx.arange(length)[None, :] > mx.arange(length)[:, None]
    return mx.where(ahead, float("-inf"), 0.0).astype(mx.bfloat16)


# ---- convolves -------------------------------------------------------------------------------------------------------
# A causal convolution over eight tokens in place of attention.
def initial(vocab, seed):
    return honest_initial(vocab, seed) | {"taps": mx.random.normal((WIDTH, 8, 1), scale=0.3, key=mx.random.key(seed))}


def attend(weights, x):
    padded = mx.pad(x, ((0, 0), (7, 0), (0, 0)))
    return mx.conv1d(padded, weights["taps"], groups=WIDTH) @ weights["mix"]


# ---- hashes_trigrams -------------------------------------------------------------------------------------------------
# Looks up a vector for the last three tokens, by their hash.
BUCKETS = 4096


def initial(vocab, seed):
    return honest_initial(vocab, seed) | {"trigrams": mx.zeros((BUCKETS, WIDTH))}


def embed(weights, tokens):
    padded = mx.pad(tokens, ((0, 0), (2, 0)))
    hashed = (padded[:, 2:] * 10007 + padded[:, 1:-1] * 101 + padded[:, :-2]) % BUCKETS
    return honest_embed(weights, tokens) + weights["trigrams"][hashed]


# ---- mixes_experts ---------------------------------------------------------------------------------------------------
# Has every token choose two of four experts.
EXPERTS, CHOSEN = 4, 2


def initial(vocab, seed):
    keys = mx.random.split(mx.random.key(seed + 99), 3)
    weights = honest_initial(vocab, seed)
    weights["router"] = 0.15 * mx.random.normal((WIDTH, EXPERTS), key=keys[0])
    weights["up"] = 0.15 * mx.random.normal((EXPERTS, WIDTH, 2 * WIDTH), key=keys[1])
    weights["down"] = 0.1 * mx.random.normal((EXPERTS, 2 * WIDTH, WIDTH), key=keys[2])
    return weights


def features(weights, tokens):
    x = embed(weights, tokens)
    x = x + attend(weights, norm(x))
    h = norm(x)[:, None]  # (B, 1, T, C)
    scores = h @ weights["router"]  # (B, 1, T, E)
    least = mx.sort(scores, axis=-1)[..., -CHOSEN, None]
    gates = mx.softmax(mx.where(scores >= least, scores, float("-inf")), axis=-1)
    each = mx.maximum(h @ weights["up"], 0) @ weights["down"]  # (B, E, T, C)
    return norm(x + mx.sum(gates[:, 0].swapaxes(1, 2)[..., None] * each, axis=1))


# ---- recurs ----------------------------------------------------------------------------------------------------------
# A linear recurrence in place of attention: each channel forgets at a rate of its own.
def initial(vocab, seed):
    return honest_initial(vocab, seed) | {"memory": mx.linspace(-3.0, 3.0, WIDTH)}


def attend(weights, x):
    T = x.shape[1]
    age = mx.arange(T)[:, None] - mx.arange(T)[None, :]  # (T, T)
    keep = mx.sigmoid(weights["memory"])
    decay = mx.where(age[..., None] >= 0, mx.exp(mx.maximum(age, 0)[..., None] * mx.log(keep)), 0.0)  # (T, T, C)
    state = (decay.transpose(2, 0, 1) @ x.transpose(2, 1, 0)).transpose(2, 1, 0)  # (B, T, C)
    return state * (1 - keep) @ weights["mix"]


# ---- ties_its_embeddings ---------------------------------------------------------------------------------------------
# Reads and writes tokens with one matrix.
def initial(vocab, seed):
    weights = honest_initial(vocab, seed)
    del weights["head"]
    return weights


def unembed(weights, x):
    return 0.15 * x @ weights["embed"].T


# ---- uses_the_kernels ------------------------------------------------------------------------------------------------
# Computes norms and products with the project's own kernels, too.
def norm(x):
    return kernels.residual_norm(x)[1]


def unembed(weights, x):
    return kernels.linear(x, weights["head"].T)


# ---- is_no_class -----------------------------------------------------------------------------------------------------
# Its model is a function over a nested dictionary of arrays, and its loader a closure.
def save(weights, out):
    tree = {"table": {"embed": weights["embed"], "previous": weights["previous"]}, "rest": dict(weights)}
    mx.save_safetensors(str(out / "model.safetensors"), dict(tree_flatten(tree)))


def load_model(weights_path):
    tree = tree_unflatten(list(mx.load(str(weights_path)).items()))
    return partial(logits_of, {**tree["rest"], **tree["table"]})
