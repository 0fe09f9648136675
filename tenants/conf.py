"""Settings this app stands for, as plain values that `config.settings` may import before Django is ready."""

from __future__ import annotations

from typing import Any

# Right after the security headers: everything below it has a request id and, under /api/, answers problem details.
MIDDLEWARE = "tenants.api.middleware.ApiMiddleware"

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["tenants.api.parsing.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["tenants.api.authentication.TokenAuthentication"],
    "EXCEPTION_HANDLER": "tenants.api.problems.exception_handler",
    "URL_FORMAT_OVERRIDE": None,
    "COERCE_DECIMAL_TO_STRING": True,
}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Penstock API",
    "DESCRIPTION": (
        "Kafka as a multi-tenant managed service: instances, topics, quotas, usage.\n\n"
        "Errors are `application/problem+json` with a stable `code` and a `request_id`. POST takes `Idempotency-Key`, "
        "PATCH and DELETE take `If-Match`, mutations take `dry_run=true`, lists are read in pages."
    ),
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "COMPONENT_SPLIT_REQUEST": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
