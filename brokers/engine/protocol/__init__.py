"""The Kafka protocol without sockets: translation between bytes and typed messages (spec section A).

* `apis`: the table of calls and versions, and those that each listener advertises
* `framing`: sizes of frames;  `headers`: request and response headers
* `messages/`: the declaration of every message, with version ranges on its fields
* `codec`: decoders and encoders of requests and responses, compiled from the declarations on first use
* `fast_codec_produce`, `fast_codec_fetch` and their neighbours: hand-written codecs of Produce and Fetch, whose cost is
  paid for every batch
* `errors`: error codes, and `MalformedRequest`, the only exception that malformed bytes may raise
"""
