"""Take the steps of the shipped script in several ways, in a process of its own, for `nightshift doctor --verify`.

    python -P steps.py SCRIPT here       on this device: in bfloat16, in float32, and compiled
    python -P steps.py SCRIPT truth      on the CPU in float32; NIGHTSHIFT_KERNELS=plain leaves our kernels out
    python -P steps.py SCRIPT memory     of three sizes, with the gigabytes estimated and filled

Each prints one JSON line. The model of the first two is small and learns one batch by heart: rounding moves its losses
a little, a wrong gradient moves them far.
"""

import json
import math
import sys
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any

B, T, V, DEPTH, HEADS, HEAD_DIM = 4, 64, 96, 2, 2, 64
STEPS = 6
SIZES = 3  # of batches, each half of the next
ROOM = 0.5  # of the free memory: an estimate that is half of the truth must not freeze a screen


def main(script: str, way: str) -> None:
    sys.path[:] = [str(Path(script).parent), *sys.path, str(Path(__file__).parents[2])]
    from agent.lab import hardware

    hardware.tune()
    from agent.runs.scorer import load_script

    module = load_script(Path(script))
    print(json.dumps({"here": here, "truth": truth, "memory": memory}[way](module)))


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

    module.DTYPE, module.COMPILE, module.MICRO_STEPS = dtype, compiled, 1  # type: ignore[attr-defined]
    mx.random.seed(0)
    windows = (T // 2, T)
    config = module.GPTConfig(V, T, DEPTH, HEADS * HEAD_DIM, HEADS, HEADS, windows, 4, 15.0, 10000.0)
    step, params, state = begun(module, module.GPT(config))
    ids = np.random.default_rng(0).zipf(1.3, (B, T + 1)) % V  # a few are frequent, as in text
    found = []
    for number in range(STEPS):
        now = module.schedule(number, number / STEPS)
        params, state, loss = step(params, state, repeat(ids.astype(np.int32)), now)
        found.append(loss.item())
    return found


def begun(module: ModuleType, model: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a model's step, its parameters and the state of its optimizer, both evaluated."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = module.MuonAdamW(params, model.config.width)
    state = optimizer.init(params)
    mx.eval(params, state)
    return module.make_step(model, optimizer), params, state


def memory(module: ModuleType) -> dict[str, Any]:
    """Return rows, gigabytes estimated and gigabytes filled for the shipped model; fewer rows where memory is short.

    There are none where a single row would take too much. Old and new parameters lie side by side in a step.
    """
    import mlx.core as mx
    import numpy as np
    import psutil

    import prepare
    from agent.lab import hardware

    scale = prepare.SCALES[prepare.SCALE_OF_DEVICE[hardware.preset()]]
    model = module.GPT(module.config_from_dials(vocab_size=scale.vocab_size, seq_len=scale.seq_len))
    rows, module.MICRO_STEPS = module.BATCH_ROWS, 1  # type: ignore[attr-defined]

    def estimated_gb(rows: int) -> float:
        module.BATCH_ROWS = rows  # type: ignore[attr-defined]
        return float(sum(module.gigabytes_of_a_step(model).values()))

    def filled_gb(rows: int) -> float:
        ids = np.random.default_rng(0).zipf(1.3, (rows, scale.seq_len + 1)) % scale.vocab_size
        mx.clear_cache()
        mx.reset_peak_memory()
        mx.eval(step(params, state, repeat(ids.astype(np.int32)), module.schedule(0, 0.0)))
        return float(mx.get_peak_memory() / 1e9)

    # a GPU's own free memory is not known, and what is too much ends this process
    free_bytes = math.inf if hardware.device_kind() == "cuda" else psutil.virtual_memory().available
    allowed_gb = ROOM * min(free_bytes, hardware.limit_memory()) / 1e9
    while rows and estimated_gb(rows) > allowed_gb:
        rows //= 2
    sizes = sorted({rows // 2**halved for halved in range(SIZES)} - {0})
    estimated, filled = [estimated_gb(size) for size in sizes], []
    if sizes:
        step, params, state = begun(module, model)
        filled = [filled_gb(size) for size in sizes]
    return {"allowed_gb": allowed_gb, "rows": sizes, "estimated_gb": estimated, "filled_gb": filled}


if __name__ == "__main__":
    main(*sys.argv[1:])
