"""Calls of a client before it is authenticated: ApiVersions (WIRE-14…17), SaslHandshake and SaslAuthenticate (WIRE-18,
WIRE-19).
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, blob, boolean, int16, int32, int64, request, response, struct, text


# 0  raw token frames follow
# 1  SaslAuthenticate requests follow
@request(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeRequest:
    mechanism: str = text()


@response(ApiKey.SASL_HANDSHAKE)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array("text")


# 1  the response may have a lifetime of the session
# 2  flexible
@request(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateRequest:
    auth_bytes: bytes = blob()


# 1  lifetime of the session
# 2  flexible
@response(ApiKey.SASL_AUTHENTICATE)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64(since=1)


# 0  empty
# 3  flexible; name and version of the client's software
# 4  feature ranges that start at 0 may be listed
@request(ApiKey.API_VERSIONS)
class ApiVersionsRequest:
    client_software_name: str = text(since=3)
    client_software_version: str = text(since=3)


@struct
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    name: str = text(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


@struct
class FinalizedFeatureKey:
    name: str = text(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


# 1  throttle time, after the list
# 3  flexible body, while the header always has version 0; features as tagged fields
@response(ApiKey.API_VERSIONS)
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
