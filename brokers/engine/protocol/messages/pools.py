"""ChargePools: brokers charge admitted bytes to the paces of shared limits, and learn when these are paid (decision
110).

A line is about one limit of an instance, named as in ReportFlow. `amount_bytes` was admitted since the broker's last
line. `due_in_us` is the time until everything is paid, from when the response was made, negative while a burst is left.
`is_known` is False if the flow master keeps no pace for the limit.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, boolean, int8, int16, int32, int64, request, response, struct, text


@struct
class ChargeLine:
    instance_id: str = text()
    direction: int = int8()
    key: str = text()
    limit_bps: int = int64()
    amount_bytes: int = int64()
    is_contended: bool = boolean()


@request(ApiKey.CHARGE_POOLS)
class ChargePoolsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64()
    master_epoch: int = int32()
    sequence: int = int64()
    lines: list[ChargeLine] = array(ChargeLine)


@struct
class PaceLine:
    is_known: bool = boolean()
    due_in_us: int = int64()
    is_contended: bool = boolean()


@response(ApiKey.CHARGE_POOLS)
class ChargePoolsResponse:
    """Response with the paces, in the order of the request's lines."""

    error_code: int = int16()
    master_epoch: int = int32()
    sequence: int = int64()
    paces: list[PaceLine] = array(PaceLine)
