"""DescribeUsers and AlterUsers: Penstock's own calls on the internal listener, which kafka-python does not define."""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

SCHEMAS: Final = "brokers.dataplane.schemas"
# The version of both calls.
VERSION: Final = 0


class DescribeUsersRequest(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg]
    pass


class DescribeUsersResponse(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg]
    pass


class AlterUsersRequest(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg]
    UserAlteration: Any


class AlterUsersResponse(ApiMessage, load_json=SCHEMAS):  # type: ignore[call-arg]
    pass
