"""SaslHandshake and SaslAuthenticate: authentication of a peer (WIRE-18, WIRE-19)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, blob, int16, int64, request, response, text


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
