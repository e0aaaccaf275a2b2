"""Take the steps of the shipped script in several ways, in a process of its own, for `nightshift doctor --verify`.

    python -P steps.py SCRIPT here       on this device: in bfloat16, in float32, and compiled
    python -P steps.py SCRIPT truth      on the CPU in float32; NIGHTSHIFT_KERNELS=plain leaves our kernels out

Each prints one JSON line. The model is small and learns one batch by heart: rounding moves its losses
a little, a wrong gradient moves them far.
"""

import json
import sys
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any

B, T, V, DEPTH, HEADS, HEAD_DIM = 4, 64, 96, 2, 2, 64
STEPS = 6


def main(script: str, way: str) -> None:
    sys.path[:] = [str(Path(script).parent), *sys.path, str(Path(__file__).parents[2])]
    from agent.lab import hardware

    hardware.tune()
    from agent.runs.scorer import load_script

    module = load_script(Path(script))
    print(json.dumps({"here": here, "truth": truth}[way](module)))


def here(module: ModuleType) -> dict[str, Any]:
    """Return the losses on this device by dtype, those of a compiled step, and whether the script compiles here."""
    import mlx.core as mx

    own, compiles = module.DTYPE, module.COMPILE
    found = {name: losses(module, getattr(mx, name)) for name in ("bfloat16", "float32")}
    try:
        compiled: list[float] | str = losses(module, own, compiled=True)
    except RuntimeError as error:  # MLX's own: on a CPU it calls a C++ compiler
        compiled = str(error).strip().splitlines()[0]
    return {**found, "own": str(own).removeprefix("mlx.core."), "compiled": compiled, "compiles": compiles}


def truth(module: ModuleType) -> list[float]:
    """Return the losses in float32 on the CPU."""
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    return losses(module, mx.float32)


def losses(module: ModuleType, dtype: Any, *, compiled: bool = False) -> list[float]:
    """Return the losses of the first steps."""
    import mlx.core as mx
    import numpy as np
    from mlx.utils import tree_flatten

    module.DTYPE, module.COMPILE, module.MICRO_STEPS = dtype, compiled, 1  # type: ignore[attr-defined]
    mx.random.seed(0)
    windows = (T // 2, T)
    config = module.GPTConfig(V, T, DEPTH, HEADS * HEAD_DIM, HEADS, HEADS, windows, 4, 15.0, 10000.0)
    model = module.GPT(config)
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = module.MuonAdamW(params, model.config.width)
    state = optimizer.init(params)
    mx.eval(params, state)
    step = module.make_step(model, optimizer)
    ids = np.random.default_rng(0).zipf(1.3, (B, T + 1)) % V  # a few are frequent, as in text
    found = []
    for number in range(STEPS):
        now = module.schedule(number, number / STEPS)
        params, state, loss = step(params, state, repeat(ids.astype(np.int32)), now)
        found.append(loss.item())
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
