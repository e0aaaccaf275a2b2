"""Find a user's key in a text that will be kept, in any spelling that a server, an agent or a script may use."""

import html
import os
import re
import unicodedata
from base64 import b32encode, b64encode
from codecs import encode
from collections.abc import Iterator, Mapping

from agent.errors import NightError

# names of variables; TOKENIZERS_PARALLELISM is no key
NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?(?![A-Z])", re.IGNORECASE)
LIKELY = re.compile(r"\bsk-[\w-]{16,}")  # the form of providers' keys
# Local servers ask for a word such as ollama, not-needed or 12345678, which any answer may hold.
SECRET = re.compile(r"(?=.*\d)(?=.*[a-z]).{8,}|(?!(.)\1*$).{16,}")
HALVED = 32  # characters: half of a key that is as long is found, too, as where a line break divides it
ESCAPE = re.compile(r"(?:\\x|%|0x|\\u\{)([0-9a-f]{2})\}?|\\u(?:0000)?([0-9a-f]{4})", re.IGNORECASE)


def names_key(variable: str) -> bool:
    """Return whether the variable of this name holds a key, by its name."""
    return NAME.search(variable) is not None


def keys_in(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variable → key, of those that are named like a key, or look like one, and are long enough for one."""
    named = {name: value for name, value in environ.items() if names_key(name) or LIKELY.search(value)}
    return {name: value for name, value in named.items() if SECRET.fullmatch(_letters(value))}


def check_without_keys(what: str, *texts: str) -> None:
    """Raise NightError where a proposer's texts hold a key of this environment; what: the subject of the sentence."""
    text = "\n".join(texts)
    for name, key in keys_in(os.environ).items():
        if holds_key(text, key):
            raise NightError(f"{what} holds the key in {name}, which journal and commits would keep; take it out")


def holds_key(text: str, *keys: str) -> bool:
    """Return whether a text holds one of the keys: as it is, reversed, by rot13, in base64, base32 or numbers.

    Letter case and escapes make no difference, nor do blanks, quotes, invisible characters and other signs inside it.
    Words that are too short for a key are none.
    """
    secret = [key for key in keys if SECRET.fullmatch(_letters(key))]
    spellings = {_letters(spelling) for key in secret for part in _parts(key) for spelling in _spellings(part)}
    unescaped = ESCAPE.sub(_unescaped, html.unescape(text)) if spellings else ""
    views = (_letters(text), _letters(unescaped), re.sub(r"[^0-9]", "", text))
    return any(spelling in seen for view in views for seen in (view, view[::-1]) for spelling in spellings)


def hidden(text: str, *keys: str) -> str:
    """Return a message with dots in place of keys; return nothing of it if it holds a key in another spelling."""
    for key in filter(None, keys):
        text = text.replace(key, "…")
    return "a message that holds a key" if holds_key(text, *keys) else LIKELY.sub("…", text)


def _letters(text: str) -> str:
    return re.sub(r"[^0-9a-z]", "", unicodedata.normalize("NFKD", text).casefold())


def _unescaped(code: re.Match[str]) -> str:
    return chr(int(code[1] or code[2], 16))


def _parts(key: str) -> tuple[str, ...]:
    """Return what gives a key away: the whole, or its first or last half."""
    half = len(key) // 2
    return (key,) if len(key) < HALVED else (key[:half], key[-half:])


def _spellings(part: str) -> Iterator[str]:
    for text in (part, part[::-1], encode(part, "rot13")):
        content = text.encode()
        yield text
        for form in ("02x", "d", "o", "08b"):
            yield "".join(format(byte, form) for byte in content)
        for encoded, bits in ((b64encode, 6), (b32encode, 5)):
            for before in range(bits):  # bytes before the key; only whole digits are its own
                digits = encoded(bytes(before) + content).decode()
                yield digits[-(-8 * before // bits) : 8 * (before + len(content)) // bits]
