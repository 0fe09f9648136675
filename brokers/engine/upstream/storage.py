"""Storage of instances on the upstream broker of a gateway: the sizes of all replicas there, by DescribeLogDirs, and
the bytes of records that were forwarded since.

The gateways of a cluster report it to their controller as brokers report their logs (`assembly.storage_capacity`), so
that a produce is refused when an instance has used up the storage that it bought.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog

from brokers.engine.capacity.room import StorageRoom, unbounded
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest
from brokers.engine.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.upstream.call import decode_long_response
from brokers.engine.upstream.connection import CLIENT_ID, UpstreamConnection, UpstreamLost
from instances import naming

log = structlog.get_logger(__name__)

MEASURE_INTERVAL_S: Final = 5.0
MEASURE_TIMEOUT_S: Final = 20.0
# Maximum size of the upstream's description: some 500,000 replicas.
LOG_DIRS_BYTES_MAX: Final = 33_554_432
# Versions of DescribeLogDirs that are sent. A refusal has an error code from version 3 on, and no directory before.
_VERSION_MIN, _VERSION_MAX = 1, 4
_ERROR_CODE_FROM: Final = 3

# Sizes of replicas in bytes, by instance, the tenant's name of the topic, and partition.
_Replicas = dict[str, dict[str, dict[int, int]]]


class SizesRefused(UpstreamLost):
    """The upstream does not tell the gateway's user the sizes of its logs."""


class UpstreamStorage:
    """Storage of instances on one upstream broker. `bytes_by_instance` has the last figures that were reported.

    `connect` opens a connection to the upstream broker.
    """

    def __init__(self, connect: Callable[[], Awaitable[UpstreamConnection]]) -> None:
        self._connect = connect
        # Returns the room of an instance; a gateway without a cluster limits no storage.
        self.room_of: Callable[[str], StorageRoom] = unbounded
        self._connection: UpstreamConnection | None = None
        self._measured_bytes: dict[str, int] = {}
        self._replicas: _Replicas = {}
        # Bytes of records forwarded since the last measurement began.
        self._forwarded_bytes: Counter[str] = Counter()
        self._is_failing = False
        # False until the upstream has answered once: an empty storage must not be reported before. If it refuses the
        # sizes, those of forwarded records are all that will be known.
        self.is_known = False
        self.bytes_by_instance: dict[str, int] = {}

    # -- records ------------------------------------------------------------------------------------------------------

    def spend(self, instance_id: str, size_bytes: int) -> tuple[int, str]:
        """Takes the bytes of a produce from the room of its instance. Returns error code and message of the refusal if
        they do not fit; else code 0.
        """
        room = self.room_of(instance_id)
        code = room.spend(size_bytes)
        if code:
            return code, room.refusal_message(code)
        self._forwarded_bytes[instance_id] += size_bytes
        return 0, ""

    # -- measurements -------------------------------------------------------------------------------------------------

    async def measure_upstream(self) -> None:
        """Measures the replicas on the upstream broker. If it fails, the previous figures and the bytes forwarded since
        then remain, so that the limit holds.
        """
        forwarded_bytes = self._forwarded_bytes.copy()
        try:
            async with asyncio.timeout(MEASURE_TIMEOUT_S):
                replicas = await self._request_sizes()
                measured_bytes = await _sum_by_instance(replicas)
        except (TimeoutError, UpstreamLost) as error:
            self.close()
            self.is_known = self.is_known or isinstance(error, SizesRefused)
            if not self._is_failing:
                self._is_failing = True
                log.warning("upstream_storage_unknown", reason=str(error) or "no answer in time")
            return
        self._is_failing = False
        self.is_known = True
        self._replicas = replicas
        self._measured_bytes = measured_bytes
        self._forwarded_bytes -= forwarded_bytes  # drops those that become 0

    def create_rooms(self, image: ClusterImage) -> None:
        """Creates the rooms of measured instances, without which they would not be reported."""
        for instance_id in self._measured_bytes:
            if instance_id in image.instances:
                self.room_of(instance_id)

    async def _request_sizes(self) -> _Replicas:
        """Returns the sizes of all replicas on the upstream broker. Raises SizesRefused and UpstreamLost."""
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = self._connection = await self._connect()
        api_key = ApiKey.DESCRIBE_LOG_DIRS
        low, high = connection.versions.get(api_key, (0, -1))
        version = min(high, _VERSION_MAX)
        if version < max(low, _VERSION_MIN):
            raise SizesRefused("the upstream does not serve DescribeLogDirs")
        body = encode_request(api_key, version, DescribeLogDirsRequest(topics=None))
        frame, start = await connection.exchange(api_key, version, CLIENT_ID, body, bytes_max=LOG_DIRS_BYTES_MAX)
        try:
            response = await decode_long_response(api_key, version, frame, start)
        except MalformedRequest as error:
            raise UpstreamLost("the upstream sent a malformed response") from error
        if response.error_code or (version < _ERROR_CODE_FROM and not response.results):
            code = response.error_code or int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            raise SizesRefused(f"the upstream refused DescribeLogDirs (error {code}): it needs DESCRIBE on the cluster")
        return await _replicas_of(response)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- figures of instances, for `StorageCapacity` -------------------------------------------------------------------

    async def measure(self, instance_ids: Iterable[str]) -> dict[str, int]:
        return {instance_id: self.measure_now(instance_id) for instance_id in instance_ids}

    def measure_now(self, instance_id: str) -> int:
        total_bytes = self._measured_bytes.get(instance_id, 0) + self._forwarded_bytes[instance_id]
        self.bytes_by_instance[instance_id] = total_bytes
        return total_bytes

    def local_bytes(self, image: ClusterImage) -> Counter[str]:
        return Counter(self._measured_bytes)

    def replicas_by_topic(self, instance_id: str) -> Mapping[str, Mapping[int, int]]:
        """Returns the last measured size in bytes of each replica on the upstream broker, by topic and partition."""
        return self._replicas.get(instance_id, {})

    def led_partition_count(self, instance_id: str) -> int:
        """Returns 0: DescribeLogDirs does not tell leaders from followers."""
        return 0

    def is_outdated(self, instance_id: str) -> bool:
        return False

    def forget(self, instance_id: str) -> None:
        self._measured_bytes.pop(instance_id, None)
        self._replicas.pop(instance_id, None)
        self._forwarded_bytes.pop(instance_id, None)
        self.bytes_by_instance.pop(instance_id, None)


async def _replicas_of(response: DescribeLogDirsResponse) -> _Replicas:
    time_slice = TimeSlice()
    result: _Replicas = {}
    for directory in response.results:
        for topic in directory.topics:
            instance_id, name = naming.split_internal(topic.name)
            if instance_id is None:
                continue
            sizes = result.setdefault(instance_id, {}).setdefault(name, {})
            for partition in topic.partitions:
                if not partition.is_future_key:
                    sizes[partition.partition_index] = max(0, partition.partition_size)
                await time_slice.pause()
    return result


async def _sum_by_instance(replicas: _Replicas) -> dict[str, int]:
    time_slice = TimeSlice()
    result = {}
    for instance_id, by_topic in replicas.items():
        total_bytes = 0
        for sizes in by_topic.values():
            total_bytes += sum(sizes.values())
            await time_slice.pause()
        result[instance_id] = total_bytes
    return result
