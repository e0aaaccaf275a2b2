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
