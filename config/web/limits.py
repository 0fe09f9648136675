"""What one client may make the web server hold, and for how long."""

from __future__ import annotations

# A request line as gunicorn takes it at most; the longest name of a group, as %XX, and a page token need 6 kB.
REQUEST_LINE_BYTES_MAX = 8_190
# Request line and header fields together.
HEAD_BYTES_MAX = 32 * 1024
# Of any request, as sent: what a chunked body says of its chunks counts as well.
BODY_BYTES_MAX = 1024 * 1024
CHUNK_LINE_BYTES_MAX = 1024
TRAILER_BYTES_MAX = 8 * 1024
RECEIVE_BYTES = 64 * 1024
# Of a connection, that the kernel takes before the server reads it. Left to itself it takes megabytes.
KERNEL_RECEIVE_BYTES_MAX = 128 * 1024

# From the first byte of a request (on a new connection: from its beginning) to the end of its header.
HEAD_S_MAX = 10.0
# From the end of the header to the end of the body.
BODY_S_MAX = 30.0
# A connection that is kept open for another request.
IDLE_S_MAX = 30.0
# A request that waits for a thread is answered 503 afterwards.
QUEUED_S_MAX = 20.0
# An answer may take this long, and longer by what was taken of it at the lowest rate; not longer than the last.
ANSWER_S = 30.0
ANSWER_BYTES_PER_S_MIN = 16 * 1024
ANSWER_S_MAX = 600.0
# After an answer that ends a connection, what still comes is thrown away: closing at once would lose the answer.
LINGER_S_MAX = 2.0
LINGER_BYTES_MAX = 256 * 1024

CONNECTIONS_MAX = 1_000
CONNECTIONS_PER_ADDRESS_MAX = 100
# Bodies and answers that are held for clients, all connections together.
HELD_BYTES_MAX = 64 * 1024 * 1024
# An answer that is made piece by piece waits while more than this is not sent.
UNSENT_BYTES_MAX = 256 * 1024
# Threads that wait for slow readers at a time; one more such answer is cut.
WAITING_STREAMS_MAX = 2
# Requests that wait for a thread of their lane: all of them, and those of one client.
QUEUED_MAX = 400
QUEUED_PER_CLIENT_MAX = 60

assert BODY_BYTES_MAX > HEAD_BYTES_MAX >= REQUEST_LINE_BYTES_MAX
assert CONNECTIONS_PER_ADDRESS_MAX < CONNECTIONS_MAX
assert QUEUED_PER_CLIENT_MAX < QUEUED_MAX
assert ANSWER_S < ANSWER_S_MAX
