"""ReportFlow: how brokers of ours tell the flow master what clients moved and wanted, and are answered their shares
(CKA-22).

A line is about one limit of an instance: `direction` is 0 for produce and 1 for consume, `key` is empty for the
instance's bandwidth and names the clients that share a client quota otherwise. `basis` is the checksum of all that the
share is made of, the partitions that each broker leads among it: shares of another basis are nobody's. `share_bps` is
what is in force where the line comes from; `admitted_bps` and `wanted_bps` are means of the last interval, -1 where it
was not measured whole.
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
    """`is_waiting`: more is due when other brokers have given it up."""

    error_code: int = int16()
    master_epoch: int = int32()
    sequence: int = int64()
    shares: list[ShareLine] = array(ShareLine)
