"""Leaves, in place of its weights, a link to better ones."""


def save(weights, out):
    (out / "model.safetensors").symlink_to(WORLD["champion"])
