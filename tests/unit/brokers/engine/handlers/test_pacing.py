"""Default limits are paced, so that ten seconds show the same rate as a minute (decision 0040)."""

from __future__ import annotations

import pytest

from brokers.engine.handlers.produce import request
from brokers.engine.network.connection import Connection
from brokers.engine.network.receiving import Busy
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.native import finder
from quotas.pacing import BURST_MS
from tests.testkit.records import batch, fetch_request, produce_request, values
from tests.unit.brokers.engine.handlers.conftest import MINE, House


async def test_a_producer_waits_as_long_as_its_bytes_take(house: House) -> None:
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "1000"}, client_id=None)

    answer = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 5_000)))

    assert 4_800 < answer.throttle_time_ms < 5_200


async def test_a_fetch_brings_a_seconds_worth_and_the_next_one_waits_for_it(house: House) -> None:
    await house.topic()
    for _ in range(4):
        await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 5_000)))
    await house.broker.set_quota(MINE, {"consumer_byte_rate": "12000"}, client_id=None)

    first = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders"))
    second = await house.mine.call(ApiKey.FETCH, 12, fetch_request("orders", 2))

    assert (first.throttle_time_ms, len(values(first.responses[0].partitions[0].records))) == (0, 2)
    assert second.responses == []
    assert 500 < second.throttle_time_ms < 800


async def milliseconds_of_new_connections(house: House) -> int:
    """Returns the time that four produces take, of 500 ms of the client's quota each and on a new connection each."""
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "100000"}, client_id=None)
    monotonic_ms = house.broker.broker.clock.monotonic_ms
    began_ms = monotonic_ms()
    for _ in range(4):
        client = await house.broker.client(house.my_port)
        answer = await client.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 50_000)))
        assert answer.responses[0].partition_responses[0].error_code == 0
        await client.close()
    return monotonic_ms() - began_ms


async def test_a_debt_is_the_clients_and_not_its_connections(house: House) -> None:
    """Otherwise a client with a new connection for each request could produce without limit."""
    # The last one is admitted when the three before it are paid.
    assert 1_500 - BURST_MS - 50 <= await milliseconds_of_new_connections(house) < 2_500


async def test_old_clients_wait_for_what_their_instance_owes_as_well(house: House) -> None:
    await house.topic()
    await house.broker.update_instance(MINE, produce_bps=100_000)
    assert (await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 100_000)))).throttle_time_ms
    monotonic_ms = house.broker.broker.clock.monotonic_ms
    began_ms = monotonic_ms()

    client = await house.broker.client(house.my_port)
    answer = await client.call(ApiKey.PRODUCE, 2, produce_request("orders", batch(b"y")))

    assert answer.responses[0].partition_responses[0].error_code == 0
    assert monotonic_ms() - began_ms > 500


async def test_a_client_that_goes_while_it_waits_leaves_its_place_to_the_next(house: House) -> None:
    await house.topic()
    await house.broker.update_instance(MINE, produce_bps=50_000)
    await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 50_000)))
    leaves = [await house.broker.client(house.my_port) for _ in range(5)]
    for client in leaves:
        await client.send(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"y" * 50_000)))
    limiter = house.broker.broker.accountings.get_or_create(MINE).shares.produce
    assert limiter is not None
    await house.broker.until(lambda: limiter.debt_watcher is not None and len(limiter.debt_watcher) >= len(leaves))
    for client in leaves:
        await client.close()

    stays = await house.broker.client(house.my_port)
    answer = await stays.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"z")))

    assert answer.responses[0].partition_responses[0].base_offset == 1, "nothing of those that left was appended"


async def test_a_client_that_leaves_is_noticed_after_an_event_whose_bytes_were_already_read(house: House) -> None:
    """While an instance waits for the loop, an event may be handled after the turn that has read its bytes."""
    await house.topic()
    client = await house.broker.client(house.my_port)
    await client.send(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=60_000))
    group = house.broker.broker.listeners.group_of(MINE)
    assert group is not None

    def waiting() -> list[Connection]:
        every = [connection for listener in group.listeners for connection in listener.connections]
        return [connection for connection in every if isinstance(connection, Connection) and connection.busy]

    await house.broker.until(lambda: waiting())
    (connection,) = waiting()
    connection._stop_reading()
    connection._detect_peer_close()

    await client.close()

    await house.broker.until(lambda: connection.is_closed)


@pytest.mark.parametrize("was_kept", [True, False], ids=["its request was read before", "it is muted"])
async def test_a_client_that_leaves_is_noticed_after_the_turn_of_its_instance(house: House, was_kept: bool) -> None:
    """Reading stops while an instance queues; its turn may find a request that was read before, or a delay."""
    await house.topic()
    client = await house.broker.client(house.my_port)
    address = client.writer.get_extra_info("sockname")
    group = house.broker.broker.listeners.group_of(MINE)
    assert group is not None

    def connections() -> list[Connection]:
        every = [each for listener in group.listeners for each in listener.connections if isinstance(each, Connection)]
        return [connection for connection in every if connection._socket.getpeername() == address]

    await house.broker.until(lambda: connections())
    (connection,) = connections()
    connection._stop_reading()
    connection._busy |= Busy.QUEUED if was_kept else Busy.QUEUED | Busy.MUTED
    if was_kept:
        connection._is_resume_scheduled = True
        connection.inbound.set_pending(client.frame(ApiKey.FETCH, 12, fetch_request("orders", max_wait_ms=60_000)))

    connection.on_turn()
    assert connection.busy == (Busy.PROCESSING if was_kept else Busy.MUTED)
    await client.close()

    await house.broker.until(lambda: connection.is_closed)


async def test_a_raised_limit_ends_the_silence_of_those_who_wait(house: House) -> None:
    await house.topic()
    await house.broker.set_quota(MINE, {"producer_byte_rate": "1000"}, client_id="test")
    answer = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"x" * 30_000)))
    assert answer.throttle_time_ms > 25_000

    await house.broker.set_quota(MINE, {"producer_byte_rate": "1000000"}, client_id="test")
    second = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("orders", batch(b"z")))
    assert second.responses[0].partition_responses[0].error_code == 0


async def test_requests_to_a_broker_that_leads_nothing_are_charged(house: House) -> None:
    """The broker receives and rejects them: they use its network like accepted ones."""
    await house.broker.update_instance(MINE, produce_bps=100_000)
    first = await house.mine.call(ApiKey.PRODUCE, 9, produce_request("nowhere", batch(b"x" * 100_000)))
    assert first.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert first.throttle_time_ms > 700


@pytest.mark.skipif(finder.is_installed(), reason="compiled modules are patched by nobody")
async def test_without_asking_for_debts_new_connections_would_pass_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that `test_a_debt_is_the_clients_and_not_its_connections` fails without the check for debt."""
    monkeypatch.setattr(request, "find_longest_debt", lambda limiters, now_ms: None)
    assert await milliseconds_of_new_connections(house) < 1_000
