"""Limits on the connections of an instance to one broker; brokers enforce them and the control plane publishes them.

Operators may set other limits for a broker (`max.connections.per.instance`,
`max.connection.creation.rate.per.instance`).
"""

from __future__ import annotations

from typing import Final

CONNECTIONS_PER_INSTANCE_MAX: Final = 5_000
# Memory of responses that clients do not read; beyond, the connections that were idle longest are closed.
UNSENT_BYTES_PER_INSTANCE_MAX: Final = 16_777_216
UNSENT_BYTES_PER_TENANT_MAX: Final = 4 * UNSENT_BYTES_PER_INSTANCE_MAX
# All instances of a tenant together open connections at this part of the broker's rate at most.
CREATIONS_PER_TENANT_PART: Final = 0.5
CREATIONS_PER_INSTANCE_PER_S_MAX: Final = 500
# Memory of an instance's large requests while they are received; only its oldest request may exceed the maximum. The
# minimum is available regardless of other tenants, and fits a Produce of the largest message by default.
RECEIVED_BYTES_PER_INSTANCE_MAX: Final = 33_554_432
RECEIVED_BYTES_PER_TENANT_MAX: Final = 4 * RECEIVED_BYTES_PER_INSTANCE_MAX
RECEIVED_BYTES_PER_INSTANCE_MIN: Final = 2_097_152
# Time in which a client must send its first request.
FIRST_REQUEST_MS_MAX: Final = 60_000
# Time for the header of PROXY protocol version 2; HANDSHAKE_MS_MAX is the time for a TLS handshake.
PROXY_HEADER_MS_MAX: Final = 5_000
# Size of that header: the smallest maximum segment size of TCP.
PROXY_HEADER_BYTES_MAX: Final = 536
HANDSHAKE_MS_MAX: Final = 10_000
# TLS handshakes of one instance in progress; beyond, the oldest one of the address with the most is dropped.
HANDSHAKES_PER_INSTANCE_MAX: Final = 256
# TLS handshakes from one address (for IPv6, one /64 network); beyond, its oldest one is dropped.
HANDSHAKES_PER_ADDRESS_MAX: Final = 64
