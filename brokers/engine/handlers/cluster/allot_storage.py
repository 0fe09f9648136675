"""AllotStorage: another broker reports what its instances store, and is told what it may append (CKA-26).

Only the cluster itself may ask.
"""

from __future__ import annotations

from brokers.engine.handlers.context import Call
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.storage import AllotStorageRequest, AllotStorageResponse


def allot_storage(call: Call, request: AllotStorageRequest) -> AllotStorageResponse:
    if not call.view.internal or call.view.instance_id is not None:
        return AllotStorageResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return call.engine.allot_storage(request)
