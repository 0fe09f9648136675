"""ReportFlow: a broker's report of traffic and demand to the flow master, answered with its shares (CKA-22).

A line is about one limit of an instance. `direction` is 0 for produce and 1 for consume; `key` is empty for the
instance's bandwidth, else the name of the sharing group of a client quota. `basis` is the checksum of all inputs of the
shares, such as the leader partitions of each broker; a share of another basis is ignored. `share_bps` is the share in
force on the broker; `admitted_bps` and `wanted_bps` are means of the last interval, -1 if it was not measured
completely.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, boolean, int8, int16, int32, int64, request, response, struct, text


@struct
class FlowLine:
    instance_id: str = text()
    direction: int = int8()
    key: str = text()
    basis: int = int64()
    limit_bps: int = int64()
    share_bps: int = int64()
    admitted_bps: int = int64()
    wanted_bps: int = int64()


@request(ApiKey.REPORT_FLOW)
class ReportFlowRequest:
    broker_id: int = int32()
    broker_epoch: int = int64()
    master_epoch: int = int32()
    sequence: int = int64()
    interval_ms: int = int32()
    lines: list[FlowLine] = array(FlowLine)


@struct
class ShareLine:
    instance_id: str = text()
    direction: int = int8()
    key: str = text()
    basis: int = int64()
    limit_bps: int = int64()
    share_bps: int = int64()
    is_waiting: bool = boolean()


@response(ApiKey.REPORT_FLOW)
class ReportFlowResponse:
    """Response with the broker's shares; with `is_waiting` a share rises once other brokers have lowered theirs."""

    error_code: int = int16()
    master_epoch: int = int32()
    sequence: int = int64()
    shares: list[ShareLine] = array(ShareLine)
