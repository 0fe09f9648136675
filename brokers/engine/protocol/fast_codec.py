"""Hand-written codecs of Produce and Fetch, gathered for import."""

from brokers.engine.protocol.fast_codec_fetch import FetchDecoder, FetchFrame, decode_fetch
from brokers.engine.protocol.fast_codec_fetch_response import (
    FetchExtras,
    FetchResponseEncoder,
    encode_fetch_response,
    encode_full_fetch_response,
    fetch_response_head,
)
from brokers.engine.protocol.fast_codec_produce import (
    ProduceDecoder,
    ProduceFrame,
    decode_produce,
    encode_produce_response,
    encode_produced_topics,
    produce_response_frame,
)

__all__ = [
    "FetchDecoder",
    "FetchExtras",
    "FetchFrame",
    "FetchResponseEncoder",
    "ProduceDecoder",
    "ProduceFrame",
    "decode_fetch",
    "decode_produce",
    "encode_fetch_response",
    "encode_full_fetch_response",
    "encode_produce_response",
    "encode_produced_topics",
    "fetch_response_head",
    "produce_response_frame",
]
