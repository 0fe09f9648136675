"""DescribeClientQuotas and AlterClientQuotas (QUO-71). Match types: 0 exactly, 1 the default, 2 any."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, boolean, float64, int8, int16, int32, request, response, struct, text


@struct
class QuotaFilterComponent:
    entity_type: str = text()
    match_type: int = int8()
    match: str | None = text(null_since=0)


# 1  flexible
@request(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasRequest:
    components: list[QuotaFilterComponent] = array(QuotaFilterComponent)
    strict: bool = boolean()


@struct
class QuotaEntity:
    entity_type: str = text()
    entity_name: str | None = text(null_since=0)


@struct
class QuotaValue:
    key: str = text()
    value: float = float64()


@struct
class QuotaEntry:
    entity: list[QuotaEntity] = array(QuotaEntity)
    values: list[QuotaValue] = array(QuotaValue)


# 1  flexible
@response(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    entries: list[QuotaEntry] | None = array(QuotaEntry, null_since=0)


@struct
class QuotaOperation:
    key: str = text()
    value: float = float64()
    remove: bool = boolean()


@struct
class QuotaAlteration:
    entity: list[QuotaEntity] = array(QuotaEntity)
    ops: list[QuotaOperation] = array(QuotaOperation)


# 1  flexible
@request(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasRequest:
    entries: list[QuotaAlteration] = array(QuotaAlteration)
    validate_only: bool = boolean()


@struct
class QuotaAlterationResult:
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    entity: list[QuotaEntity] = array(QuotaEntity)


# 1  flexible
@response(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[QuotaAlterationResult] = array(QuotaAlterationResult)
