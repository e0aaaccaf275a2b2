"""Write a large text of source code as parquet files, which a run of five minutes reads about once.

    python benchmarks/source_text.py FOLDER SOURCE... [--most-mb MB]

A source is a folder, an archive such as Debian's linux-source, or a wheel. The same sources give the same text, and the
last line names it by a hash: a night can move only to a machine where it is equal. Left out are copies of a file, and
tables of numbers, of which a few large ones would be much of a held-out split. The wheels of source_packages.txt, which
`pip download --no-deps -r` fetches, at most 9 MB of each, are the longer text of the README's five-minute comparison.
"""

import hashlib
import math
import random
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import cyclopts
import measure  # noqa: F401, it puts the repository on the path
import pyarrow as pa
import pyarrow.parquet as pq

from agent.cli.options import Positive

KINDS = {".py", ".pyi", ".c", ".h", ".S", ".hpp", ".cuh", ".rst", ".md", ".txt"}
BYTES = range(300, 2_000_001)  # longer ones are generated
NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]{2,}\b|\d{2,}")
MOST_NUMBERS = 0.25  # share of a text's characters
SHARDS = 64


def documents(source: Path) -> Iterator[str]:
    """Yield the text of each file of these kinds, in an order that depends on their paths alone."""
    with TemporaryDirectory() as room:
        if not source.is_dir():
            shutil.unpack_archive(source, room, "zip" if source.suffix == ".whl" else None)
        folder = source if source.is_dir() else Path(room)
        files = (path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file())
        paths = sorted(path for path in files if path.stat().st_size in BYTES)
        for path in random.Random(0).sample(paths, len(paths)):
            text = path.read_text(encoding="utf-8", errors="replace")
            numbers = sum(map(len, NUMBER.findall(text)))
            if "\ufffd" not in text and numbers <= MOST_NUMBERS * len(text):
                yield text


def main(folder: Path, sources: list[Path], /, *, most_mb: Positive = 1000.0) -> None:
    """Write the shards, and say how many documents they hold, how long, and the hash of all.

    Args:
        most_mb: of any one wheel, a random part of it where it has more
    """
    texts: dict[str, None] = {}  # an ordered set: each text once
    for source in sorted(sources, key=lambda source: (source.suffix == ".whl", source.name)):  # wherever they lie
        left = most_mb * 1e6 if source.suffix == ".whl" else math.inf
        for text in documents(source):
            left -= 0 if text in texts else len(text)
            if left < 0:
                break
            texts[text] = None
    shuffled = random.Random(0).sample([*texts], len(texts))
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        pq.write_table(pa.table({"text": shuffled[shard::SHARDS]}), folder / f"source{shard:02}.parquet")
    whole = "".join(shuffled)
    print(f"{len(texts):,} documents, {len(whole) // 10**6} MB, {hashlib.sha256(whole.encode()).hexdigest()[:16]}")


if __name__ == "__main__":
    app = cyclopts.App(help=__doc__, version_flags=())
    app.default(main)
    try:
        app(exit_on_error=False, print_error=False)
    except (cyclopts.CycloptsError, OSError, ValueError) as error:
        print(f"source_text: {error}; name folders, archives or wheels", file=sys.stderr)
        sys.exit(2)
