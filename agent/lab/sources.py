"""Find the files of a dataset: Python's standard library, a user's path, or a download from the hub."""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from agent.lab.corpus import SUFFIXES, DataError, progress, say, without_text
from agent.lab.hardware import write_atomically

HUB_DATASETS = {
    "climbmix": "karpathy/climbmix-400b-shuffle",
    "tinystories": "karpathy/tinystories-gpt4-clean",
}
DATASETS = ("stdlib", *HUB_DATASETS)  # any other name is a path
DEFAULT_SHARDS = {"climbmix": 10}  # of 6,543; about a day of tokens for one GPU. Other datasets: all their shards
INSTALLED = {"site-packages", "dist-packages", "__pycache__"}  # folders to leave out: installed packages


def corpus_name(dataset: str) -> str:
    """Return the start of a prepared folder's name: the dataset's name, or that of the user's file or folder."""
    return dataset if dataset in DATASETS else Path(dataset).expanduser().absolute().stem


def find_sources(dataset: str, shards: int | None, cache: Path) -> list[Path]:
    """Return the files of a dataset in a stable order, downloaded from the hub if necessary.

    Raise DataError if the dataset is unknown, holds no file of a known kind, or cannot be downloaded.
    """
    if dataset == "stdlib":
        return _files_below(Path(sysconfig.get_path("stdlib")))
    if dataset in HUB_DATASETS:
        return _download(dataset, shards or DEFAULT_SHARDS.get(dataset), cache)
    path = Path(dataset).expanduser()
    if path.is_dir():
        return _files_below(path)
    if not path.exists():
        raise DataError(f"no dataset {dataset!r}: choose stdlib, tinystories, climbmix or the path of a file or folder")
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is not a {' '.join(SUFFIXES)} file: rename it, or give a folder of such files")
    return [path]


def _files_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    closed: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = [name for name in folders if name not in INSTALLED and not name.startswith(".")]
        found += [Path(root, name) for name in names if name.lower().endswith(SUFFIXES)]
    files = sorted((path for path in found if path.is_file()), key=Path.as_posix)
    example = f"{closed[0].filename} cannot be read ({closed[0].strerror})" if closed else ""
    if not files:
        missing = example or f"{folder} holds no {' '.join(SUFFIXES)} file"
        raise DataError(f"{missing}: give a folder with text")
    if closed:
        say(f"leaving out {len(closed)} folder{'s' * (len(closed) > 1)}: for example, {example}")
    tables = {path: error for path in files if (error := without_text(path)) is not None}
    if tables and len(tables) == len(files):
        raise tables[files[0]]
    if tables:
        say(f"leaving out {len(tables)} of {len(files)} files: for example, {next(iter(tables.values()))}")
    return [path for path in files if path not in tables]


def _download(dataset: str, shards: int | None, cache: Path) -> list[Path]:
    """Return the parquet files of a hub dataset at the revision seen first, so that later calls need no network."""
    from huggingface_hub import hf_hub_download

    repo = HUB_DATASETS[dataset]
    try:
        revision, names = _listing(repo, cache / "hub" / f"{dataset}.json")
        pool = ThreadPoolExecutor(4)
        try:
            fetch = functools.partial(hf_hub_download, repo, repo_type="dataset", revision=revision)
            files = []
            with _unless_the_hub_does(f"downloading {dataset}", len(names[:shards])) as advance:
                for path in pool.map(fetch, names[:shards]):
                    files.append(Path(path))
                    advance(1)
            return files
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a failure or Ctrl-C does not wait for the other files
    except Exception as error:  # the hub, HTTP and socket layers raise unrelated classes
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise  # encode.file_errors() explains a full disk
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise DataError(
            f"{dataset} ({repo}) could not be downloaded: {reason.rstrip('.')}; run the same command again to go on, "
            "or take --dataset stdlib, which needs no network"
        ) from error


def _unless_the_hub_does(what: str, total: float) -> AbstractContextManager[Callable[[float], None]]:
    """Show the progress of a download; on a terminal the hub's own bars do, with bytes and speed of each file."""
    return nullcontext(lambda more: None) if sys.stderr.isatty() else progress(what, total)


def _listing(repo: str, kept: Path) -> tuple[str, list[str]]:
    from huggingface_hub import HfApi

    if not kept.exists():
        info = HfApi().dataset_info(repo)
        names = sorted(file.rfilename for file in info.siblings or [] if file.rfilename.endswith(".parquet"))
        write_atomically(kept, json.dumps({"revision": info.sha, "files": names}).encode())
    listing = json.loads(kept.read_text())
    return listing["revision"], listing["files"]
