"""Write a model as a folder that mlx-lm loads: script, weights, tokenizer, configuration and card.

The folder gets its name when it is whole. A folder that was written here before is replaced.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from agent.errors import MachineError, NightError
from agent.files import open_plain, replaced_folder
from agent.invocation import SCRIPT, typed
from agent.lab.corpus import DataError
from agent.lab.data import Data, load_data
from agent.lab.encode import load_encoding
from agent.model.best_script import BestScript
from agent.model.card import Scripts, model_card
from agent.model.tokenizer import tokenizer_files
from agent.model.weights import KeptWeights
from agent.records import checksums
from agent.records.journal import Journal
from agent.records.place import Place

MODEL_FILE = Path(__file__).with_name("nightshift_model.py")
OURS = "nightshift"  # the entry of config.json by which a folder is known to be one of these
PASSED_OVER = {"__pycache__", ".DS_Store"}  # that come with reading a folder


def write_folder(place: Place, best: BestScript, weights: KeptWeights, folder: Path) -> None:
    """Write the model to a folder, which may be missing, empty, or one that was written here before."""
    check_folder(folder)
    with Journal.read(place.journal(best.facts.tag)) as journal:
        night = journal.night()
        scripts = Scripts(*(journal.attempt(number).proposal.script for number in (best.attempt.number, 0)))
    fixed = place.folder(night.tag) / "fixed"
    data = corpus_of(Path(night.data))
    checksums.verify(night, fixed)
    with replaced_folder(folder) as aside:
        shutil.copytree(fixed, aside, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        (aside / SCRIPT).write_bytes(scripts.best.encode())
        shutil.copyfile(MODEL_FILE, aside / MODEL_FILE.name)
        with open_plain(weights.path.parent, weights.path.name) as source, (aside / weights.path.name).open("wb") as to:
            shutil.copyfileobj(source, to, 1 << 20)
        for name, text in tokenizer_files(load_encoding(data.folder / "tokenizer.tiktoken"), data.seq_len).items():
            (aside / name).write_text(text, encoding="utf-8")
        (aside / "README.md").write_text(model_card(best, scripts, weights, data.manifest), encoding="utf-8")
        (aside / "config.json").write_text(json.dumps(_config(best, weights, data, aside), indent=2) + "\n")


def _config(best: BestScript, weights: KeptWeights, data: Data, folder: Path) -> dict[str, Any]:
    return {
        "model_file": MODEL_FILE.name,
        "script": Path(SCRIPT).stem,
        "vocab_size": data.vocab_size,
        "max_position_embeddings": data.seq_len,
        "bos_token_id": data.bos,
        "eos_token_id": data.bos,
        OURS: {
            "night": best.facts.tag,
            "attempt": best.attempt.number,
            "commit": best.attempt.commit,
            "seed": weights.seed,
            "val_bpb": weights.val_bpb,
            "protocol": best.facts.protocol,
            "files": sorted(["config.json", *(path.name for path in folder.iterdir())]),
        },
    }


def check_folder(folder: Path) -> None:
    """Raise NightError for a folder that holds anything else than a model that was written here before."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NightError(f"{folder} is a file; name another folder")
    there = {path.name for path in folder.iterdir()} - PASSED_OVER
    foreign = sorted(there - _written_before(folder))
    if foreign:
        raise NightError(f"{folder} holds {foreign[0]}, which is no part of a model written here; name another folder")


def _written_before(folder: Path) -> set[str]:
    try:
        return set(json.loads((folder / "config.json").read_text())[OURS]["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def corpus_of(folder: Path) -> Data:
    """Load the corpus of a night without its arrays; raise MachineError if it is gone or damaged."""
    if not (folder / "manifest.json").exists():
        raise MachineError(
            f"the night's corpus is gone from {folder}, and its tokenizer with it; put the folder back, or prepare the "
            f"same corpus again with: {typed('prepare')} --dataset …"
        )
    try:
        return load_data(folder, verify=False)
    except DataError as error:
        raise MachineError(f"the night's corpus cannot be used: {error}") from error
