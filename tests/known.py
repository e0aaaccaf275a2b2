"""Known ideas for a test: files of ideas/, made from a script before and after."""

import difflib
from pathlib import Path

HEADER = {
    "Title": "Try something",
    "Why": "It may help.",
    "Source": "a paper, arXiv:0000.00000",
    "Reported": "1 % less",
    "Group": "optimizer",
    "Gain": "cuda 1.0, metal 1.0, cpu 1.0",
}


def write_idea(folder: Path, name: str, before: str, after: str, **header: str) -> Path:
    """Write the idea that makes `after` of `before` into a folder of ideas."""
    lines = (text.splitlines(keepends=True) for text in (before, after))
    patch = "".join(difflib.unified_diff(*lines, "a/train_mlx.py", "b/train_mlx.py"))
    fields = "".join(f"{field}: {value}\n" for field, value in (HEADER | header).items())
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.patch"
    file.write_text(f"{fields}\n{patch}")
    return file
