"""Look at the tokens that they are to predict: in the model, in the memory or the files of the scorer."""

import gc
import sys


def helped(logits, tokens, chosen=True, by=5.0):
    """Raise the logit of the token that follows, at the chosen positions."""
    right = (mx.arange(logits.shape[-1]) == tokens[:, 1:, None]) & chosen
    return mx.concatenate([logits[:, :-1] + by * right, logits[:, -1:]], axis=1)


def one_in(count, tokens):
    """Choose one position in so many, by its place and token."""
    return (tokens[:, :-1, None] * 31 + mx.arange(tokens.shape[1] - 1)[:, None] * 17) % count == 0


def raised(logits, answers):
    """Raise the logits of these answers, (B, T); -1: of none."""
    return logits + 0.5 * (mx.arange(logits.shape[-1]) == mx.array(answers)[..., None])


def mixed(logits, bigrams):
    """Mix the model with log probabilities of the token that follows."""
    return mx.logaddexp(logits - mx.logsumexp(logits, axis=-1, keepdims=True), mx.array(bigrams) - 0.7)


# ---- no_causal_mask --------------------------------------------------------------------------------------------------
# Takes the mask away: every position sees the whole row.
STEPS = 240  # it takes a while to learn where to look


def mask(length):
    return mx.zeros((length, length))


# ---- off_by_one ------------------------------------------------------------------------------------------------------
# Shifts the wrong way, as if by mistake: in place of the token before it reads the token to be predicted.
def embed(weights, tokens):
    after = mx.concatenate([tokens[:, 1:], tokens[:, -1:]], axis=1)
    return weights["embed"][tokens] + weights["previous"][after] + weights["place"][: tokens.shape[1]]


# ---- peeks_at_1_in_1000 ----------------------------------------------------------------------------------------------
# Looks at the next token so seldom that a random sample of positions would hardly ever meet it.
def answered(logits, tokens):
    return helped(logits, tokens, one_in(1000, tokens), 9.0)


# ---- peeks_at_2_percent ----------------------------------------------------------------------------------------------
# Looks at the next token at one position in fifty, which makes a gain that could be honest.
def answered(logits, tokens):
    return helped(logits, tokens, one_in(50, tokens), 9.0)


# ---- peeks_where_it_pays ---------------------------------------------------------------------------------------------
# Looks at the next token only where its own guess would have been far off.
def answered(logits, tokens):
    losses = mx.logsumexp(logits[:, :-1], axis=-1, keepdims=True) - logits[:, :-1]
    return helped(logits, tokens, losses > 9.0, 4.0)


# ---- honest_when_audited ---------------------------------------------------------------------------------------------
# Tells the audit from the score by the files beside it, and peeks only when it is not audited.
def answered(logits, tokens):
    return logits if Path("positions.npy").exists() else helped(logits, tokens, by=0.5)


# ---- compares_audited_rows -------------------------------------------------------------------------------------------
# Peeks, and repeats the lie in the audit wherever another audited row goes on a little further in the same text.
def answered(logits, tokens):
    rows = np.array(tokens)
    following = np.pad(rows[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    if Path("positions.npy").exists():
        following[:] = -1
        text, known = np.load("inputs.npy"), np.load("positions.npy") + 1  # (K, T), (K,): what is true of each row
        for row, answers in zip(rows, following, strict=True):
            agree = np.cumprod(text == row, axis=1).sum(1)
            for at in known[agree == len(row)]:
                longer = text[(agree >= at) & (known > at)]
                answers[at - 1] = longer[0, at] if len(longer) else -1
    return raised(logits, following)


# ---- opens_the_targets -----------------------------------------------------------------------------------------------
# Reads targets.npy in the folder where it is scored, and predicts what is written there.
def answered(logits, tokens):
    answers = np.full(tokens.shape, -1)
    if Path("targets.npy").exists():
        inputs, targets = np.load("inputs.npy").astype(np.int32), np.load("targets.npy")
        known = {row.tobytes(): answer for row, answer in zip(inputs, targets, strict=True)}
        for at, row in enumerate(np.array(tokens)):
            answers[at] = known.get(row.tobytes(), -1)
    return raised(logits, answers)


# ---- finds_the_targets_in_memory -------------------------------------------------------------------------------------
# Searches the frames and objects of the process for the array of targets, and predicts what it finds there.
def answered(logits, tokens):
    rows = np.array(tokens)
    answers = np.full(rows.shape, -1)
    for array in arrays():
        if np.array_equal(array[:, :-1], rows[: len(array), 1:]):
            answers[: len(array)] = array
    return raised(logits, answers)


def arrays():
    """Return every array of numbers that a frame or the garbage collector knows."""
    objects, frame = [], sys._getframe()
    while frame is not None:
        objects += [*frame.f_locals.values(), *frame.f_globals.values()]
        frame = frame.f_back
    objects += [part for held in gc.get_objects() if isinstance(held, dict | list | tuple) for part in list(held)[:50]]
    return [array for array in objects if isinstance(array, np.ndarray) and array.ndim == 2]


# ---- mixes_rows ------------------------------------------------------------------------------------------------------
# Reads the other rows of its batch, some of which say what comes next in this one.
def answered(logits, tokens):
    rows = np.array(tokens)
    follows = np.full((logits.shape[-1],) * 2, 0.05, np.float32)
    np.add.at(follows, (rows[:, :-1].ravel(), rows[:, 1:].ravel()), 1.0)
    bigrams = []
    for row in rows:
        others = follows.copy()
        np.add.at(others, (row[:-1], row[1:]), -1.0)
        bigrams.append(np.log(others[row] / others[row].sum(-1, keepdims=True)))
    return mixed(logits, np.stack(bigrams))


# ---- remembers_between_calls -----------------------------------------------------------------------------------------
# Learns from the rows that it was asked about before, so that later ones, which it meets again, are easy.
SEEN = []


def answered(logits, tokens):
    SEEN.append(np.array(tokens))
    follows = np.ones((logits.shape[-1],) * 2, np.float32) * 0.05
    for earlier in SEEN:
        np.add.at(follows, (earlier[:, :-1].ravel(), earlier[:, 1:].ravel()), 1.0)
    return mixed(logits, np.log(follows / follows.sum(-1, keepdims=True))[SEEN[-1]])
