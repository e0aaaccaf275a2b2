"""Write the text of this machine's Python packages and headers as parquet files, a second text for long runs.

    python benchmarks/machine_text.py FOLDER

On a machine with CUDA and PyTorch that is some 700 MB, a quarter of a billion tokens, each file once. The same packages
give the same files, and the last line names them by a hash: a night can move only to a machine where it is equal.
"""

import hashlib
import random
import sys
from pathlib import Path

import cyclopts
import pyarrow as pa
import pyarrow.parquet as pq

ROOTS = (sys.prefix, "/usr/lib/python3", "/usr/lib/python3.12", "/usr/local/cuda", "/usr/include")
KINDS = {".py", ".pyi", ".h", ".hpp", ".cuh", ".rst", ".md"}
BYTES = range(300, 2_000_001)  # longer ones are tables
SHARDS = 16


def documents() -> dict[bytes, str]:
    """Return the text of every file of these kinds by its hash, in the order of paths."""
    paths = {path.resolve() for root in ROOTS for path in Path(root).rglob("*") if path.suffix in KINDS}
    texts_by_hash: dict[bytes, str] = {}
    for path in sorted(paths):
        if path.is_file() and path.stat().st_size in BYTES and "__pycache__" not in path.parts:
            data = path.read_bytes()
            try:
                texts_by_hash.setdefault(hashlib.sha256(data).digest(), data.decode())
            except UnicodeDecodeError:
                continue
    return texts_by_hash


def main(folder: Path) -> None:
    """Write the shards, and say how many documents they hold, how long, and the hash of all."""
    folder.mkdir(parents=True, exist_ok=True)
    texts_by_hash = documents()
    texts = list(texts_by_hash.values())
    random.Random(1).shuffle(texts)
    for shard in range(SHARDS):
        pq.write_table(pa.table({"text": texts[shard::SHARDS]}), folder / f"machine{shard:02}.parquet")
    digest = hashlib.sha256(b"".join(texts_by_hash)).hexdigest()[:16]
    print(f"{len(texts):,} documents, {sum(map(len, texts)) // 10**6} MB, {digest}")


if __name__ == "__main__":
    cyclopts.run(main)
