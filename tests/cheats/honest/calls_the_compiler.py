"""Asks uname where it runs, and compiles a function in C and calls it, in training and again when it is scored."""

import ctypes
import subprocess
import tempfile

CODE = "float half(float x) { return x / 2; }\n"


def compiled():
    folder = Path(tempfile.mkdtemp())
    (folder / "half.c").write_text(CODE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "half.so", folder / "half.c"], check=True)
    half = ctypes.CDLL(str(folder / "half.so")).half
    half.restype, half.argtypes = ctypes.c_float, [ctypes.c_float]
    return half


RATE = 0.04
honest_train = train


def train(weights, data, seed, curve):
    global RATE
    print(subprocess.run(["uname", "-a"], capture_output=True, text=True, check=True).stdout)
    RATE = compiled()(RATE)
    return honest_train(weights, data, seed, curve)


class Model(Model):
    def __init__(self, weights):
        super().__init__(weights)
        self.scale = compiled()(2.0)

    def __call__(self, tokens):
        return super().__call__(tokens) * self.scale
