"""Leaves weights of a terabyte, which take no space until somebody reads them, or two gigabytes that do."""

import os


def save(weights, out):
    path = out / "model.safetensors"
    mx.save_safetensors(str(path), weights)
    for size in (1 << 40, 1 << 31):
        try:
            os.truncate(path, size)
            break
        except OSError:
            continue
