"""Its model is a function over a nested dictionary of arrays, and its loader a closure."""

from functools import partial

from mlx.utils import tree_flatten, tree_unflatten


def save(weights, out):
    tree = {"table": {"embed": weights["embed"], "previous": weights["previous"]}, "rest": dict(weights)}
    mx.save_safetensors(str(out / "model.safetensors"), dict(tree_flatten(tree)))


def load_model(weights_path):
    tree = tree_unflatten(list(mx.load(str(weights_path)).items()))
    return partial(logits_of, {**tree["rest"], **tree["table"]})
