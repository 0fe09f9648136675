"""Who may come in through one listener, and how: what the assembly makes of a route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final

# Whether an address, as the peer's text, is in a list.
Admits = Callable[[str], bool]


@dataclass(frozen=True, slots=True, eq=False)
class ListenerRules:
    """`admits` None: everybody may come. `proxies` speak PROXY protocol version 2 before anything else; None: nobody
    does. `tls` gives the context of the handshake that begins now; None: there is none.
    """

    admits: Admits | None = None
    proxies: Admits | None = None
    connections_max: int | None = None
    tls: Callable[[], SSLContext] | None = None

    def is_admitted(self, address: str) -> bool:
        return self.admits is None or self.admits(address)

    def is_proxy(self, address: str) -> bool:
        return self.proxies is not None and self.proxies(address)


OPEN_TO_ALL: Final = ListenerRules()
