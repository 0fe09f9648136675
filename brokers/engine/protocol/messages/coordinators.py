"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import Names, array, element, int8, int16, int32, request, response, struct, text


# 1  kind of key: 0 group, 1 transactional id
# 3  flexible
# 4  several keys at once
# 5  clients know the error TRANSACTION_ABORTABLE
# 6  kind of key 2: share group
@request(ApiKey.FIND_COORDINATOR)
class FindCoordinatorRequest:
    key: str = text(until=3, names=Names.COORDINATOR_KEY)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(element("text", Names.COORDINATOR_KEY), since=4)


@struct
class Coordinator:
    key: str = text(since=4, names=Names.COORDINATOR_KEY)
    node_id: int = int32(since=4, names=Names.NODE)
    host: str = text(since=4, names=Names.HOST)
    port: int = int32(since=4, names=Names.PORT)
    error_code: int = int16(since=4)
    error_message: str | None = text(since=4, null_since=4, names=Names.FREE_TEXT)


# 1  throttle time, error message
# 3  flexible
# 4  one coordinator per key
@response(ApiKey.FIND_COORDINATOR)
class FindCoordinatorResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = text(since=1, until=3, null_since=1, null_until=3, names=Names.FREE_TEXT)
    node_id: int = int32(until=3, names=Names.NODE)
    host: str = text(until=3, names=Names.HOST)
    port: int = int32(until=3, names=Names.PORT)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
