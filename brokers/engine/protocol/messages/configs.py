"""Messages of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

Resource types: 2 topic, 4 broker.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    Names,
    array,
    boolean,
    element,
    int8,
    int16,
    int32,
    request,
    response,
    struct,
    text,
)


@struct
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = text(names=Names.TOPIC)
    configuration_keys: list[str] | None = array(element("text", Names.NONE), null_since=0)


# 1  flag to include synonyms
# 3  flag to include documentation
# 4  flexible
@request(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(since=1)
    include_documentation: bool = boolean(since=3)


@struct
class DescribeConfigsSynonym:
    name: str = text(since=1, names=Names.NONE)
    value: str | None = text(since=1, null_since=0, names=Names.NONE)
    source: int = int8(since=1)


@struct
class DescribeConfigsResourceResult:
    name: str = text(names=Names.NONE)
    value: str | None = text(null_since=0, names=Names.NONE)
    read_only: bool = boolean()
    is_default: bool = boolean(until=0)
    config_source: int = int8(since=1, default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1)
    config_type: int = int8(since=3)
    documentation: str | None = text(since=3, null_since=0, names=Names.NONE)


@struct
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = text(null_since=0, names=Names.FREE_TEXT)
    resource_type: int = int8()
    resource_name: str = text(names=Names.TOPIC)
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


# 1  source and synonyms of a value, instead of "is default"
# 3  type and documentation
# 4  flexible
@response(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


@struct
class AlterableConfig:
    name: str = text()
    value: str | None = text(null_since=0)


@struct
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = text()
    configs: list[AlterableConfig] = array(AlterableConfig)


# 2  flexible
@request(ApiKey.ALTER_CONFIGS)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    resource_type: int = int8()
    resource_name: str = text()


# 2  flexible
@response(ApiKey.ALTER_CONFIGS)
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@struct
class IncrementalAlterableConfig:
    name: str = text(names=Names.NONE)
    # 0 set, 1 delete, 2 append, 3 subtract
    config_operation: int = int8()
    value: str | None = text(null_since=0, names=Names.NONE)


@struct
class IncrementalAlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = text(names=Names.TOPIC)
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


# 1  flexible
@request(ApiKey.INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@struct
class IncrementalAlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = text(null_since=0, names=Names.FREE_TEXT)
    resource_type: int = int8()
    resource_name: str = text(names=Names.TOPIC)


# 1  flexible
@response(ApiKey.INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[IncrementalAlterConfigsResourceResponse] = array(IncrementalAlterConfigsResourceResponse)
