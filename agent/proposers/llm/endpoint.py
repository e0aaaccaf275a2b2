"""Parse which language model to ask, at which server and with which key; checked before a night begins."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import NightError
from agent.text import SAID_CHARS, one_line

HOMES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
# a model's name may hold an @, but no server without its http://
SPEC = re.compile(r"(openai|anthropic):((?!\S*@(?:localhost|[\w.-]+:\d))[!-?A-~][!-~]*?)(?:@(https?://\S+))?")
URL = re.compile(r"https?://(?:(?i:[a-z0-9_.-]+)|\[(?i:[0-9a-f:.]+)\])(?::[0-9]{1,5})?(?:/[!-\"$->@-~]*)?")
# another machine's plain http can be read by others on the network
LOCAL = re.compile(r"(?i)http://(?:(?:[a-z0-9_-]+\.)*localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]+)?(?:/.*)?")
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

    @classmethod
    def parse(cls, spec: str, environ: Mapping[str, str]) -> "Endpoint":
        """Parse PROVIDER:MODEL[@URL] and read the provider's key from the environment.

        Raise NightError for an invalid spec or URL, and for a missing key. A key that plain http to another machine
        would show to the network is left out.
        """
        match = SPEC.fullmatch(spec.strip())
        if match is None:
            raise NightError(f"{_hidden(spec)!r} names no language model; write PROVIDER:MODEL[@URL], as in {EXAMPLES}")
        provider, model, in_spec = match.groups()
        name = provider.upper()
        named = in_spec or environ.get(f"{name}_BASE_URL")
        key = environ.get(f"{name}_API_KEY", "").strip()
        if named and (URL.fullmatch(named) is None or named.rstrip("/").endswith(("/completions", "/messages"))):
            raise NightError(
                f"{_hidden(named)!r} is no base URL of a server, without a password or the name of a method; write it "
                f"as in http://localhost:11434/v1"
            )
        if not (key.isascii() and key.isprintable()):
            raise NightError(f"{name}_API_KEY holds characters that no key has; copy the key into it once more")
        if not key and not named:
            raise NightError(f"{name}_API_KEY is not set; put your key into it, or name a server as in {EXAMPLES}")
        where = named or HOMES[provider]
        is_shown = where.startswith("http:") and LOCAL.fullmatch(where) is None
        return cls(provider, model, where, NO_KEY if is_shown or not key else key)

    @property
    def is_home(self) -> bool:
        """Return whether the server is the provider's own, not a compatible one."""
        return self.url == HOMES[self.provider]

    @property
    def key_variable(self) -> str:
        return f"{self.provider.upper()}_API_KEY"

    def without_key(self, text: str, most_chars: int = SAID_CHARS) -> str:
        """Shorten a message of a server or an SDK to one line, and remove the key from it."""
        hidden = text.replace(self.key, "…") if self.key != NO_KEY else text
        return one_line(KEY_LIKE.sub("…", hidden), most_chars)


def _hidden(text: str) -> str:
    """Return what a person typed, without a password before the host, which would end up in logs."""
    return re.sub(r"//.*@", "//…@", text)
