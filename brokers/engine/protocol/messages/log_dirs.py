"""AlterReplicaLogDirs and DescribeLogDirs: log directories of a broker and the replicas in them."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, boolean, int16, int32, int64, request, response, struct, text


@struct
class AlterReplicaLogDirTopic:
    name: str = text()
    partitions: list[int] = array("int32")


@struct
class AlterReplicaLogDir:
    path: str = text()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


# 2  flexible
@request(ApiKey.ALTER_REPLICA_LOG_DIRS)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = text()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


# 2  flexible
@response(ApiKey.ALTER_REPLICA_LOG_DIRS)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


@struct
class DescribableLogDirTopic:
    topic: str = text()
    partitions: list[int] = array("int32")


# 2  flexible
# 3  the response has an error of its own
# 4  the response has the size of the volume
@request(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, null_since=0)


@struct
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    name: str = text()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = text()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1)
    usable_bytes: int = int64(since=4, default=-1)


# 2  flexible
# 3  an error for the whole response
# 4  total and usable bytes of the volume
@response(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16(since=3)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
