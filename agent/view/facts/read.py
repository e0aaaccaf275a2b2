"""Read the facts of a night: from its journal, else from its shipped record, else from its rows in results.tsv."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from agent.errors import NightError
from agent.files import read_end
from agent.git import valid_tag
from agent.proposers.briefing import Curve
from agent.records.journal import Journal
from agent.records.place import Place, run_folder
from agent.records.results import read_rows
from agent.records.shipped import DAMAGED, facts_of
from agent.text import harmless, shorten
from agent.view.facts.journal import of_journal
from agent.view.facts.nouns import NightFacts
from agent.view.facts.records import of_record, of_rows

MOST_POINTS = 300  # of a curve that is shown
LOG_LINES, LINE_CHARS = 60, 300  # of a log that is shown


def night_facts(place: Place, tag: str) -> NightFacts:
    """Return the facts of a night; raise NightError for a tag that nothing here knows."""
    is_name = valid_tag(tag)  # of a folder: exports and replays write to folders that are named after the night
    if is_name and place.journal(tag).exists():
        with Journal.read(place.journal(tag)) as journal:
            return of_journal(journal)
    rows = [row for row in read_rows(place.ledger) if row.get("tag") == tag] if is_name else []
    if is_name and (place.shipped / tag).is_dir():
        try:
            return of_record(place.shipped / tag)
        except DAMAGED as error:
            if not rows:
                raise NightError(
                    f"{place.shipped / tag} is damaged ({error}); write it again with nightshift export record"
                ) from error
    if rows:
        return of_rows(tag, rows)
    raise NightError(f"no night {tag} is known here; there are: {', '.join(known_tags(place)) or 'none'}")


def known_tags(place: Place) -> tuple[str, ...]:
    """Return the tags of all nights with a journal, a shipped record or rows in results.tsv, oldest first.

    A record or row from elsewhere may have any text as its tag; only those that night_facts reads are returned.
    """
    started: dict[str, str] = {}
    for row in read_rows(place.ledger):
        if tag := row.get("tag"):
            began = row.get("started", "")
            started[tag] = min(started.get(tag, began), began)
    for folder in place.shipped.glob("*/"):
        with suppress(*DAMAGED):
            started[folder.name] = facts_of(folder).night.started
    for path in place.nights.glob("*/journal.sqlite"):
        with suppress(NightError), Journal.read(path) as journal:
            started[path.parent.name] = journal.night().started
    return tuple(sorted(filter(valid_tag, started), key=lambda tag: (started[tag], tag)))


def curve(place: Place, tag: str, number: int, seed: int, most: int = MOST_POINTS) -> Curve:
    """Return fraction of the budget and training loss of a run, thinned; empty where its log is gone."""
    from agent.judging.early_stop import points_of
    from agent.runs.outputs import METRICS, METRICS_BYTES

    if not valid_tag(tag):
        return ()
    try:
        points = points_of(read_end(run_folder(place.folder(tag), number, seed) / "out", METRICS, METRICS_BYTES))
    except OSError:
        return ()
    return thinned(points, most)


def thinned(points: Sequence[tuple[float, float]], most: int) -> Curve:
    """Return a curve as the means of at most so many equal parts of the budget, where it has more points."""
    if len(points) <= most:
        return tuple(points)
    parts: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for point in points:
        parts[min(int(point[0] * most), most - 1)].append(point)
    return tuple(tuple(map(statistics.fmean, zip(*part, strict=True))) for part in parts.values())  # type: ignore[misc]


def log_tail(
    place: Place, tag: str, number: int, seed: int, most_lines: int = LOG_LINES, *, scoring: bool = False
) -> str | None:
    """Return the last lines of a run's log; None where the file is gone.

    A script writes it. So it is read as bytes, up to a limit, from a plain file only, and shown as text.
    """
    from agent.sandbox.process import LOG

    folder, most_bytes = run_folder(place.folder(tag), number, seed), most_lines * LINE_CHARS
    try:
        said = read_end(folder.with_name(f"{folder.name}.score") if scoring else folder, LOG, most_bytes)
    except OSError:
        return None
    text = said.replace(b"\0", b"").decode(errors="backslashreplace")
    lines = text.splitlines()[1 if len(said) == most_bytes else 0 :]  # the first is a part of a line
    return "\n".join(shorten(harmless(line), LINE_CHARS) for line in lines[-most_lines:])
