"""Cost of the protocol codec in microseconds per message: `python -m benchmarks.codec`.

Figures are CPU time, the best of several rounds. The handwritten Produce and Fetch codecs are measured beside the
compiled codec that they replace.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fast_codec_fetch import decode_fetch
from brokers.engine.protocol.fast_codec_fetch_response import encode_fetch_response
from brokers.engine.protocol.fast_codec_produce import decode_produce, encode_produce_response
from brokers.engine.protocol.headers import decode_request_header, encode_request_frame
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from brokers.engine.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ROUNDS = 15
RECORDS = bytes(16_384)


def microseconds(call: Callable[[], object], count: int = 5_000) -> float:
    """Returns the CPU time of one call in microseconds, the best of all rounds."""
    return min(timeit.repeat(call, timer=time.thread_time, number=count, repeat=ROUNDS)) / count * 1e6


def _print_cost(name: str, call: Callable[[], object], count: int = 5_000) -> None:
    print(f"{name:<58} {microseconds(call, count):8.2f} us")


def _measure_produce() -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=RECORDS)])],
    )
    for version in (7, 9):
        body = codec.encode_request(ApiKey.PRODUCE, version, request)
        frame = bytearray(encode_request_frame(ApiKey.PRODUCE, version, 5, "rdkafka", body))
        end = len(frame)
        _print_cost(f"request header, produce v{version}", lambda: decode_request_header(frame, 4, end))  # noqa: B023
        body_start = decode_request_header(frame, 4, end)[4]
        _print_cost(f"produce v{version} decode, by hand", lambda: decode_produce(frame, body_start, end, version))  # noqa: B023
        _print_cost(
            f"produce v{version} decode, compiled",
            lambda: codec.decode_request(ApiKey.PRODUCE, version, frame, body_start, end),  # noqa: B023
        )
        topics = [(b"orders", [(0, 0, 10**9, -1, 0, None)])]
        _print_cost(
            f"produce v{version} answer, by hand",
            lambda: encode_produce_response(version, 5, topics, 0),  # noqa: B023
        )
        _print_cost(
            f"produce v{version} answer, compiled, objects built",
            lambda: codec.encode_response(
                ApiKey.PRODUCE,
                version,  # noqa: B023
                ProduceResponse(
                    responses=[
                        TopicProduceResponse(
                            name="orders",
                            partition_responses=[PartitionProduceResponse(index=0, base_offset=10**9)],
                        )
                    ]
                ),
            ),
        )


def _measure_fetch() -> None:
    for version in (11, 12, 13, 17):
        for count in (1, 3):
            partitions = [
                FetchPartition(partition=index, fetch_offset=10**9, partition_max_bytes=1 << 20)
                for index in range(count)
            ]
            topic = FetchTopic(topic="orders", topic_id=bytes(range(16)), partitions=partitions)
            request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])
            body = codec.encode_request(ApiKey.FETCH, version, request)
            _print_cost(
                f"fetch v{version} decode, {count} partitions, by hand",
                lambda: decode_fetch(body, 0, len(body), version),  # noqa: B023
            )
            name = bytes(range(16)) if version >= 13 else b"orders"
            responses = [(index, 0, 10**9, 10**9, 0, 16_384, RECORDS) for index in range(count)]
            _print_cost(
                f"fetch v{version} answer, {count} partitions, by hand",
                lambda: encode_fetch_response(version, 5, 0, 0, 0, [(name, responses)]),  # noqa: B023
            )


def _measure_metadata() -> None:
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=index, host="127.0.0.1", port=9092) for index in range(3)],
        cluster_id="cluster",
        topics=[
            MetadataResponseTopic(
                name=f"topic-{topic}",
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=index, replica_nodes=[index], isr_nodes=[index]
                    )
                    for index in range(3)
                ],
            )
            for topic in range(200)
        ],
    )
    body = codec.encode_response(ApiKey.METADATA, 9, response)
    _print_cost("metadata v9 answer, 200 topics x 3", lambda: codec.encode_response(ApiKey.METADATA, 9, response), 20)
    _print_cost("metadata v9 read back", lambda: codec.decode_response(ApiKey.METADATA, 9, body), 20)


if __name__ == "__main__":
    _measure_produce()
    _measure_fetch()
    _measure_metadata()
