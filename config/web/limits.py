"""Limits of memory and time that a client can use of the web server."""

from __future__ import annotations

# Maximum request line of gunicorn; the longest group name, encoded as %XX, with a page token needs 6 kB.
REQUEST_LINE_BYTES_MAX = 8_190
# Request line and header fields together.
HEAD_BYTES_MAX = 32 * 1024
# Body of any request as sent, including chunk headers.
BODY_BYTES_MAX = 1024 * 1024
CHUNK_LINE_BYTES_MAX = 1024
TRAILER_BYTES_MAX = 8 * 1024
RECEIVE_BYTES = 64 * 1024
# Kernel receive buffer of a connection, which otherwise grows to megabytes.
KERNEL_RECEIVE_BYTES_MAX = 128 * 1024

# From the first byte of a request (on a new connection: from its start) to the end of its header.
HEAD_S_MAX = 10.0
# From the end of the header to the end of the body.
BODY_S_MAX = 30.0
# Idle time of a kept-alive connection.
IDLE_S_MAX = 30.0
# A request that waits longer for a thread is answered with 503.
QUEUED_S_MAX = 20.0
# Time for sending a response, extended by the bytes sent at the minimum rate, up to the maximum.
ANSWER_S = 30.0
ANSWER_BYTES_PER_S_MIN = 16 * 1024
ANSWER_S_MAX = 600.0
# Input after the last response is discarded for this time: closing immediately could lose the response.
LINGER_S_MAX = 2.0
LINGER_BYTES_MAX = 256 * 1024

CONNECTIONS_MAX = 1_000
CONNECTIONS_PER_ADDRESS_MAX = 100
# Bodies and responses buffered for all connections together.
BUFFERED_BYTES_MAX = 64 * 1024 * 1024
# A streamed response waits while more than this is unsent.
UNSENT_BYTES_MAX = 256 * 1024
# Maximum number of threads waiting for slow readers; a further such response is cut.
WAITING_STREAMS_MAX = 2
# Requests waiting for a thread of their lane: in total, and per client.
QUEUED_MAX = 400
QUEUED_PER_CLIENT_MAX = 60

assert BODY_BYTES_MAX > HEAD_BYTES_MAX >= REQUEST_LINE_BYTES_MAX
assert CONNECTIONS_PER_ADDRESS_MAX < CONNECTIONS_MAX
assert QUEUED_PER_CLIENT_MAX < QUEUED_MAX
assert ANSWER_S < ANSWER_S_MAX
