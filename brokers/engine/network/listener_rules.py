"""Rules of one listener: the clients that it accepts, and how. The assembly derives them from a route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext, SSLSocket
from typing import Final

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
OnHandshakeFailure = Callable[[str, Exception], object]


@dataclass(frozen=True, slots=True, eq=False)
class ListenerRules:
    """Rules of one listener.

    Attributes:
        admits: True for the addresses of accepted clients; None accepts every client.
        proxies: True for the addresses of proxies, which send PROXY protocol version 2 first; None expects no proxy.
        connections_max: Maximum number of open connections; None for no limit.
        tls: Returns the context of a new handshake; None for a listener without TLS.
        admits_plaintext: Returns True if peers may begin without TLS; None fails their handshake.
        identify: Identifies a client by its certificate, for which the handshake then asks.
        on_handshake_failure: Called for each failed handshake, in addition to the log.
    """

    admits: Admits | None = None
    proxies: Admits | None = None
    connections_max: int | None = None
    tls: Callable[[], SSLContext] | None = None
    admits_plaintext: Callable[[], bool] | None = None
    identify: Identify | None = None
    on_handshake_failure: OnHandshakeFailure | None = None

    def is_admitted(self, address: str) -> bool:
        return self.admits is None or self.admits(address)

    def is_proxy(self, address: str) -> bool:
        return self.proxies is not None and self.proxies(address)


OPEN_TO_ALL: Final = ListenerRules()
