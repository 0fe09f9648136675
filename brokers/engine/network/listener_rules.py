"""Rules of one listener: the clients that it accepts, and how. The assembly derives them from a route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext, SSLSocket
from typing import Final, Protocol

from brokers.engine.network.connection import Connection
from brokers.engine.network.interfaces import Session

# Returns True if an address, as text, is in a list.
Admits = Callable[[str], bool]
# Creates the session that processes the frames of one connection; set by the assembly.
MakeSession = Callable[[Connection], Session]
# Identifies a client by its certificate; returns the function that creates its session. Called in a thread after the
# handshake. Raises ValueError if the client is not accepted.
Identify = Callable[[SSLSocket], MakeSession]
# Is called for a failed handshake with the client's address and the error.
NoteFailure = Callable[[str, Exception], object]
# Returns the limit of new connections per second from an address of a group's clients; None without a limit.
RateOfAddress = Callable[[str, str], float | None]


class OnHeldBack(Protocol):
    """Called with a listener whose connections were refused, kept unread for `delay_ms` (`ADDRESS_RATE`), or not
    accepted for this time (without a cause).
    """

    def __call__(self, listener: str, cause: str | None, delay_ms: int) -> object: ...


def unlimited(group: str, address: str) -> float | None:
    """Returns no limit, as a `RateOfAddress`."""
    return None


def unheard(listener: str, cause: str | None, delay_ms: int) -> None:
    """Does nothing, as the `OnHeldBack` before the assembly sets one."""


@dataclass(frozen=True, slots=True, eq=False)
class ListenerRules:
    """Rules of one listener. `admits` None accepts every client. `proxies` send PROXY protocol version 2 first; None
    expects no proxy. `tls` returns the context of a new handshake; None is without TLS. With `identify` the handshake
    asks for a client certificate. `admits_plaintext` accepts peers that begin without TLS; without it they fail the
    handshake. `note_failure` is called for each failed handshake, in addition to the log.
    """

    admits: Admits | None = None
    proxies: Admits | None = None
    connections_max: int | None = None
    tls: Callable[[], SSLContext] | None = None
    admits_plaintext: Callable[[], bool] | None = None
    identify: Identify | None = None
    note_failure: NoteFailure | None = None

    def is_admitted(self, address: str) -> bool:
        return self.admits is None or self.admits(address)

    def is_proxy(self, address: str) -> bool:
        return self.proxies is not None and self.proxies(address)


OPEN_TO_ALL: Final = ListenerRules()
