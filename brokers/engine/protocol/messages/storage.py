"""AllotStorage: a broker's report of storage use to the controller, answered with storage credits (CKA-26).

A StorageLine is the report on one instance, with the fields of `capacity.ledger.ReportedUse`; a StorageChange is the
answer, with the fields of `capacity.ledger.StorageGrant`. `is_complete` is True if the broker has reported all its
instances with this request.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, boolean, int16, int32, int64, request, response, struct, text


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
