"""ApiVersions: the calls and versions that a listener serves (WIRE-14…17)."""

from __future__ import annotations

import re
from typing import Final

from brokers.engine.handlers.context import RequestContext
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ADVERTISED_SASL, ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.sasl import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_FROM: Final = 3
# Penstock's own calls, unknown to Kafka tools.
PENSTOCK_APIS: Final = (
    ApiKey.ALLOT_STORAGE,
    ApiKey.DESCRIBE_USERS,
    ApiKey.ALTER_USERS,
    ApiKey.REPORT_FLOW,
    ApiKey.CHARGE_POOLS,
)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def _list_versions(advertised: dict[ApiKey, tuple[int, int]]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=int(key), min_version=low, max_version=high)
        for key, (low, high) in sorted(advertised.items())
        if key not in PENSTOCK_APIS
    ]


TENANT: Final = _list_versions(ADVERTISED_TENANT)
SASL: Final = _list_versions(ADVERTISED_SASL)
INTERNAL: Final = _list_versions(ADVERTISED_INTERNAL)
_API_VERSIONS_ONLY: Final = [listed for listed in TENANT if listed.api_key == ApiKey.API_VERSIONS]


def api_versions(context: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    return build_response(context.version, request, INTERNAL if context.view.internal else TENANT)


def build_response(version: int, request: ApiVersionsRequest | None, listed: list[ApiVersion]) -> ApiVersionsResponse:
    """Returns the response with the `listed` calls; to an unsupported version (None) only ApiVersions (WIRE-15)."""
    if request is None:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_API_VERSIONS_ONLY)
    if version >= SOFTWARE_FROM and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=listed)


def illegal_state() -> ApiVersionsResponse:
    """Returns the response to a request during authentication."""
    return ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, api_keys=[])
