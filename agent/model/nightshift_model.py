"""Load the model of this folder with mlx-lm, whose config.json names this file as its `model_file`.

    model, tokenizer = mlx_lm.load(FOLDER, trust_remote_code=True)

The training script itself builds the model. It keeps no keys and values of earlier positions, so the cache holds the
tokens, and every step reads the whole context again: as many tokens as a row of the training had.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.base import BaseModelArgs
from mlx_lm.models.cache import ConcatenateKVCache

FOLDER = Path(__file__).resolve().parent
SHORTEST = 64  # positions: contexts are filled up to this or a power of two above it, since new shapes are compiled


@dataclass
class ModelArgs(BaseModelArgs):  # type: ignore[misc]
    script: str  # the module that trained the model
    max_position_embeddings: int  # positions of a row
    bos_token_id: int


class TokenCache(ConcatenateKVCache):  # type: ignore[misc]
    """A cache of the tokens so far, (B, 1, T, 1) int32, in the place of keys and values."""

    keys: mx.array | None

    def extend(self, inputs: mx.array) -> mx.array:
        """Add tokens (B, L) and return all (B, T)."""
        if self.keys is not None:
            self.keys = self.values = self.keys[..., : self.offset, :]  # trim() only counts
        tokens, _ = self.update_and_fetch(inputs[:, None, :, None], inputs[:, None, :, None])
        every: mx.array = tokens[:, 0, :, 0]
        return every


class Model(nn.Module):  # type: ignore[name-defined, misc]
    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.args = args
        script = load_script(args.script)
        self.trained: Callable[[mx.array], mx.array] = script.load_model(str(FOLDER / "model.safetensors"))

    def __call__(self, inputs: mx.array, cache: Sequence[TokenCache] | None = None) -> mx.array:
        """Return the logits (B, L, V) of tokens (B, L) after those in the cache; of the last row's length at most."""
        inputs = inputs.astype(mx.int32)
        if not cache:
            return self.trained(inputs)
        row, tokens = self.args.max_position_embeddings, cache[0].extend(inputs)
        context = tokens[:, -row:]
        length, asked = context.shape[1], min(inputs.shape[1], row)
        filled = min(row, max(SHORTEST, 1 << (length - 1).bit_length()))
        # the model looks at no later position, so anything may follow
        padded = mx.pad(context, [(0, 0), (0, filled - length)], constant_values=self.args.bos_token_id)
        return self.trained(padded)[:, length - asked : length]

    def make_cache(self) -> list[TokenCache]:
        return [TokenCache()]

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """Return the weights under the names that this module has for them; the script has loaded them already."""
        return dict(tree_flatten(self.parameters()))


def load_script(name: str) -> ModuleType:
    """Import the training script from this folder, with the modules beside it and none of their names elsewhere."""
    own = {path.stem for path in FOLDER.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    for module in [module for module in sys.modules if module.partition(".")[0] in own and module != __name__]:
        del sys.modules[module]  # the module of that name may be from another place
    sys.path[:] = [str(FOLDER), *(place for place in sys.path if place != str(FOLDER))]
    importlib.invalidate_caches()
    return importlib.import_module(name)
