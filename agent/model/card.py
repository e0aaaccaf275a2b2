"""Write the card of a model: what it is, how good, how that was measured, and how to load it."""

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.experiment import Attempt
from agent.invocation import SCRIPT
from agent.judging.intervals import Interval
from agent.model.best_script import BestScript
from agent.model.weights import KeptWeights
from agent.records.record import Record
from agent.records.summary import Scored
from agent.script.dials import Value, legible_dials, show
from agent.text import counted, one_line

MOST_CHARS = 300  # of a title or a hypothesis
TERMS = {  # of the corpora that prepare.py knows
    "stdlib": "the text of Python's standard library (Python Software Foundation License)",
    "tinystories": "derived from TinyStories (CDLA-Sharing-1.0)",
    "climbmix": "derived from NVIDIA's ClimbMix (CC BY-NC 4.0, which excludes commercial use)",
}
HEADER = """\
---
library_name: mlx
pipeline_tag: text-generation
tags:
- mlx
- nightshift
---
"""


@dataclass(frozen=True, slots=True)
class Scripts:
    """Hold two scripts of a night, as they were committed."""

    best: str
    first: str


def model_card(best: BestScript, scripts: Scripts, weights: KeptWeights, manifest: Mapping[str, Any]) -> str:
    """Return the card as Markdown. Titles and hypotheses, which a model may have written, are plain text in it."""
    night, attempt, kind = best.facts, best.attempt, best.facts.night.device_kind
    sections = (
        HEADER,
        f"# {_plain(attempt.title)}\n",
        f"A small language model, trained from scratch for {counted(night.budget_s, 'second')} on {night.device}. Its "
        f"training script is attempt {attempt.number} of night `{night.tag}` of nightshift, a harness that edits a "
        f"training script, trains it and keeps the edits that lower its score. It continues text like that of its "
        f"corpus. It follows no instructions.\n",
        _hypothesis(attempt),
        "## How good it is\n",
        "Bits per byte of text that it was not trained on; lower is better.\n",
        _table(("", "bits per byte"), _scores(best, weights)),
        _about_intervals(best),
        "## Where it comes from\n",
        _table(("", ""), _origin(best, weights)),
        "## Data\n",
        _table(("", ""), _data(night, manifest)),
        "## Dials\n",
        f"The values in `{SCRIPT}` on {kind}, and those of the night's first script where they differ:\n",
        _table(("dial", "value", "at first"), _dials(scripts, kind)),
        "## How to load it\n",
        _loading(manifest),
        "## Licence\n",
        f"The code was derived from nightshift's, which has the MIT licence. The corpus: {_terms(manifest)}. Whether "
        f"its terms extend to the weights is for you to decide before you share them.\n",
    )
    return "\n".join(filter(None, sections))


def _plain(text: str) -> str:
    """Return a text as one line of Markdown without markup."""
    marked = re.sub(r"([\\`*_\[\]#!|~]|:(?=//))", r"\\\1", one_line(text, MOST_CHARS))
    return html.escape(marked, quote=False)


def _hypothesis(attempt: Attempt) -> str:
    return (
        f"The last edit, in the words of its author: {_plain(attempt.proposal.hypothesis)}\n" if attempt.number else ""
    )


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _scores(best: BestScript, weights: KeptWeights) -> list[tuple[str, str]]:
    scored = [run for run in best.attempt.runs if run.val_bpb is not None]
    lowest = f", the lowest of {len(scored)} runs" if len(scored) > 1 and not weights.replayed else ""
    rows = [(f"these weights (seed {weights.seed}{lowest})", f"{weights.val_bpb:.6f}")]
    if weights.holdout_bpb is not None:
        rows.append(("these weights, on the holdout", f"{weights.holdout_bpb:.6f}"))
    if best.score is not None:
        rows.append(("the script", score_words(best.score)))
    if best.gain is not None:
        rows.append(("gain over the night's first script, by the night's own scores", interval(best.gain)))
    found = best.dawn
    if found is not None and found.honest is not None:
        rows.append(("honest gain, on fresh seeds", interval(found.honest)))
    if found is not None and found.holdout is not None:
        rows.append(("honest gain, on the holdout", interval(found.holdout)))
    return rows


def _about_intervals(best: BestScript) -> str:
    words = "Brackets hold 95 % intervals: how far another choice of seeds would move the number.\n"
    if best.facts.sigma_bpb is None:
        words = "How far another choice of seeds would move these numbers is not known: no script ran with two.\n"
    if best.dawn is None and best.attempt.number:
        words += (
            "The gain was not confirmed on fresh seeds: the script was chosen by the same scores, so its true gain is "
            "probably smaller.\n"
        )
    return words


def _origin(best: BestScript, weights: KeptWeights) -> list[tuple[str, str]]:
    night, attempt = best.facts, best.attempt
    again = ", in a replay after the night" if weights.replayed else ""
    return [
        ("night", f"`{night.tag}`, attempt {attempt.number} of {len(night.attempts) - 1}"),
        ("commit", f"`{attempt.commit}`"),
        ("ref", f"`{best.ref}`" + (f", branch `{best.branch}`" if best.branch else "")),
        ("source of the last edit", _plain(attempt.source)),
        ("trained", f"{weights.trained or attempt.started}, {night.budget_s:g} s, seed {weights.seed}{again}"),
        ("device", f"{weights.device} ({night.night.device_kind})"),
        ("parameters", f"{weights.params:,}"),
    ]


def _data(night: Record, manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    splits = ((name, split) for name, split in manifest["splits"].items())
    return [
        ("corpus", f"{_plain(_corpus(manifest))}, scale {manifest['scale']}"),
        *((name, f"{split['tokens']:,} tokens, {split['bytes']:,} bytes of text") for name, split in splits),
        ("vocabulary", f"{manifest['vocab_size']:,} tokens (byte-pair encoding, trained on the corpus)"),
        ("context", f"{manifest['seq_len']:,} tokens"),
        ("protocol", f"`{night.protocol}`: scores compare with those of the same protocol only"),
    ]


def _corpus(manifest: Mapping[str, Any]) -> str:
    """Return the corpus's name; of a user's own files, the last part of the path."""
    name = str(manifest["dataset"])
    return name if name in TERMS else Path(name).name


def _terms(manifest: Mapping[str, Any]) -> str:
    return TERMS.get(str(manifest["dataset"]), "files of the night's owner, under terms that nightshift does not know")


def _dials(scripts: Scripts, kind: str) -> list[tuple[str, str, str]]:
    """Return name, value and first value of the dials that are meant to be turned."""
    first = {dial.name: dial.value for dial in legible_dials(scripts.first, kind)}
    dials = [dial for dial in legible_dials(scripts.best, kind) if dial.span is not None]
    return [
        (f"`{one.name}`", _value(one.value), "" if first.get(one.name) == one.value else _value(first.get(one.name)))
        for one in dials
    ]


def _value(value: Value) -> str:
    return "none" if value is None else _plain(show(value))


def _loading(manifest: Mapping[str, Any]) -> str:
    return f"""\
`{SCRIPT}` builds the model, and loading runs it with your rights, outside any sandbox. A machine may have written it:
read it first.

    pip install mlx-lm

```python
from mlx_lm import generate, load

model, tokenizer = load("PATH/OF/THIS/FOLDER", trust_remote_code=True)
print(generate(model, tokenizer, "import os", max_tokens=100))
```

On a Linux CPU, install `mlx-lm[cpu]`. Without mlx-lm, in this folder: `train_mlx.load_model("model.safetensors")` is
the model, tokens (B, T) → logits (B, T, {manifest["vocab_size"]}). `tokenizer.json` is for the package tokenizers.
"""


def score_words(found: Scored) -> str:
    """Return the mean of an attempt's scores, its 95 % interval if the noise is known, and how many there are."""
    around = Interval(found.val_bpb, found.low_bpb, found.high_bpb)
    return f"{interval(around)}, mean of {counted(found.seeds, 'seed')}"


def interval(found: Interval) -> str:
    """Return the mean, and the ends in brackets where the noise is known."""
    return f"{found.mean_bpb:.6f}" + (f" [{found.low_bpb:.6f}, {found.high_bpb:.6f}]" if found.has_width else "")
