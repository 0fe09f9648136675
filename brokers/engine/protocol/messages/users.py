"""DescribeUsers and AlterUsers, with which the control plane reads and changes an instance's users on the internal
listener. Kafka's own calls (`scram`) have neither several secrets nor states of users.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    array,
    blob,
    boolean,
    int8,
    int16,
    int32,
    int64,
    request,
    response,
    struct,
    text,
)


# Null `names` request all users.
@request(ApiKey.DESCRIBE_USERS)
class DescribeUsersRequest:
    names: list[str] | None = array("text", null_since=0)


# `last_used_at_ms` is -1 if this broker knows of no use.
@struct
class DescribedSecret:
    id: str = text()
    created_at_ms: int = int64()
    last_used_at_ms: int = int64()
    mechanisms: list[int] = array("int8")


# `expires_at_ms` is -1 for never; `connections` counts the user's connections to this broker.
@struct
class DescribedUser:
    name: str = text()
    superuser: bool = boolean()
    disabled: bool = boolean()
    expires_at_ms: int = int64()
    created_at_ms: int = int64()
    last_used_at_ms: int = int64()
    connections: int = int32()
    secrets: list[DescribedSecret] = array(DescribedSecret)


@response(ApiKey.DESCRIBE_USERS)
class DescribeUsersResponse:
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    users: list[DescribedUser] = array(DescribedUser)


@struct
class AddedVerifier:
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = blob()
    salted_password: bytes = blob()


@struct
class AddedUserSecret:
    id: str = text()
    verifiers: list[AddedVerifier] = array(AddedVerifier)


# `must_exist`: 0 either, 1 the user must exist, 2 it must not exist. `superuser`, `disabled`: -1 for unchanged.
# `expires_at_ms`: -2 for unchanged, -1 for never.
@struct
class AlteredUser:
    name: str = text()
    is_deleted: bool = boolean()
    must_exist: int = int8()
    superuser: int = int8()
    disabled: int = int8()
    expires_at_ms: int = int64()
    removed_secrets: list[str] = array("text")
    added_secrets: list[AddedUserSecret] = array(AddedUserSecret)


@request(ApiKey.ALTER_USERS)
class AlterUsersRequest:
    validate_only: bool = boolean()
    alterations: list[AlteredUser] = array(AlteredUser)


@struct
class AlteredUserResult:
    name: str = text()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)


@response(ApiKey.ALTER_USERS)
class AlterUsersResponse:
    results: list[AlteredUserResult] = array(AlteredUserResult)
