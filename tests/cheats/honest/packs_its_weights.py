"""Saves one flat array, whose metadata say which weights are where in it."""


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
