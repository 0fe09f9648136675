"""AllotStorage: another broker reports what its instances store, and is answered what it may append (CKA-26).

Only that broker may ask.
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
