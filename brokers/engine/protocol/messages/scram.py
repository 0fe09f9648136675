"""DescribeUserScramCredentials and AlterUserScramCredentials. Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, blob, int8, int16, int32, request, response, struct, text


@struct
class ScramUserName:
    name: str = text()


# 0  null or empty users request all
@request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsRequest:
    users: list[ScramUserName] | None = array(ScramUserName, null_since=0)


@struct
class ScramCredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult:
    user: str = text()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    credential_infos: list[ScramCredentialInfo] = array(ScramCredentialInfo)


@response(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


@struct
class ScramCredentialDeletion:
    name: str = text()
    mechanism: int = int8()


@struct
class ScramCredentialUpsertion:
    name: str = text()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = blob()
    salted_password: bytes = blob()


# 0  the request has the salted hash of the password, never the password
@request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct
class AlterUserScramCredentialsResult:
    user: str = text()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)


@response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
