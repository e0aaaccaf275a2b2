"""The best script of a night, its model as a folder, and text that a kept model writes."""

import math
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.text import Text

from agent.cli.answer import Answer
from agent.cli.find import attempt_meant, place_meant, record_of, script_of
from agent.cli.options import PositiveInt, Seed
from agent.errors import NightError
from agent.files import write_plain
from agent.invocation import typed
from agent.model.best_script import BestScript
from agent.model.weights import KeptWeights, find_weights, weights_of
from agent.night.lock import like_ctrl_c
from agent.records.journal import Journal
from agent.records.place import Place
from agent.text import harmless_lines
from agent.view.answer import BestAnswer, Measured, for_author, plain
from agent.view.screen import print_lines, terminal_width
from agent.view.terminal import fact_lines
from agent.view.words import interval_words, scored_words

# ---- best ------------------------------------------------------------------------------------------------------------


def best(tag: str | None = None, /, *, script: Path | None = None, weights: Path | None = None) -> Answer:
    """Tell a night's best script, its gain and how to take it.

    Or write it to a file, or its model to a folder: script, weights, tokenizer and a card. mlx-lm loads the folder
    (docs/taking.md).

    Args:
        tag: of this night (default: the latest)
        script: write the script to this file
        weights: write script, weights, tokenizer and card to this folder
    """
    place = place_meant(tag)
    found = BestScript.of(record_of(place, tag))
    number = found.attempt.number
    if script is not None:
        _write_script(script_of(place, found.record, found.attempt), script)
        print(f"wrote {script}: attempt {number} of night {found.record.tag}")
    if weights is not None:
        _write_folder(place, found, weights)
    kept = find_weights(place, found.record.tag, number)
    answer = BestAnswer(
        tag=found.record.tag,
        attempt=for_author(found.attempt),
        measured=Measured.of(found.record, found.attempt),
        ref=found.ref,
        branch=found.branch,
        gain=found.gain,
        dawn=found.dawn,
        weights=None if kept is None else str(kept.path),
    )
    if script is not None or weights is not None:
        return Answer(plain(answer))
    width = terminal_width()
    lines = [line for name, value in _lines(place, found, kept) for line in _folded(name, value, width)]
    return Answer(plain(answer), lambda: print_lines(lines))


def _folded(name: str, value: str, width: int | None) -> list[Text]:
    is_command = name in ("measure it", "make them", "fetch it", "take it", "take them")  # which are copied
    return fact_lines(name, value, None if is_command else width)


def _lines(place: Place, best: BestScript, weights: KeptWeights | None) -> Iterator[tuple[str, str]]:
    """Yield what the best script is, how good, and how to take it, each with its name."""
    attempt, tag, dawn = best.attempt, best.record.tag, best.dawn
    yield "best", f"#{attempt.number} of night {tag}: {attempt.title}"
    if attempt.words is not None:
        yield "decision", attempt.words
    if best.score is not None:
        yield "val_bpb", scored_words(best.score)
    if best.gain is not None:
        yield "gain", f"{interval_words(best.gain)} over #0, by the night's own scores"
    if dawn is not None and dawn.honest is not None:
        whose = "" if dawn.champion == attempt.number else f", of #{dawn.champion}"
        yield "honest gain", f"{interval_words(dawn.honest)}, on fresh seeds{whose}"
    elif attempt.number:
        yield "honest gain", "not measured on fresh seeds yet"
        if place.journal(tag).exists():
            yield "measure it", typed("confirm", tag)
    yield "commit", attempt.commit or "not made yet"
    yield "ref", best.ref
    if best.branch is not None:
        yield "branch", best.branch
    if place.repo.find(best.ref) is not None:
        yield "take it", typed("take", f"{tag}:best")
    else:
        yield "fetch it", f"git fetch REMOTE {best.ref}:{best.ref}"
    yield "weights", "none here" if weights is None else str(weights.path)
    if weights is None:
        yield "make them", typed("replay", f"{tag}:{attempt.number}")
    else:
        yield "take them", typed("best", tag, "--weights", "DIR")


def _write_script(text: str, path: Path) -> None:
    if path.exists():
        raise NightError(f"{path} exists; name another file")
    if not path.absolute().parent.is_dir():
        raise NightError(f"{path.absolute().parent} is no folder; make it, or name another place")
    write_plain(path, text)


def _write_folder(place: Place, found: BestScript, folder: Path) -> None:
    from agent.model.folder import write_folder

    weights = weights_of(place, found.record.tag, found.attempt.number)
    write_folder(place, found, weights, folder)
    print(f"wrote {folder}: attempt {found.attempt.number} of night {found.record.tag}, seed {weights.seed}")
    print(f"{folder / 'README.md'} says what it is, and how mlx-lm loads it")


# ---- sample ----------------------------------------------------------------------------------------------------------


def sample(
    text: str,
    attempt: str = "best",
    /,
    *,
    tokens: PositiveInt = 200,
    temperature: Annotated[float, Parameter(validator=Number(gte=0, lte=10))] = 0.8,
    seed: Seed | None = None,
) -> int:
    """Continue a text with the weights that a night kept, in the night's sandbox.

    The model has read little and knows nothing: look at its text to see what it has learnt. Ctrl-C ends it.

    Args:
        text: the beginning, which the model continues
        attempt: whose weights, as in 4, wide:4, wide:best (default: best)
        tokens: to add, at most (default: 200)
        temperature: how freely it draws; 0 takes the likeliest token each time (default: 0.8)
        seed: gives the same text again (default: another each time)
    """
    from agent.model.sampling import SampleRequest
    from agent.model.sampling import sample as continue_text

    if math.isnan(temperature):
        raise NightError("--temperature nan is no number from 0 to 10")
    place, record, chosen = attempt_meant(attempt)
    place.check_own(record.tag)
    weights = weights_of(place, record.tag, chosen.number)
    with Journal.read(place.journal(record.tag)) as journal:
        night, script = journal.night(), journal.attempt(chosen.number).proposal.script
    asked = SampleRequest(text, tokens, temperature, secrets.randbits(32) if seed is None else seed)
    waiting = Console(stderr=True).status(f"attempt {chosen.number} of night {night.tag} continues the text")
    try:
        with like_ctrl_c(), waiting:
            more = continue_text(night, place.folder(record.tag), script, weights.path, asked)
    except KeyboardInterrupt:
        return 130
    print(f"{harmless_lines(text)}{more}")
    return 0
