"""The Kafka protocol without a socket: bytes in, typed messages out, and back (spec section A).

* `apis`: which calls and versions exist, and which of them each listener advertises
* `framing`: cuts a byte stream into frames;  `headers`: what stands before a body
* `messages/`: every message declared once, with version ranges on its fields
* `codec`: `decode_request`, `encode_response` and their mirror images, compiled on first use from those declarations
* `fast_codec`: Produce and Fetch by hand, because every microsecond of theirs is paid per batch
* `errors`: error codes, and `MalformedRequest`, the only exception that bad bytes may cause
"""
