"""Leaves a pipe where its weights should be."""

import os


def save(weights, out):
    os.mkfifo(out / "model.safetensors")
