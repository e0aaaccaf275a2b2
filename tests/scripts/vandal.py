"""Does to its folder what no script should; DEED says what."""

import os
import shutil
import time
from pathlib import Path

DEED = "nothing"
NESTED = "[" * 4000


def load_model(weights_path: str) -> None:
    return None


def main() -> None:
    out = Path("out")
    (out / "model.safetensors").write_text("no weights")
    match DEED:
        case "delete":
            shutil.rmtree(Path.cwd())
        case "nest":
            (out / "metrics.jsonl").write_text(NESTED)
            (out / "summary.json").write_text(NESTED)
        case "pipe":
            os.mkfifo(out / "metrics.jsonl")
            os.mkfifo(out / "summary.json")
        case "file":
            shutil.rmtree(out)
            out.write_text("no folder")
        case "link":  # to the weights of attempt 0
            shutil.rmtree(out)
            out.symlink_to("../../0000/seed0/out")
        case "occupy":  # the place where the weights will be scored
            Path("score").write_text("no folder")
    time.sleep(0.2)  # for the harness to look


if __name__ == "__main__":
    main()
