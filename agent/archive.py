"""Carry a night to another machine in one file, or pack it away to make room.

The file is a tar.gz of the night's folder and of a git bundle with its commits. Its first member, contents.json, says
what night it is, so that it can be listed without unpacking it. Packing

    writes the file aside → reads it back → gives it its name → with remove: renames the folder → deletes that

After each step the night is whole in its folder or in the file, and the next call goes on from there. Unpacking

    extracts aside → checks the journal, and takes out options that name programs → brings refs
    → gives the folder its name → writes its rows

A call that is killed is given again: until the folder has its name, the second one does all of it once more.

The file may be anybody's. It is extracted within a work folder, and its journal is checked before a record is believed.
Nothing that came in it runs outside of a sandbox: the fixed files are those installed here, or the night cannot go on,
and the options that name programs and servers have to be given again.
"""

import filecmp
import gzip
import json
import os
import re
import shutil
import sqlite3
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from agent.clock import hours_since
from agent.errors import NightError, RepoError
from agent.experiment import MEASURED, Night, Options, unpacked
from agent.files import check_plain, disk_fails, flush, ignore_all, naming, remove
from agent.git import COMMIT, is_of_night, read_bundle, refs_of_night, valid_tag, write_bundle
from agent.invocation import STARTER, typed_python
from agent.judging.judges import JUDGES
from agent.lab.corpus import DataError
from agent.lab.data import data_dir, load_data
from agent.lab.hardware import cache_root
from agent.records.journal import SCHEMA, Journal, check_format
from agent.records.options import OF_REPORTED, OF_THE_MODEL, SANDBOXES
from agent.records.place import UNPACKED, Place, new_id, read_night
from agent.records.results import write_results
from agent.records.shipped import is_measured, leaves
from agent.runs.fixed import digest, lay_out_fixed, names_in, protocol
from agent.sandbox.sandboxes import Open, choose
from agent.script.contract import PREPARE, check_script, fixed_files, modules_beside
from agent.text import harmless

FORMAT = 2
CONTENTS, FOLDER, BUNDLE = "contents.json", "night", "refs.bundle"  # names in the packed file
JOURNAL, FIXED, WARM = "journal.sqlite", "fixed", "warm"  # names in a night's folder
MANIFEST = "corpus.json"  # the manifest.json of the corpus, which stays behind
PROGRAM = "program.md"  # the one beside the script
MOST_MEMBERS, MOST_READ_BYTES = 400_000, 64 << 20
MOST_TEXT_CHARS = 100_000  # longest title, reason or log that is accepted; this program records much shorter ones
# options by which programs run, files are shown, or servers get keys
OUTSIDE = ("agent", "llm", *OF_THE_MODEL, "pool", "ray_address", *OF_REPORTED)
DAMAGED = (
    *(OSError, EOFError, ValueError, OverflowError, RecursionError),
    *(msgspec.MsgspecError, tarfile.TarError, zlib.error),
)
# Files that a kill or unpacking leaves, which say nothing; machine code, which the next machine compiles for itself.
STAYS_BEHIND = frozenset({"reserve", "journal.sqlite-shm", UNPACKED, WARM})
LEVEL = 1  # gzip; higher levels hardly shrink weights, and take minutes for each gigabyte
PIECE_BYTES = 1 << 20
MOST_HOLE_BYTES = 1 << 30  # a file system that compresses may leave out this much of a file
LeftOut = Callable[[PurePosixPath], bool]  # says whether a path in a night's folder stays behind
TIMES = ("began", "ended", "started", "called", "at")


@dataclass(frozen=True, slots=True)
class Contents:
    """Say what a packed night holds."""

    tag: str
    started: str
    summary: Mapping[str, Any]  # the facts that `nights` shows
    refs: Mapping[str, str]  # ref → commit
    format: int = FORMAT


@contextmanager
def work_folder(place: Place, file: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder beside the nights, or beside a file that is written.

    A call that was killed leaves it, and the next one empties it. It is removed in the end.
    """
    # the journal of a night in it is two folders down, where no night is looked for
    aside = _work_beside(file) if file else place.nights / ".packing"
    remove(aside)
    aside.mkdir(parents=True)
    try:
        yield aside
    finally:
        remove(aside)


def read_contents(file: Path) -> Contents:
    """Return what a packed night says of itself, from its first bytes; raise NightError where it is damaged."""
    with _opened(file) as (_, contents):
        return contents


class _Bounded(gzip.GzipFile):
    """Decompress a stream, and refuse a header of a tar file that claims gigabytes of memory."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MOST_READ_BYTES:
            raise ValueError(f"a part of it claims {size} bytes")
        return super().read(size)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[tarfile.TarFile, Contents]]:
    """Yield a file after its first member, and what that says; raise NightError where the file is damaged."""
    check_plain(file)  # a pipe could not be read twice
    try:
        with _Bounded(file, "rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            first = tar.next()
            text = tar.extractfile(first) if first is not None and first.isreg() and first.name == CONTENTS else None
            if text is None:
                raise ValueError("it does not begin with what it holds")
            contents = msgspec.json.decode(text.read(MOST_READ_BYTES), type=Contents)
            if contents.format != FORMAT:
                raise ValueError(f"its format is {contents.format}; this nightshift reads {FORMAT}")
            yield tar, contents
    except DAMAGED as error:
        if disk_fails(error):  # the disk fails here, not the packed file
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise NightError(f"{file} cannot be unpacked: {error.strerror}") from None
        raise NightError(f"{file} is damaged, or no packed night ({error}); put it back from a backup") from error


# ---- packing ---------------------------------------------------------------------------------------------------------


def pack(
    place: Place, tag: str, file: Path, summary: Mapping[str, Any], is_left_out: LeftOut, *, remove: bool = False
) -> Contents:
    """Write a night into a file; raise NightError for one that cannot be packed as it is.

    No night may be running. The file holds the summary as JSON.

    remove: also delete the night's folder. The file may then exist, if it holds this very night.
    """
    folder = place.folder(tag)
    night = read_night(place, tag).night
    written = file.with_name(f".{file.name}.nightshift-new")  # must be on the same disk
    _remove_left(file)
    _check_name(file, night, may_exist=remove)
    # the disk of the nights may be full, and a packed night is moved within it
    with work_folder(place, None if remove else file) as aside:
        entries = _entries(folder, is_left_out)
        members = {FOLDER: folder} | {f"{FOLDER}/{path}": folder / path for path in entries}
        # Another machine may lack these files.
        beside = {PROGRAM: place.script_path.parent / PROGRAM, MANIFEST: Path(night.data) / "manifest.json"}
        members |= {
            f"{FOLDER}/{name}": path for name, path in beside.items() if path.is_file() and not path.is_symlink()
        }
        refs = refs_of_night(place.repo, tag)
        if refs:
            # a file that stays beside its repository needs no copy of the history; a shallow clone has none to hand on
            is_shallow = place.repo.git("rev-parse", "--is-shallow-repository") == "true"
            write_bundle(place.repo, aside / BUNDLE, refs, night.base if remove or is_shallow else "")
            members[BUNDLE] = aside / BUNDLE
        contents = Contents(tag, night.started, summary, refs)
        try:
            with naming(file):
                _write(written, contents, members)
            if _entries(folder, is_left_out) != entries:
                raise NightError(f"{folder} changed while it was packed; end what writes there, and pack it again")
            written.replace(file)
        finally:
            written.unlink(missing_ok=True)
        flush(file.parent)
        if remove:
            folder.rename(aside / FOLDER)
    return contents


def _work_beside(file: Path) -> Path:
    return file.with_name(f".{file.name}.nightshift-work")


def _remove_left(file: Path) -> None:
    """Remove the work folder of a call that was killed when its file was whole: the next call will be refused."""
    remove(_work_beside(file))


def _check_name(file: Path, night: Night, *, may_exist: bool) -> None:
    """Raise NightError where the file cannot be written, or is there; may_exist: unless it holds this very night."""
    if not file.parent.is_dir():
        raise NightError(f"there is no folder {file.parent}; make it, or name another file")
    if (file.exists() or file.is_symlink()) and not (may_exist and read_contents(file).started == night.started):
        raise NightError(f"{file} is there already; name another file, or move it away")


def _entries(folder: Path, is_left_out: LeftOut) -> dict[str, tuple[int, int]]:
    """Return path → bytes and time of all files and folders to pack; raise NightError for what is neither.

    A script may have left anything in the folder of its run: it is named, and not packed. So is a file of terabytes
    that were never written.
    """
    entries, waiting = {}, [folder]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            inside, status = PurePosixPath(path.relative_to(folder)), path.lstat()
            if str(inside) in STAYS_BEHIND or is_left_out(inside):
                continue
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)
            elif not stat.S_ISREG(status.st_mode) or status.st_size - 512 * status.st_blocks > MOST_HOLE_BYTES:
                what = "has gigabytes that were never written" if stat.S_ISREG(status.st_mode) else "is no plain file"
                name = harmless(str(path))
                raise NightError(f"{name} {what}; a script left it: look at it, delete it, and pack again")
            entries[str(inside)] = status.st_size, status.st_mtime_ns
    return entries


def _write(file: Path, contents: Contents, members: Mapping[str, Path]) -> None:
    """Write the file, flush it to the disk, and read it back to the checksum at its end."""
    with file.open("wb") as raw:
        with gzip.open(raw, "wb", LEVEL) as packed, tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
            text = msgspec.json.encode(contents)
            first = tarfile.TarInfo(CONTENTS)
            first.size = len(text)
            tar.addfile(first, BytesIO(text))
            for name, path in members.items():
                tar.add(path, name, recursive=False, filter=_nameless)
        raw.flush()
        os.fsync(raw.fileno())
    with gzip.open(file) as packed:
        while packed.read(PIECE_BYTES):
            pass


def _nameless(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Take the user's name out of a member."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


# ---- unpacking -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A night that was unpacked, and what has changed by it."""

    night: Night  # the night's facts on this machine
    asked_again: Mapping[str, object]  # options that were left out, and have to be given again
    obstacle: str | None  # why the night can be read here, but cannot go on
    notes: tuple[str, ...]  # about its refs, its program.md and its corpus


def unpack(place: Place, file: Path) -> Unpacked:
    """Put a packed night beside the others; raise NightError where it is damaged, hostile or would overwrite anything.

    The file stays.
    """
    contents = read_contents(file)
    if not valid_tag(contents.tag):
        raise NightError(f"{file} holds a night whose tag is {contents.tag!r}; do not use it")
    with work_folder(place) as aside:
        _check_new(place, contents, file)
        _extract(file, aside)
        night = _settled_in(place, contents, file, aside)
        ignore_all(place.nights)
        (aside / FOLDER / UNPACKED).touch()
        (aside / FOLDER).rename(place.folder(contents.tag))
        flush(place.nights)
        write_results(place)
    return night


def _extract(file: Path, aside: Path) -> None:
    """Extract files and folders within a folder, as far as the disk has room for them."""
    free = room = shutil.disk_usage(aside).free
    with _opened(file) as (tar, _):
        for _ in range(MOST_MEMBERS):
            member = tar.next()
            if member is None:
                break
            if not (member.isdir() or member.isreg()) or member.issparse() or member.size < 0:
                raise ValueError(f"{member.name!r} in it is no plain file")
            if member.name not in (FOLDER, BUNDLE) and not member.name.startswith(f"{FOLDER}/"):
                raise ValueError(f"{member.name!r} in it is no part of a night")  # such as FIXED, beside the folder
            if ".." in member.name.split("/"):
                raise ValueError(f"{member.name!r} in it would be outside the destination")
            room -= member.size
            if room < 0:
                raise NightError(f"{file} holds more than the {free / 1e9:.2f} GB that are free here; free some")
            to, content = aside / member.name, tar.extractfile(member)  # Python 3.11.3 knows no safe tar.extract()
            (to if content is None else to.parent).mkdir(parents=True, exist_ok=True)
            if content is not None:
                with to.open("wb") as copy:
                    shutil.copyfileobj(content, copy)
            tar.members.clear()  # type: ignore[attr-defined]  # else it remembers each
        else:
            raise ValueError(f"it has more than {MOST_MEMBERS:,} files")
        while tar.fileobj is not None and tar.fileobj.read(MOST_READ_BYTES):  # up to the checksum at its end
            pass


# ---- what is here already --------------------------------------------------------------------------------------------


def _check_new(place: Place, contents: Contents, file: Path) -> None:
    """Raise NightError where unpacking would overwrite something, or set a ref that is not the night's."""
    tag, folder, packed_away = contents.tag, place.folder(contents.tag), place.packed(contents.tag)
    for ref, sha in contents.refs.items():
        if not is_of_night(ref, tag) or not COMMIT.fullmatch(sha):
            raise NightError(
                f"{file} would set {harmless(ref)} to {harmless(sha)}, which is not the night's; do not use it"
            )
    place.check_own(tag)
    if folder.exists():
        if place.journal(tag).exists():
            write_results(place)  # a call that was killed may have left it to do
        raise NightError(f"{folder} is there already; move it away to unpack {file}")
    if packed_away.exists() and packed_away.resolve() != file.resolve():
        raise NightError(f"a night {tag} is packed away in {packed_away}; move it away to unpack {file}")
    for ref, sha in refs_of_night(place.repo, tag).items():
        if contents.refs.get(ref) != sha:
            raise NightError(
                f"{ref} leads to {sha[:7]} here, which is not the night's in {file}; unpack it in another clone, or "
                f"delete each such ref: git update-ref -d {ref}"
            )


# ---- settling in -----------------------------------------------------------------------------------------------------


def _settled_in(place: Place, contents: Contents, file: Path, aside: Path) -> Unpacked:
    """Check an extracted night, make it one that can go on here, and bring its refs."""
    folder, notes = aside / FOLDER, []
    check_passive(folder / JOURNAL, file)
    with Journal.resume(folder / JOURNAL) as journal:
        check_records(journal, file)
        night = journal.night()
        if (night.tag, night.started) != (contents.tag, contents.started):
            raise NightError(f"the journal in {file} is that of another night; put it back from a backup")
        first_script = next((attempt.proposal.script for attempt in journal.attempts()), None)
        unlike = _install_fixed(place, night, first_script, aside)
        home = at_home(night)
        options, asked_again, obstacle = _options_here(night.options)
        # The night may go on in its old place, too: with ids of their own, each has its folder on a cluster's nodes.
        here = replace(home or night, options=options, id=new_id())
        journal.record_facts(id=here.id, data=here.data, pins=here.pins, options=here.options)
        journal.lose_runs()
    if unlike is not None:
        obstacle = f"its {unlike} is another than the one installed here, and none that came in the file runs"
    try:
        if contents.refs:
            read_bundle(place.repo, aside / BUNDLE, contents.refs)
    except RepoError as error:
        notes.append(f"its commits could not be brought back ({error}); the journal has its scripts")
        obstacle = obstacle or missing_base(place, night)
    brought, beside = folder / PROGRAM, place.script_path.parent / PROGRAM
    if brought.is_file() and not (beside.is_file() and filecmp.cmp(brought, beside, shallow=False)):
        program = place.folder(night.tag) / PROGRAM
        notes.append(f"{program} is the night's; the one beside the script is told to all who propose edits here")
    if home is None and obstacle is None:
        notes.append(missing_corpus(night, folder))
    return Unpacked(here, asked_again, obstacle, tuple(notes))


def _install_fixed(place: Place, night: Night, first_script: str | None, aside: Path) -> str | None:
    """Put the fixed files that are installed here in place of those that came; return the first that is not as pinned.

    By its checksums the night cannot go on then.
    """
    beside, is_scored = place.script_path.parent, night.options.metric is None
    if is_scored and not (beside / PREPARE).is_file():
        beside = STARTER
    if first_script is not None:
        check_script(first_script, place.script, modules_beside(beside) if is_scored else None)
    came, installed = aside / FOLDER / FIXED, aside / FIXED
    installed.mkdir()
    lay_out_fixed(beside, fixed_files(beside, first_script or "", is_scored=is_scored), installed)
    sums = {name: digest(installed / name) for name in names_in(installed)}
    pins = night.pins.get("fixed", {})
    unlike = min((name for name in pins.keys() | sums.keys() if pins.get(name) != sums.get(name)), default=None)
    remove(came)
    remove(aside / FOLDER / WARM)  # machine code that would compute the scores here
    installed.rename(came)
    return None if unlike is None else harmless(unlike)


def _options_here(options: Options) -> tuple[Options, dict[str, object], str | None]:
    """Return the options without those that reach outside, these, and why no sandbox works here; None: one does."""
    inside = replace(options, **{name: getattr(Options(), name) for name in OUTSIDE})
    asked_again = {name: getattr(options, name) for name in OUTSIDE if getattr(options, name) != getattr(inside, name)}
    sandbox = choose()
    if isinstance(sandbox, Open):
        return replace(inside, sandbox="require"), asked_again, f"there is {sandbox.name}"
    return replace(inside, sandbox=max(options.sandbox, "auto", key=SANDBOXES.index)), asked_again, None


# ---- the journal -----------------------------------------------------------------------------------------------------

TABLES = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"

# The fault of a journal → the rows that have it. A circle of parents would be followed forever.
WRONG_ROWS = {
    "lacks an attempt": """
        SELECT number FROM (SELECT number, row_number() OVER (ORDER BY number) - 1 AS place FROM attempts)
        WHERE number <> place""",
    "has an attempt that is made from a later one, or from none": """
        SELECT number FROM attempts
        WHERE (parent IS NULL) <> (number = 0) OR parent NOT BETWEEN 0 AND number - 1
            OR merges NOT BETWEEN 0 AND number - 1""",
    "tells of an attempt that it lacks": """
        SELECT attempt FROM (
            SELECT attempt FROM runs UNION SELECT attempt FROM decisions UNION SELECT best FROM confirmations
            UNION SELECT parent FROM ideas UNION SELECT attempt FROM ideas)
        WHERE attempt NOT IN (SELECT number FROM attempts)""",
}


def check_passive(journal: Path, file: Path) -> None:
    """Raise NightError for a journal with other tables than a night's: SQLite could compute in them without end."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(SCHEMA)
        ours = fresh.execute(TABLES).fetchall()
    try:
        with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            check_format(version, file)
            problem = "other tables than a night's"
            if database.execute(TABLES).fetchall() == ours:
                # the tables are strict, so this finds a text, such as a path, in a column of numbers
                (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise NightError(f"{file} holds no readable journal ({error}); put it back from a backup") from error
    if problem != "ok":
        raise NightError(f"the journal in {file} has {harmless(problem)}; do not use it")


def check_records(journal: Journal, file: Path) -> None:
    """Raise NightError for records that lead to another place than the night's own, or that nothing can compute with.

    They become paths, refs, arguments of git and lines of a terminal.
    """
    # scripts are measured before they are read
    why = next(chain(_wrong_facts(journal.night()), _wrong_rows(journal), _wrong_values(journal)), None)
    if why is not None:
        raise NightError(f"the journal in {file} {why}; do not use it")


def _wrong_facts(night: Night) -> Iterator[str]:
    script = Path(night.script)
    leaves = script.is_absolute() or ".." in script.parts or ".git" in night.script.casefold().split("/")
    is_fine = {
        "base": COMMIT.fullmatch(night.base) is not None,
        "branch": is_of_night(night.branch, night.tag) and night.branch.endswith(f"-{night.tag}"),
        "budget_s": 0 < night.budget_s < MEASURED[1],
        "protocol": re.fullmatch(r"[A-Za-z0-9_.+=-]*", night.protocol) is not None,  # a folder of a cluster's nodes
        "script": not leaves and harmless(night.script) == night.script,
    }
    for fact, fine in is_fine.items():
        if not fine:
            yield f"has {harmless(str(getattr(night, fact)))} as {fact}, which no night has"
    if night.options.judge not in JUDGES:
        yield f"names {harmless(night.options.judge)} as its judge, and there is no such judge here"


def _wrong_rows(journal: Journal) -> Iterator[str]:
    yield from (wrong for wrong, statement in WRONG_ROWS.items() if next(iter(journal.query(statement)), None))
    for (sha,) in journal.query('SELECT "commit" FROM attempts WHERE "commit" IS NOT NULL'):
        if not COMMIT.fullmatch(sha):
            yield f"has {harmless(sha)} as a commit, which is none"
    for (packed,) in journal.query("SELECT packed FROM scripts"):
        try:
            unpacked(packed)
        except ValueError as error:
            yield f"has a script that cannot be unpacked: {error}"


def _wrong_values(journal: Journal) -> Iterator[str]:
    """Read all records by their types, which raises NightError for a damaged one, and bound what is computed with."""
    attempts, ideas = journal.attempts(), journal.waiting_ideas()
    night = journal.night()
    records = (journal.confirmations(), journal.asks(), journal.work(), journal.noise(), night)
    for name, value in leaves(msgspec.to_builtins((attempts, ideas, *records))):
        if isinstance(value, str) and name != "packed" and len(value) > MOST_TEXT_CHARS:
            yield f"has {len(value):,} characters as {harmless(name)}"
        elif isinstance(value, str) and name in TIMES:
            try:
                hours_since(value)
            except (ValueError, TypeError):
                yield f"has {harmless(value)!r} in place of a time"
        elif isinstance(value, int | float) and not is_measured(name, value, night):
            yield f"has {value:g} as {harmless(name)}, which none can have"


# ---- what a night that was moved needs here --------------------------------------------------------------------------


def at_home(night: Night) -> Night | None:
    """Return the night with the folder of its corpus on this machine; None where it is not here."""
    if night.options.metric or (Path(night.data) / "manifest.json").is_file():
        return night
    selected = data_dir()
    here = sorted(manifest.parent for manifest in (cache_root() / "data").glob("*/manifest.json"))
    for folder in (*([selected] if selected is not None else ()), *here):
        with suppress(DataError, OSError):
            facts = {"fingerprint": load_data(folder, verify=False).fingerprint}
            then = {"device_kind": night.device_kind, "settings": night.protocol.partition("+")[2]}
            if protocol(facts | then, night.budget_s) == night.protocol:
                # the manifest also says where its text lay, so its checksum is taken here
                manifest = {"manifest.json": digest(folder / "manifest.json")}
                pins = {**night.pins, "corpus": {**night.pins.get("corpus", {}), **manifest}}
                return replace(night, data=str(folder), pins=pins)
    return None


def missing_base(place: Place, night: Night) -> str | None:
    """Return why a night can make no commits here; None if it can. A shallow clone packs no history."""
    if not night.base or place.repo.find(night.base) is not None:
        return None
    return f"commit {night.base[:7]}, from which it began, is not in this repository; unpack it in a clone that has it"


def missing_corpus(night: Night, folder: Path) -> str:
    """Return how to bring the corpus of a night to this machine."""
    prepared = ""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):  # a manifest from elsewhere
        facts = json.loads((folder / MANIFEST).read_bytes())
        again = typed_python(
            "prepare.py", "--dataset", str(facts["dataset"]), "--scale", str(facts["scale"]), "--use", "nowhere"
        )
        prepared = f"prepare it from the same text with {again}, or "
    return (
        f"the corpus of night {night.tag} is not on this machine: {prepared}copy {harmless(night.data)} from the "
        f"machine that it left into {cache_root() / 'data'}"
    )
