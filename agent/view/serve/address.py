"""Choose where the server listens, who may ask it, and the URL that opens the page."""

import errno
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import quote

from agent.errors import NightError
from agent.invocation import typed

LEAST_TOKEN_CHARS = 16  # of one that the user chose: 'secrets' makes 43
BACKLOG = 128
SOMEWHERE = ("192.0.2.1", 9)  # an address for documentation: choosing a route to it sends nothing


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens, and the token that requests need there; None: every request of this machine may ask."""

    host: str
    port: int
    token: str | None

    @property
    def hosts(self) -> frozenset[str] | None:
        """Return the Host headers that are answered; None: all of them, since the token protects.

        A page of a foreign site whose name leads to 127.0.0.1 (DNS rebinding) sends that name.
        """
        if not is_loopback(self.host):
            return None
        names = {"127.0.0.1", "localhost", "[::1]", self.host.lower()}
        return frozenset({*(f"{name}:{self.port}" for name in names), *(names if self.port == 80 else ())})

    @property
    def url(self) -> str:
        """Return the URL to open, with the token if there is one."""
        name = self.host
        if name in ("0.0.0.0", "::"):
            name = _address_on_the_network()
        shown = f"[{name}]" if ":" in name else name
        return f"http://{shown}:{self.port}/" + (f"?token={quote(self.token, safe='')}" if self.token else "")


def token_for(host: str, asked: str | None) -> str | None:
    """Return the token that requests need: the one asked for, or a fresh one where others can reach the address."""
    if asked is not None and len(asked) < LEAST_TOKEN_CHARS:
        raise NightError(
            f"a token of {len(asked)} characters can be guessed; give {LEAST_TOKEN_CHARS} or more, "
            f"or --host without --token for a random one"
        )
    if asked is not None and not (asked.isascii() and asked.isprintable()):
        raise NightError(f"a cookie cannot hold the token {asked!r}; give letters, digits and signs of ASCII alone")
    return asked if asked is not None or is_loopback(host) else secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free one. Raise NightError where the address cannot be had."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NightError(f"{host} is no address of this machine ({error}); leave out --host for 127.0.0.1") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else a restart waits for old connections
        listening.bind(where)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise NightError(_why_not(host, port, error)) from error
    return listening


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use by another program; take any free one with: {typed('serve', '--port', '0')}"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for the system; take any free one with: {typed('serve', '--port', '0')}"
    return f"cannot listen on {host} ({error.strerror}); leave out --host for 127.0.0.1"


def _address_on_the_network() -> str:
    """Return the address under which others see this machine; its name if it has no route to a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(SOMEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
