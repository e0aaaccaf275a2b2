"""Use what a night has found elsewhere: nightshift export, and nightshift sample, which writes text with a model."""

import secrets
from pathlib import Path
from typing import Annotated, Literal

from agent.cli.find import BEST, attempt_meant, known_tag, place_meant, record_of
from agent.cli.options import PositiveInt, Seed, UserPath, read_by
from agent.lab.numbers import decimal
from agent.model import best_script, weights_of
from agent.night.lock import like_ctrl_c
from agent.records.place import Place, read_night
from agent.records.shipped import ship
from agent.view.screen import at_work, print_lines

# ---- export ----------------------------------------------------------------------------------------------------------


def export(format: Literal["mlx-lm", "record"], tag: str | None = None, /, *, out: UserPath | None = None) -> None:
    """Write the best model of a night, or a night's record.

    mlx-lm: a folder with the best script of a night, its weights, tokenizer and a card, which mlx-lm loads
    (docs/taking.md).

    record: the night as small text files that can be committed: its facts, its attempts without their scripts, its best
    script's diff, the confirmation's findings. Later nights learn from the records in experiments/shipped/.

    Args:
        format: mlx-lm or record
        tag: the night (default: the latest)
        out: the folder to write (default: TAG-mlx-lm, here; of a record experiments/shipped/TAG, or an earlier record
            of this night)
    """
    place = place_meant(tag)
    (_export_model if format == "mlx-lm" else _export_record)(place, tag, out)


def _export_record(place: Place, tag: str | None, out: Path | None) -> None:
    record = read_night(place, known_tag(place, tag))
    for path in ship(place.repo, record, out or place.shipped / record.tag):
        print_lines([f"wrote {path}: {path.stat().st_size:,} bytes"])


def _export_model(place: Place, tag: str | None, out: Path | None) -> None:
    from agent.model.folder import write_folder

    record = record_of(place, tag)
    attempt, _ = best_script(record)
    folder = out or Path(f"{record.tag}-mlx-lm")
    weights = weights_of(place, record, attempt)
    with at_work(f"writing the model of night {record.tag}"):
        write_folder(place, record, weights, folder)
    written = f"wrote {folder}: attempt {attempt.number} of night {record.tag}, seed {weights.run.seed}"
    print_lines([written, f"{folder / 'README.md'} says what it is, and how mlx-lm loads it"])


# ---- sample ----------------------------------------------------------------------------------------------------------


def sample(
    text: str,
    attempt: str = BEST,
    /,
    *,
    tokens: PositiveInt = 200,
    temperature: Annotated[float, read_by(decimal(0, 10))] = 0.8,
    seed: Seed | None = None,
) -> None:
    """Continue a text with the weights that a night kept, in the night's sandbox.

    The model has read little and knows nothing: look at its text to see what it has learnt. Ctrl-C ends it.

    Args:
        text: the beginning, which the model continues
        attempt: the attempt whose weights to use, as in 4, wide:4, wide:best (default: best)
        tokens: most tokens to add (default: 200)
        temperature: randomness of the draws; 0 always takes the likeliest token (default: 0.8)
        seed: a fixed seed gives the same text again (default: another each time)
    """
    from agent.model.sampling import sample as continue_text

    place, record, chosen = attempt_meant(attempt)
    place.check_own(record.tag)
    weights = weights_of(place, record, chosen)
    seed = secrets.randbits(32) if seed is None else seed
    with like_ctrl_c(), at_work("continuing the text"):
        more = continue_text(
            record.night, place.folder(record.tag), weights.attempt.proposal.script, weights.path, text,
            tokens=tokens, temperature=temperature, seed=seed,
        )  # fmt: skip
    print_lines([f"{text}{more}"])
