"""Who may come in through one listener, and how: what the assembly makes of a route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext, SSLSocket
from typing import Final, Protocol

from brokers.engine.network.connection import Connection
from brokers.engine.network.interfaces import Session

# Whether an address, as the peer's text, is in a list.
Admits = Callable[[str], bool]
# Whoever understands the frames of one connection; plugged in by the assembly.
MakeSession = Callable[[Connection], Session]
# Who has come, by its certificate: makes the session of a connection in its name. Called in a thread, when a handshake
# is over. Raises ValueError: nobody who may come in.
Identify = Callable[[SSLSocket], MakeSession]
# Told of a handshake that failed: the client's address, and why.
NoteFailure = Callable[[str, Exception], object]
# How many connections a second may come from an address of a group's clients; None: as many as it likes.
RateOfAddress = Callable[[str, str], float | None]


class OnHeldBack(Protocol):
    """Called with a listener whose connections were refused, kept unread for `delay_ms` (`ADDRESS_RATE`), or not
    accepted for this time (cause None).
    """

    def __call__(self, listener: str, cause: str | None, delay_ms: int) -> object: ...


def unlimited(group: str, address: str) -> float | None:
    """The `RateOfAddress` that limits nobody."""
    return None


def unheard(listener: str, cause: str | None, delay_ms: int) -> None:
    """The `OnHeldBack` before the assembly has plugged one in."""


@dataclass(frozen=True, slots=True, eq=False)
class ListenerRules:
    """`admits` None: everybody may come. `proxies` speak PROXY protocol version 2 before anything else; None: nobody
    does. `tls` gives the context of the handshake that begins now; None: there is none. With `identify` it asks for a
    certificate of the client. `admits_plaintext`: whether a peer that begins without TLS may come in all the same;
    None: it is taken for a handshake that fails. `note_failure` hears of each that failed, beside the log.
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
