"""AllotStorage: a broker reports the stored bytes of its instances, and gets the bytes that it may append (CKA-26).

Only that broker may send it.
"""

from __future__ import annotations

from brokers.engine.handlers.common.peer_brokers import speaker_error
from brokers.engine.handlers.context import Call
from brokers.engine.protocol.messages.storage import AllotStorageRequest, AllotStorageResponse


def allot_storage(call: Call, request: AllotStorageRequest) -> AllotStorageResponse:
    error = speaker_error(call.services, call.view.principal, request.broker_id, request.broker_epoch)
    if error:
        return AllotStorageResponse(error_code=error)
    return call.services.accounting.allot_storage(request)
