"""Reports of a broker to the flow master and to the controller: ReportFlow and ChargePools (CKA-22), AllotStorage
(CKA-26).

ReportFlow has the broker's traffic and demand, and is answered with its shares. A line is about one limit of an
instance. `direction` is 0 for produce and 1 for consume; `key` is empty for the instance's bandwidth, else the name of
the sharing group of a client quota. `basis` is the checksum of all inputs of the shares, such as the leader partitions
of each broker; a share of another basis is ignored. `share_bps` is the share in force on the broker; `admitted_bps` and
`wanted_bps` are means of the last interval, -1 if it was not measured completely.

ChargePools charges admitted bytes to the paces of shared limits, named in the same way, and is answered with the time
when these are paid (decision 110). `amount_bytes` was admitted since the broker's last line. `due_in_us` is the time
until everything is paid, from when the response was made, negative while a burst is left. `is_known` is False if the
flow master keeps no pace for the limit.

AllotStorage has the broker's storage use, and is answered with storage credits. A StorageLine is the report on one
instance, with the fields of `capacity.ledger.ReportedUse`; a StorageChange is the answer, with the fields of
`capacity.ledger.StorageGrant`. `is_complete` is True if the broker has reported all its instances with this request.
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


@struct
class StorageLine:
    instance_id: str = text()
    used_bytes: int = int64()
    left_bytes: int = int64()
    applied: int = int32()
    wanted_bytes: int = int64()
    is_busy: bool = boolean()


@request(ApiKey.ALLOT_STORAGE)
class AllotStorageRequest:
    broker_id: int = int32()
    broker_epoch: int = int64()
    controller_epoch: int = int32()
    is_complete: bool = boolean()
    lines: list[StorageLine] = array(StorageLine)


@struct
class StorageChange:
    instance_id: str = text()
    number: int = int32()
    delta_bytes: int = int64()
    used_bytes: int = int64()
    free_bytes: int = int64()
    is_full: bool = boolean()
    reported_bytes: int = int64(since=1, default=-1)
    counted_bytes: int = int64(since=1, default=-1)


@response(ApiKey.ALLOT_STORAGE)
class AllotStorageResponse:
    error_code: int = int16()
    changes: list[StorageChange] = array(StorageChange)
