"""The attempts of nights for other programs, and the record of a night that can be committed: nightshift export."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from agent.cli.find import known_tag, none_yet, place_meant, record_of
from agent.errors import NightError, NothingYet
from agent.records.place import Place
from agent.records.reading import known_tags
from agent.records.record import Record
from agent.records.shipped import ship
from agent.text import counted
from agent.view.tables import attempts, write
from agent.view.trackio import write_trackio


def export(
    format: Literal["csv", "parquet", "jsonl", "trackio", "record"],
    /,
    *tag: str,
    all: bool = False,
    out: Path | None = None,
) -> None:
    """Write the attempts of nights for other programs, one row an attempt with all its facts, or a night's record.

    csv, parquet, jsonl: one file, with the runs and decisions of an attempt in its row; trackio: a folder with the
    curves, dials and scores of each attempt. An earlier export of the same name is replaced.

    record: the night as small text files that can be committed: its facts, its attempts without their scripts, its best
    script's diff, dawn's findings. Later nights learn from the records in experiments/shipped/.

    Args:
        format: csv, parquet, jsonl, trackio or record
        tag: these nights (default: the latest)
        all: every night, also those that came with the repository
        out: the file, or for trackio and record the folder (default: named after the night, here; of a record
            experiments/shipped/TAG, or an earlier record of this night)
    """
    place = place_meant(tag[0] if len(tag) == 1 else None)
    if format == "record":
        if all or len(tag) > 1:
            raise NightError("a record is of one night; name one TAG")
        night = known_tag(place, *(tag or (None,)))
        for path in ship(place, night, out or place.shipped / night):
            print(f"wrote {path}: {path.stat().st_size:,} bytes")
        return
    if all and tag:
        raise NightError(f"--all are all nights; leave {' '.join(tag)} out, or --all")
    nights = _nights(place, known_tags(place) if all else tag, all=all)
    name = nights[0].tag if len(nights) == 1 else "nights"
    count = counted(sum(len(night.attempts) for night in nights), "attempt")
    written = f"{count} of {f'night {name}' if len(nights) == 1 else f'{len(nights)} nights'}"
    if format == "trackio":
        folder = out or Path(f"{name}-{format}")
        show = write_trackio(place, folder, nights)
        print(f"wrote {folder}: {written}; see it with: {show}")
        return
    file = out or Path(f"{name}.{format}")
    file = file / f"{name}.{format}" if file.is_dir() else file
    write(format, file, attempts(nights))
    print(f"wrote {file}: {written}")


def _nights(place: Place, tags: Sequence[str], *, all: bool) -> tuple[Record, ...]:
    """Return the nights that are meant, those with attempts; raise NightError where there are none."""
    if all and not tags:
        raise none_yet(place)
    read = [record_of(place, tag) for tag in dict.fromkeys(tags or (None,))]
    nights = tuple(night for night in read if night.attempts)
    if not nights:
        raise NothingYet(f"night {read[0].tag} has no attempt yet; export it once its first attempt has begun")
    return nights
