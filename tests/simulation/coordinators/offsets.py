"""Fetching of committed offsets."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.simulation.cluster.records import TOPIC
from tests.simulation.coordinators.clients import Machine
from tests.simulation.coordinators.group_promises import GroupPromises


async def fetch(machine: Machine, broker: int, group: str, index: int, *, is_stable: bool) -> tuple[int, int]:
    """Fetches one committed offset; returns (error code, position). Raises Gone."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(TOPIC, [index])], require_stable=is_stable, groups=[]
    )
    response = await machine.call(broker, ApiKey.OFFSET_FETCH, 7, request)
    if response.error_code:
        return response.error_code, -1
    partition = response.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


async def committed(
    machine: Machine, broker: int, group: str, index: int, promises: GroupPromises, *, is_stable: bool
) -> int | None:
    """Fetches and checks a committed position; returns None if the broker refuses. Raises Gone."""
    asked_us = machine.client_context.now_us
    code, position = await fetch(machine, broker, group, index, is_stable=is_stable)
    if code:
        assert code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ), f"{machine.name} asks what is committed: {ErrorCode(code).name}"
        return None
    now_us = machine.client_context.now_us
    promises.fetched((group, index), position, machine.name, asked_us, now_us, is_stable=is_stable)
    return position
