"""Train in another way, or save the weights otherwise."""

import mlx.optimizers as optimizers

LIVE = {}  # the weights, which change in place as training goes on
honest_initial, honest_train, honest_embed, honest_save, honest_loss = initial, train, embed, save, loss_of


def train(weights, data, seed, curve):
    global LIVE
    LIVE = weights
    return honest_train(weights, data, seed, curve)


def train_with(optimizer, weights, data, seed, curve):
    """Train with an optimizer of MLX's own in place of Adam."""
    for step, rows in zip(range(1, STEPS + 1), batches(data, seed), strict=False):
        loss, gradients = mx.value_and_grad(loss_of)(weights, mx.array(rows))
        weights = optimizer.apply_gradients(gradients, weights)
        mx.eval(weights, optimizer.state)
        curve.write_text(json.dumps({"step": step, "loss": loss.item(), "progress": step / STEPS}) + "\n")
    return weights


# ---- averages_its_weights --------------------------------------------------------------------------------------------
# Saves a running mean of its weights rather than the last ones.
MEAN = {}


def batches(data, seed):
    for rows in rows_of(data.split("train"), data, seed):
        yield rows
        for name, weight in LIVE.items():
            MEAN[name] = 0.9 * MEAN.get(name, weight) + 0.1 * weight
        mx.eval(MEAN)


def save(weights, out):
    honest_save(MEAN, out)


# ---- writes_checkpoints ----------------------------------------------------------------------------------------------
# Leaves a checkpoint every eight steps and a notebook of its own beside its weights.
def batches(data, seed):
    Path("out/checkpoints").mkdir()
    Path("tmp/notes.txt").write_text("a note of its own")
    for step, rows in enumerate(rows_of(data.split("train"), data, seed)):
        if step % 8 == 0:
            mx.save_safetensors(f"out/checkpoints/{step}.safetensors", LIVE)
        yield rows


# ---- descends_with_momentum ------------------------------------------------------------------------------------------
# Descends by plain gradients with momentum, from MLX's own optimizers, in place of Adam.
def train(*arguments):
    return train_with(optimizers.SGD(learning_rate=0.3, momentum=0.9), *arguments)


# ---- roars -----------------------------------------------------------------------------------------------------------
# Trains with Lion in place of Adam: only the signs of the gradients count.
def train(*arguments):
    rate = optimizers.linear_schedule(0.006, 0.0, STEPS)
    return train_with(optimizers.Lion(learning_rate=rate), *arguments)


# ---- drops_out -------------------------------------------------------------------------------------------------------
# Uses dropout while it trains, and only then.
TRAINING = False


def train(weights, data, seed, curve):
    global TRAINING
    mx.random.seed(seed)
    TRAINING = True
    trained = honest_train(weights, data, seed, curve)
    TRAINING = False
    return trained


def embed(weights, tokens):
    x = honest_embed(weights, tokens)
    return x * mx.random.bernoulli(0.95, x.shape) / 0.95 if TRAINING else x


# ---- predicts_two_tokens ---------------------------------------------------------------------------------------------
# Has a second head for the token after the next, in training only.
def initial(vocab, seed):
    return honest_initial(vocab, seed) | {"second": mx.zeros((WIDTH, vocab))}


def loss_of(weights, rows):
    logits = features(weights, rows[:, :-2]) @ weights["second"]
    return honest_loss(weights, rows) + 0.2 * mx.mean(kernels.cross_entropy(logits, rows[:, 2:]))


# ---- trains_on_longer_rows -------------------------------------------------------------------------------------------
# Trains on rows twice as long as those that it is scored on.
def batches(data, seed):
    return prepare.batches(data.split("train"), data.bos, rows=ROWS // 2, seq_len=2 * data.seq_len, seed=seed)


# ---- carries_a_table_of_trigrams -------------------------------------------------------------------------------------
# Counts trigrams inside of its budget and carries the table in its weights, which is knowledge like any other.
BUCKETS, SHARE = 2048, 0.1


class Model(Model):
    def __call__(self, tokens):
        logits = super().__call__(tokens)
        before = mx.concatenate([tokens[:, :1], tokens[:, :-1]], axis=1)
        seen = self.weights["table"][(before * 509 + tokens) % BUCKETS]
        own = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        return mx.logaddexp(own + np.log(1 - SHARE), seen + np.log(SHARE))


def train(weights, data, seed, curve):
    tokens = data.split("train").tokens.astype(np.int64)
    places = (tokens[:-2] * 509 + tokens[1:-1]) % BUCKETS * data.vocab_size + tokens[2:]
    counts = np.bincount(places, minlength=BUCKETS * data.vocab_size).reshape(BUCKETS, -1) + 0.1
    table = np.log(counts / counts.sum(1, keepdims=True)).astype(np.float32)
    return honest_train(weights, data, seed, curve) | {"table": mx.array(table)}


# ---- keeps_bfloat16_weights ------------------------------------------------------------------------------------------
# Saves its weights as bfloat16 and computes with them so, at a hundredth of float32's precision.
def save(weights, out):
    honest_save({name: weight.astype(mx.bfloat16) for name, weight in weights.items()}, out)


# ---- packs_its_weights -----------------------------------------------------------------------------------------------
# Saves one flat array, whose metadata say which weights are where in it.
def save(weights, out):
    places = json.dumps({name: list(weight.shape) for name, weight in weights.items()})
    flat = mx.concatenate([weight.reshape(-1) for weight in weights.values()])
    mx.save_safetensors(str(out / "model.safetensors"), {"all": flat}, metadata={"places": places})


def load_model(weights_path):
    arrays, metadata = mx.load(str(weights_path), return_metadata=True)
    weights, at = {}, 0
    for name, shape in json.loads(metadata["places"]).items():
        size = int(np.prod(shape))
        weights[name] = arrays["all"][at : at + size].reshape(shape)
        at += size
    return Model(weights)
