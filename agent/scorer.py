"""Runs in a folder of its own beside the committed script and the fixed files: weights in, score.json out.

python scorer.py SCRIPT WEIGHTS
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType


def main(script: str, weights: str) -> None:
    import hardware

    hardware.tune()  # before anything imports MLX
    import prepare

    model = load_script(Path(script)).load_model(weights)
    val_bpb = prepare.evaluate_bpb(model, prepare.load_data(verify=False), split="validation")
    Path("score.json").write_text(json.dumps({"val_bpb": float(val_bpb)}))


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
