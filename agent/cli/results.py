"""The ledger as a table: nightshift results."""

from agent.cli.answer import Answer
from agent.cli.find import none_yet, place_meant
from agent.errors import NightError, NothingYet
from agent.invocation import typed
from agent.night.lock import is_held
from agent.records.results import COLUMNS, Row, number_of, read_rows, write_ledger
from agent.view import terminal
from agent.view.screen import print_lines, terminal_width

COUNTS = frozenset({"attempt", "seeds", "dawn_seeds"})
NUMBERS = COUNTS | {
    *("val_bpb", "val_bpb_std", "gain_bpb", "sure", "dawn_bpb", "holdout_bpb"),
    *("memory_gb", "tokens_M", "params_M", "train_s", "wall_s"),
}


def results(tag: str | None = None, /, *, all: bool = False) -> Answer:
    """Print the ledger as a table.

    Args:
        tag: this night only (default: the latest)
        all: every night, also those that came with the repository
    """
    place = place_meant(tag)
    if not is_held(place.repo.common_dir):
        write_ledger(place)  # a running night does so itself: an older rendering must not overwrite the newer
    tags, rows = place.tags(), read_rows(place.ledger)
    shown = None if all else tag or next(iter(tags[::-1]), None)
    rows = [row for row in rows if shown in (None, row.get("tag"))]
    if not rows:
        if tag is not None and tag not in tags:
            raise NightError(f"results.tsv has no night {tag}; see them all with: {typed('results', '--all')}")
        if not tags:
            raise none_yet(place, tag=shown, rows=[])
        raise NothingYet(f"no results yet; see: {typed('status')}, {typed('results', '--all')}", tag=shown, rows=[])
    facts = {"tag": shown, "rows": [typed_row(row) for row in rows]}
    return Answer(facts, lambda: print_lines(terminal.results_lines(rows, terminal_width())))


def typed_row(row: Row) -> dict[str, object]:
    """Return a row with numbers for its columns of numbers, and None for an empty cell.

    The reason of a crash may hold words of a scoring process, which authors of scripts must not read.
    """
    return {column: _value(column, row.get(column, "")) for column in COLUMNS if column != "reason"}


def _value(column: str, cell: str) -> str | float | None:
    if column not in NUMBERS:
        return cell or None
    number = number_of(cell)
    return int(number) if number is not None and column in COUNTS else number
