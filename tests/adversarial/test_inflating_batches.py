"""Batches that inflate a thousandfold, from forty connections of one instance: its neighbour is served meanwhile."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from brokers.engine.protocol import codec, headers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from tests.adversarial.hostile import TOPIC, Neighbour, attack
from tests.testkit import depth
from tests.testkit.records import PRODUCE_VERSION, produce_request

INFLATED_BYTES: Final = 31 * 1024 * 1024
CONNECTIONS: Final = 40
ATTACK_S: Final = depth.number_from("PENSTOCK_ATTACK_SECONDS", short=3, long=10)
# For a machine with other work; on an idle one it is below 100 ms. When such batches were checked on the loop it was
# the whole time of the attack.
NEIGHBOUR_P99_MS_MAX: Final = 1_000.0


@pytest.mark.parametrize("codec_id", depth.day_share([GZIP, LZ4, ZSTD, SNAPPY], 4))
async def test_batches_that_inflate_to_much_leave_the_neighbour_served(
    hostile_port: int, neighbour_port: int, codec_id: int
) -> None:
    inflating_batch = bytes(build_batch([Record(0, None, bytes(INFLATED_BYTES))], codec=codec_id))
    body = codec.encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request(TOPIC, inflating_batch))
    frame = headers.encode_request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "hostile", body)
    neighbour, stop = Neighbour(neighbour_port, TOPIC), asyncio.Event()
    producing = asyncio.create_task(neighbour.produce_until(stop))
    answers = await attack(hostile_port, frame, connections=CONNECTIONS, seconds=ATTACK_S)
    stop.set()
    await producing
    print(f"{answers} of {len(frame)} bytes each, neighbour p99 {neighbour.percentile_ms(99):.1f} ms")
    assert answers and neighbour.errors == 0
    assert neighbour.percentile_ms(99) <= NEIGHBOUR_P99_MS_MAX
