"""Texts as a night holds them: scripts by their hashes and compressed, others as they are, or the way to have them."""

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent.errors import NightError

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Script:
    """Hold a script's text compressed, with its hash; equal texts give equal records."""

    sha256: str  # of the text, in hexadecimal
    held: bytes | Callable[[str], bytes] = field(compare=False, repr=False)  # packed, or a function of the hash for it
    fingerprint: str | None = field(default=None, compare=False)  # dials.normalised of it; None: look into the text

    @classmethod
    def of(cls, text: "str | Script", level: int = zlib.Z_DEFAULT_COMPRESSION) -> "Script":
        """Pack a text; level: how hard zlib tries."""
        if isinstance(text, Script):
            return text
        content = text.encode(errors="surrogatepass")
        return cls(hashlib.sha256(content).hexdigest(), zlib.compress(content, level))

    @property
    def packed(self) -> bytes:
        """Return the text, compressed by zlib."""
        return self.held if isinstance(self.held, bytes) else self.held(self.sha256)

    def __str__(self) -> str:
        """Return the text. Raises NightError where what a journal holds of it is damaged."""
        try:
            return zlib.decompress(self.packed).decode(errors="surrogatepass")
        except (zlib.error, UnicodeDecodeError, TypeError) as error:
            raise NightError(
                f"the script {self.sha256[:12]} in the journal is damaged ({error}); move the night's folder away to "
                f"go on without it"
            ) from error


class Packed:
    """Manage the field `script` of a record: set to a text or a Script, read as a text, and held compressed."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, record: object, owner: type | None = None) -> str:
        return str(self.held(record))

    def __set__(self, record: object, script: str | Script) -> None:
        self._slot.__set__(record, Script.of(script))

    def held(self, record: object) -> Script:
        held: Script = self._slot.__get__(record)
        return held


def holds_script(record: type[Record]) -> type[Record]:
    """Keep the field `script` of a dataclass with slots compressed; its constructor and its readers see a text."""
    setattr(record, "script", Packed(record.__dict__["script"]))  # noqa: B010
    return record


class HeldText:
    """Manage a field of a record that is set to a text, or to a function that returns it, and read as a text."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, record: object, owner: type | None = None) -> str:
        held = self.held(record)
        return held if isinstance(held, str) else held()

    def __set__(self, record: object, text: str | Callable[[], str]) -> None:
        self._slot.__set__(record, text)

    def held(self, record: object) -> str | Callable[[], str]:
        held: str | Callable[[], str] = self._slot.__get__(record)
        return held


def holds_text(name: str) -> Callable[[type[Record]], type[Record]]:
    """Let a field of a dataclass with slots be set to a function as well, which is called each time it is read."""

    def decorate(record: type[Record]) -> type[Record]:
        setattr(record, name, HeldText(record.__dict__[name]))
        return record

    return decorate


def unread(record: object, name: str) -> Any:
    """Return what a field holds: for a copy of the record, which need not read it."""
    held: HeldText = type(record).__dict__[name]
    return held.held(record)


def packed_of(record: object) -> Script:
    """Return what such a record holds."""
    held: Packed = type(record).__dict__["script"]
    return held.held(record)
