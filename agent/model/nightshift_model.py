"""Load the model of this folder with mlx-lm, whose config.json names this file as its `model_file`.

    model, tokenizer = mlx_lm.load(FOLDER, trust_remote_code=True)

The training script itself builds the model. It keeps no keys and values of earlier positions, so the cache holds the
tokens, and every step reads the whole context again: as many tokens as a row of the training had.
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

FOLDER = Path(__file__).resolve().parent
SHORTEST = 64  # positions: contexts are filled up to this or a power of two above it, since new shapes are compiled


@dataclass(frozen=True)
class ModelArgs:
    script: str  # the module that trained the model
    max_position_embeddings: int  # positions of a row
    bos_token_id: int

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> "ModelArgs":
        return cls(**{field.name: config[field.name] for field in fields(cls)})


class TokenCache:
    """Hold the tokens so far, in the place of keys and values."""

    def __init__(self) -> None:
        self.tokens: mx.array | None = None  # (B, T) int32

    def extend(self, inputs: mx.array) -> mx.array:
        """Add tokens (B, L) and return all."""
        self.tokens = inputs if self.tokens is None else mx.concatenate([self.tokens, inputs], axis=1)
        return self.tokens

    @property
    def offset(self) -> int:
        return 0 if self.tokens is None else int(self.tokens.shape[1])

    @property
    def state(self) -> list[mx.array]:
        return [] if self.tokens is None else [self.tokens]

    @property
    def nbytes(self) -> int:
        return 0 if self.tokens is None else int(self.tokens.nbytes)

    def size(self) -> int:
        return self.offset

    def empty(self) -> bool:
        return self.tokens is None

    def is_trimmable(self) -> bool:
        return True

    def trim(self, count: int) -> int:
        """Drop the last tokens; return how many."""
        dropped = min(count, self.offset)
        if self.tokens is not None and dropped:
            self.tokens = self.tokens[:, : self.offset - dropped]
        return dropped


class Model(nn.Module):  # type: ignore[name-defined, misc]
    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.args = args
        self.trained = load_script(args.script).load_model(str(FOLDER / "model.safetensors"))

    def __call__(self, inputs: mx.array, cache: Sequence[TokenCache] | None = None) -> mx.array:
        """Return the logits (B, L, V) of tokens (B, L) after those in the cache; of the last row's length at most."""
        inputs = inputs.astype(mx.int32)
        if not cache:
            return self.logits(inputs)
        row, tokens = self.args.max_position_embeddings, cache[0].extend(inputs)
        context = tokens[:, -row:]
        length, asked = context.shape[1], min(inputs.shape[1], row)
        filled = min(row, max(SHORTEST, 1 << (length - 1).bit_length()))
        # the model looks at no later position, so anything may follow
        logits = self.logits(mx.pad(context, [(0, 0), (0, filled - length)], constant_values=self.args.bos_token_id))
        return logits[:, length - asked : length]

    def logits(self, tokens: mx.array) -> mx.array:
        found: mx.array = self.trained(tokens)
        return found

    def make_cache(self) -> list[TokenCache]:
        return [TokenCache()]

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """Return the weights under the names that this module has for them; the script has loaded them already."""
        return dict(tree_flatten(self.parameters()))

    @property
    def layers(self) -> list[Any]:
        """Return the blocks, where the script calls them so."""
        return list(getattr(self.trained, "blocks", []))


def load_script(name: str) -> ModuleType:
    """Import the training script from this folder, with the modules beside it and none of their names elsewhere."""
    own = {path.stem for path in FOLDER.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    for module in [module for module in sys.modules if module.partition(".")[0] in own and module != __name__]:
        del sys.modules[module]  # of the same name, but from another place
    sys.path[:] = [str(FOLDER), *(place for place in sys.path if place != str(FOLDER))]
    importlib.invalidate_caches()
    return importlib.import_module(name)
