"""Parse which language model to ask, at which server and with which key; checked before a night begins."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agent.errors import NightError
from agent.text import SAID_CHARS, one_line

HOMES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
SPEC = re.compile(r"([a-z]+):([^\s@]\S*?)(?:@(https?://\S+))?")
EXAMPLES = "openai:gpt-5, anthropic:claude-sonnet-4-5 or openai:qwen3-coder@http://localhost:11434/v1"
NO_KEY = "none"  # SDKs require a key even if the server needs none
KEY_LIKE = re.compile(r"\b(sk|key)-[\w*.-]{6,}")  # as providers quote a wrong key, partly as asterisks


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Name a model, its server and the key."""

    provider: str
    model: str
    url: str
    key: str = field(default=NO_KEY, repr=False)
    key_withheld: bool = False  # there is a key, but plain http would show it to the network

    @classmethod
    def parse(cls, spec: str, url: str | None, environ: Mapping[str, str]) -> "Endpoint":
        """Parse PROVIDER:MODEL[@URL] and read the provider's key from the environment; `url` replaces the last part.

        Raise NightError for an invalid spec or URL, and for a missing key.
        """
        match = SPEC.fullmatch(spec.strip())
        if match is None or match[1] not in HOMES or not match[2].isprintable():
            raise NightError(f"{spec!r} names no language model; write PROVIDER:MODEL, as in {EXAMPLES}")
        provider, model, in_spec = match.groups()
        if re.search(r"@(localhost|[\w.-]+:\d+)", model):
            raise NightError(f"the URL in {spec!r} lacks its http:// or https://; write it as in {EXAMPLES}")
        if in_spec and url:
            raise NightError(f"{spec!r} holds a URL and --llm-url names {url}; give one of them")
        name = provider.upper()
        named = in_spec or url or environ.get(f"{name}_BASE_URL")
        key = environ.get(f"{name}_API_KEY", "").strip()
        if not (key.isascii() and key.isprintable()):
            raise NightError(f"{name}_API_KEY holds characters that no key has; copy the key into it once more")
        if not key and not named:
            raise NightError(f"{name}_API_KEY is not set; put your key into it, or name a server as in {EXAMPLES}")
        where = _checked(named) if named else HOMES[provider]
        withheld = bool(key) and _is_overheard(where)
        return cls(provider, model, where, NO_KEY if withheld or not key else key, withheld)

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def is_home(self) -> bool:
        """Return whether the server is the provider's own, not a compatible one."""
        return self.url == HOMES[self.provider]

    @property
    def warning(self) -> str | None:
        """Return a warning that the key will not be sent, or None; a server that needs it will refuse."""
        if not self.key_withheld:
            return None
        return (
            f"{self.key_variable} is not sent to {self.host}: plain http to another machine would show it to the "
            f"network; where the server asks for it, give an https:// URL"
        )

    @property
    def key_variable(self) -> str:
        return f"{self.provider.upper()}_API_KEY"

    def without_key(self, text: str, most_chars: int = SAID_CHARS) -> str:
        """Shorten a message of a server or an SDK to one line, and remove the key from it."""
        hidden = text.replace(self.key, "…") if self.key != NO_KEY else text
        return one_line(KEY_LIKE.sub("…", hidden), most_chars)


def _checked(url: str) -> str:
    """Return the URL; raise NightError if it is no base URL or holds a password, which would end up in logs."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if fits and (parts.username is not None or parts.password is not None):
        raise NightError(f"the URL of {parts.hostname} holds a password; put it into OPENAI_API_KEY instead")
    if not fits or parts.query or parts.fragment or not (url.isascii() and url.isprintable()):
        raise NightError(f"{url!r} is no base URL of a server; write it as in http://localhost:11434/v1")
    if parts.path.rstrip("/").endswith(("/completions", "/messages")):
        raise NightError(f"{url!r} names one method of a server; leave that away, as in http://localhost:11434/v1")
    return url


def _is_overheard(url: str) -> bool:
    """Return whether the URL means plain http to another machine, which others on the network can read."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "http" and not local
