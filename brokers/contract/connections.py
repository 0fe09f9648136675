"""How many connections an instance may have to one broker: what brokers enforce and the control plane publishes. An
operator may set others for a broker (`max.connections.per.instance`, `max.connection.creation.rate.per.instance`).
"""

from __future__ import annotations

from typing import Final

CONNECTIONS_PER_INSTANCE_MAX: Final = 5_000
CREATIONS_PER_INSTANCE_PER_S_MAX: Final = 500
# Memory of large requests of an instance, as far as they have arrived: its oldest request may pass the first. It finds
# the second whatever others have: a Produce of the largest message by default.
RECEIVED_BYTES_PER_INSTANCE_MAX: Final = 33_554_432
RECEIVED_BYTES_PER_INSTANCE_MIN: Final = 2_097_152
# A client that never sent a request.
FIRST_REQUEST_MS_MAX: Final = 60_000
# Before the first request: a load balancer's header of PROXY protocol version 2, and a TLS handshake.
PROXY_HEADER_MS_MAX: Final = 5_000
# The least that one TCP segment carries.
PROXY_HEADER_BYTES_MAX: Final = 536
HANDSHAKE_MS_MAX: Final = 10_000
# Begun and not over, of one instance; beyond, the oldest one of the address that has most of them is dropped.
HANDSHAKES_PER_INSTANCE_MAX: Final = 256
# Of these, from one address (of IPv6, from one network of 64 bits); beyond, its oldest one is dropped.
HANDSHAKES_PER_ADDRESS_MAX: Final = 64
