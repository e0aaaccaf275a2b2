"""Use what a night has found elsewhere: nightshift export, and nightshift sample, which writes text with a model."""

import secrets
from pathlib import Path
from typing import Annotated, Literal

from agent.cli.find import BEST, attempt_meant, known_tag, none_yet, place_meant, record_of
from agent.cli.options import PositiveInt, Seed, UserPath, file_at, read_by
from agent.errors import NightError, NothingYet
from agent.lab.numbers import decimal
from agent.model import best_script, weights_of
from agent.night.lock import like_ctrl_c
from agent.records.place import Place, known_tags, read_night
from agent.records.shipped import ship
from agent.text import counted
from agent.view.screen import at_work, print_lines
from agent.view.tables import attempts, write

# ---- export ----------------------------------------------------------------------------------------------------------


def export(
    format: Literal["csv", "jsonl", "mlx-lm", "record"],
    /,
    *tag: str,
    all: bool = False,
    out: UserPath | None = None,
) -> None:
    """Write the attempts of nights for other programs, the best model of a night, or a night's record.

    csv, jsonl: one file, with the runs and decisions of an attempt in its row. An earlier export of the same name is
    replaced.

    mlx-lm: a folder with the best script of a night, its weights, tokenizer and a card, which mlx-lm loads
    (docs/taking.md).

    record: the night as small text files that can be committed: its facts, its attempts without their scripts, its best
    script's diff, the confirmation's findings. Later nights learn from the records in experiments/shipped/.

    Args:
        format: csv, jsonl, mlx-lm or record
        tag: these nights (default: the latest)
        all: every night, also those that came with the repository
        out: the file, or a folder for it; for mlx-lm and record the folder to write (default: named after the night,
            here; of a record experiments/shipped/TAG, or an earlier record of this night)
    """
    only_tag = tag[0] if len(tag) == 1 else None
    place = place_meant(only_tag)
    if all and tag:
        raise NightError(f"--all are all nights; leave {' '.join(tag)} out, or --all")
    if format in ("mlx-lm", "record") and (all or len(tag) > 1):
        raise NightError(f"{format} is of one night; name one TAG")
    if format == "mlx-lm":
        _export_model(place, only_tag, out)
    elif format == "record":
        _export_record(place, only_tag, out)
    else:
        _export_attempts(place, format, known_tags(place) if all else tag or (None,), out)


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


def _export_attempts(
    place: Place, format: Literal["csv", "jsonl"], tags: tuple[str | None, ...], out: Path | None
) -> None:
    if not tags:
        raise none_yet(place)
    read = [record_of(place, tag) for tag in dict.fromkeys(tags)]
    nights = tuple(night for night in read if night.attempts)
    if not nights:
        raise NothingYet(f"night {read[0].tag} has no attempt yet; export it once its first attempt has begun")
    name = nights[0].tag if len(nights) == 1 else "nights"
    count = counted(sum(len(night.attempts) for night in nights), "attempt")
    written = f"{count} of {f'night {name}' if len(nights) == 1 else f'{len(nights)} nights'}"
    file = file_at(out, Path(f"{name}.{format}"))
    with at_work(f"writing {written}"):
        write(format, file, attempts(nights))
    print_lines([f"wrote {file}: {written}"])


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
