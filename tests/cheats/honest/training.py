"""Train in another way, or save the weights otherwise."""

honest_train, honest_embed, honest_save = train, embed, save


# ---- writes_checkpoints ----------------------------------------------------------------------------------------------
# Leaves a checkpoint every eight steps and a notebook of its own beside its weights.
def batches(data, seed):
    Path("out/checkpoints").mkdir()
    Path("tmp/notes.txt").write_text("a note of its own")
    for step, rows in enumerate(rows_of(data.split("train"), data, seed)):
        if step % 8 == 0:
            mx.save_safetensors(f"out/checkpoints/{step}.safetensors", LIVE)
        yield rows


def train(weights, data, seed, curve):
    global LIVE
    LIVE = weights  # which change in place as training goes on
    return honest_train(weights, data, seed, curve)


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
