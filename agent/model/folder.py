"""Write a model as a folder that mlx-lm loads: script, weights, tokenizer, configuration and card.

The folder gets its name when it is whole.
"""

import html
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import MachineError, NightError
from agent.experiment import attempt_ref
from agent.files import open_plain, replaced_folder
from agent.invocation import SCRIPT, typed_python
from agent.lab.corpus import DataError
from agent.lab.data import Data, load_data
from agent.lab.encode import BOS, SPLIT_PATTERN, load_encoding
from agent.model import KeptWeights, best_script
from agent.records.place import Place
from agent.records.record import Record
from agent.records.summary import Scored, gain_over_baseline
from agent.runs.fixed import verify_pins
from agent.text import counted, one_line
from agent.view.words import Form

if TYPE_CHECKING:
    import tiktoken

MODEL_FILE, CARD = (Path(__file__).with_name(name) for name in ("nightshift_model.py", "card.md"))
MOST_CHARS = 300  # characters of a title or a hypothesis
LICENCES = {  # licence of each corpus that prepare.py knows
    "stdlib": "the text of Python's standard library (Python Software Foundation License)",
    "tinystories": "derived from TinyStories (CDLA-Sharing-1.0)",
    "climbmix": "derived from NVIDIA's ClimbMix (CC BY-NC 4.0, which excludes commercial use)",
}


def write_folder(place: Place, record: Record, weights: KeptWeights, folder: Path) -> None:
    """Write the model to a folder, which must not be there."""
    if folder.exists():
        raise NightError(f"{folder} is there already; name another folder, or delete it")
    fixed = place.folder(record.tag) / "fixed"
    data = corpus_of(Path(record.night.data))
    verify_pins(record.night, fixed)
    config = {
        "model_file": MODEL_FILE.name,
        "script": Path(SCRIPT).stem,
        "vocab_size": data.vocab_size,
        "max_position_embeddings": data.seq_len,
        "bos_token_id": data.bos,
        "eos_token_id": data.bos,
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": BOS,  # a document ends where the next begins
        "clean_up_tokenization_spaces": False,
        "model_max_length": data.seq_len,
    }
    texts = {
        SCRIPT: weights.attempt.proposal.script,
        "tokenizer.json": tokenizer_json(load_encoding(data.folder / "tokenizer.tiktoken")),
        "tokenizer_config.json": json.dumps(tokenizer_config, indent=2) + "\n",
        "config.json": json.dumps(config, indent=2) + "\n",
        "README.md": model_card(record, weights, data.manifest),
    }
    with replaced_folder(folder) as aside:
        shutil.copytree(fixed, aside, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        shutil.copyfile(MODEL_FILE, aside / MODEL_FILE.name)
        with open_plain(weights.path.parent, weights.path.name) as source, (aside / weights.path.name).open("wb") as to:
            shutil.copyfileobj(source, to, 1 << 20)
        for name, text in texts.items():
            (aside / name).write_bytes(text.encode())


def corpus_of(folder: Path) -> Data:
    """Load the corpus of a night without its arrays; raise MachineError if it is gone or damaged."""
    if not (folder / "manifest.json").exists():
        raise MachineError(
            f"the night's corpus is gone from {folder}, and its tokenizer with it; put the folder back, or prepare the "
            f"same corpus again with: {typed_python('prepare.py', '--use', 'nowhere')} --dataset …"
        )
    try:
        return load_data(folder, verify=False)
    except DataError as error:
        raise MachineError(f"the night's corpus cannot be used: {error}") from error


# ---- the tokenizer ---------------------------------------------------------------------------------------------------

# Bytes that are visible characters of Latin-1 are written as themselves, and all others as characters from U+0100 on:
# the format holds text, and a token need not be whole UTF-8.
VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
CHARACTERS = {byte: chr(byte) for byte in VISIBLE} | {byte: chr(0x100 + at) for at, byte in enumerate(HIDDEN)}


def tokenizer_json(encoding: "tiktoken.Encoding") -> str:
    """Return a corpus's tokenizer as the packages tokenizers and transformers read it.

    Ours gives each token its rank, and joins the pair of pieces whose union has the lowest one. The other lists the
    pairs themselves: all that make a token, in order of its rank, then of theirs. A text begins with BOS, as every
    document does.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    bos = encoding.n_vocab - 1
    ranks = {encoding.decode_single_token_bytes(token): token for token in range(bos)}
    words = {token: "".join(CHARACTERS[byte] for byte in token) for token in ranks}
    pairs = [
        (rank, ranks[token[:at]], ranks[token[at:]], token, at)
        for token, rank in ranks.items()
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    ]
    merges = [(words[token[:at]], words[token[at:]]) for *_, token, at in sorted(pairs)]
    vocabulary = {words[token]: rank for token, rank in ranks.items()} | {BOS: bos}
    # a piece that is a token is taken whole, as ours does
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.add_special_tokens([AddedToken(BOS, special=True, normalized=False)])
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"), pieces])
    tokenizer.post_processor = processors.TemplateProcessing(f"{BOS} $A", "$A $B", [(BOS, bos)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()


# ---- the card --------------------------------------------------------------------------------------------------------


def model_card(record: Record, weights: KeptWeights, manifest: Mapping[str, Any]) -> str:
    """Return what the model is, how good, how that was measured, and how to load it, as Markdown."""
    from jinja2 import Environment, StrictUndefined

    # nothing else is marked as harmless: titles and hypotheses, which a model may have written, are plain text in it
    templates = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    templates.filters |= {"plain": _plain, "counted": counted, "interval": Form().interval}
    dataset, attempt = str(manifest["dataset"]), weights.attempt
    return templates.from_string(CARD.read_text(encoding="utf-8")).render(
        night=record,
        attempt=attempt,
        ref=attempt_ref(record.tag, attempt.number),
        score=Scored.of(record, attempt),
        gain=gain_over_baseline(record, attempt),
        confirmation=best_script(record)[1],
        seeds=sum(run.val_bpb is not None for run in attempt.runs),
        weights=weights,
        manifest=manifest,
        corpus=dataset if dataset in LICENCES else Path(dataset).name,  # a name without the user's folders
        terms=LICENCES.get(dataset, "files of the night's owner, under terms that nightshift does not know"),
        script=SCRIPT,
    )


def _plain(text: object) -> str:
    """Return a text as one line of Markdown without markup."""
    marked = re.sub(r"([\\`*_\[\]#!|~]|:(?=//))", r"\\\1", one_line(str(text), MOST_CHARS))
    return html.escape(marked, quote=False)
