"""How many connections an instance may have to one broker: what brokers enforce and the control plane publishes. An
operator may set others for a broker (`max.connections.per.instance`, `max.connection.creation.rate.per.instance`).
"""

from __future__ import annotations

from typing import Final

CONNECTIONS_PER_INSTANCE_MAX: Final = 5_000
CREATIONS_PER_INSTANCE_PER_S_MAX: Final = 500
# A client that never sent a request.
FIRST_REQUEST_MS_MAX: Final = 60_000
# Before the first request: a load balancer's header of PROXY protocol version 2, and a TLS handshake.
PROXY_HEADER_MS_MAX: Final = 5_000
# The least that one TCP segment carries.
PROXY_HEADER_BYTES_MAX: Final = 536
HANDSHAKE_MS_MAX: Final = 10_000
# Begun and not over, of one instance; beyond, the one that waited longest for its peer is dropped.
HANDSHAKES_PER_INSTANCE_MAX: Final = 256
