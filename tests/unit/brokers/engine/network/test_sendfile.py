"""File bytes sent to a consumer never pass through this process (EFF-4, WIRE-33)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokers.engine.network.sending import SENDFILE_BYTES_MIN
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, fetch, produce, values
from tests.testkit.wire import WireClient

INSTANCE, TOPIC = "ins-aaaaaaaa", "orders"
VALUES = [bytes([at]) * 100_000 for at in range(20)]


class Counter:
    """Counts the bytes of the topic's log that the kernel sent, and those that were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.read = 0
        self._sendfile, self._pread, self._preadv = os.sendfile, os.pread, os.preadv
        monkeypatch.setattr(os, "sendfile", self.sendfile)
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def sendfile(self, out_fd: int, in_fd: int, offset: int, count: int) -> int:
        sent = self._sendfile(out_fd, in_fd, offset, count)
        self.sent += sent
        return sent

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        data = self._pread(fd, count, offset)
        self.read += len(data)
        return data

    def preadv(self, fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        count = self._preadv(fd, buffers, offset, flags)
        self.read += count
        return count


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[WireClient]:
    async with InProcessBroker(tmp_path) as broker:
        client = await broker.client(await broker.create_instance(INSTANCE))
        await broker.create_topic(client, TOPIC, 1)
        for value in VALUES:
            assert (await produce(client, TOPIC, batch(value))).error_code == 0
        yield client


@pytest.mark.parametrize("version", [4, 12])
async def test_the_kernel_copies_the_records_of_a_fetch(
    client: WireClient, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)

    answer = await fetch(client, TOPIC, version=version, partition_max_bytes=10_000_000)

    assert values(answer.records) == VALUES
    assert counter.sent == len(answer.records)
    assert counter.read < SENDFILE_BYTES_MIN, "whether pages are in memory is asked with a byte of each piece"


async def test_a_small_answer_is_one_system_call_less(client: WireClient, monkeypatch: pytest.MonkeyPatch) -> None:
    small = batch(b"small")
    await produce(client, TOPIC, small)
    counter = Counter(monkeypatch)

    answer = await fetch(client, TOPIC, len(VALUES))

    assert values(answer.records) == [b"small"]
    assert (counter.sent, counter.read >= len(small)) == (0, True)


async def test_an_old_format_is_converted_and_so_it_is_read(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)

    answer = await fetch(client, TOPIC, version=2, partition_max_bytes=10_000_000)

    assert len(answer.records) > sum(map(len, VALUES))
    assert (counter.sent, counter.read >= sum(map(len, VALUES))) == (0, True)
