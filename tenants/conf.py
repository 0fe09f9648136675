"""Settings of this app as plain values, which `config.settings` may import before Django is ready."""

from __future__ import annotations

from typing import Any

from tenants.limits import PASSWORD_CHANGES_PER_USER_AND_MINUTE_MAX

# Follows the security headers: all later middleware has a request id and, under /api/, answers problem details.
MIDDLEWARE = "tenants.api.middleware.ApiMiddleware"

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["tenants.api.parsing.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["tenants.api.authentication.TokenAuthentication"],
    "EXCEPTION_HANDLER": "tenants.api.problems.exception_handler",
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
    "COMPONENT_SPLIT_PATCH": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "tenants.api.schema_components.share_components",
    ],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    # No highlighting of code, because its colours are too faint, and no list of models, which are shown where they are
    # used.
    "SWAGGER_UI_SETTINGS": {
        "deepLinking": True,
        "docExpansion": "none",
        "defaultModelsExpandDepth": -1,
        "filter": True,
        "syntaxHighlight": {"activated": False},
        "validatorUrl": None,
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# Operator panel in the colours of the design's tokens.
UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Penstock operator",
    "SITE_HEADER": "Penstock",
    "SITE_SUBHEADER": "Operator",
    "SITE_SYMBOL": "water",
    "SITE_URL": "/",
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_LANGUAGES": True,
    "BORDER_RADIUS": "6px",
    "ENVIRONMENT": "tenants.operator.environment_tag",
    "STYLES": ["tenants.operator.panel_style"],
    "SCRIPTS": ["tenants.operator.panel_script"],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "tenants.operator.mark"}],
    "DASHBOARD_CALLBACK": "brokers.admin_views.overview.dashboard",
    "LOGIN": {"form": "tenants.operator_login.OperatorLoginForm"},
    "COLORS": {
        "base": {
            "50": "#F7FAFA",
            "100": "#F2F6F6",
            "200": "#DEE6E7",
            "300": "#C3CFD2",
            "400": "#93A8AE",
            "500": "#66808A",
            "600": "#52666C",
            "700": "#31474E",
            "800": "#203238",
            "900": "#101C20",
            "950": "#0A1316",
        },
        "primary": {
            "50": "#F1F8F9",
            "100": "#E1F0F2",
            "200": "#BFE3E8",
            "300": "#86D8E3",
            "400": "#57C4D3",
            "500": "#2393A5",
            "600": "#0B6B7C",
            "700": "#084F5C",
            "800": "#0A404B",
            "900": "#11323A",
            "950": "#06262C",
        },
    },
    "SIDEBAR": {"show_search": True, "show_all_applications": False, "navigation": "tenants.operator.navigation"},
}

# Rate limits of the sign-in library's pages by address or person (our sign-up page is counted as well). Wrong passwords
# and codes are counted by `tenants.sign_in`.
ACCOUNT_RATE_LIMITS: dict[str, str] = {
    "login": "30/m/ip",
    "signup": "20/m/ip",
    "reset_password": "20/m/ip,5/m/key",
    "change_password": f"{PASSWORD_CHANGES_PER_USER_AND_MINUTE_MAX}/m/user",
    # Disables the library's counting of codes per account, by which attackers could lock out its owner.
    "login_failed": "",
}

ACCOUNT_FORMS: dict[str, str] = {
    "change_password": "tenants.password_forms.ChangePasswordForm",
    "set_password": "tenants.password_forms.SetPasswordForm",
    "reset_password_from_key": "tenants.password_forms.ResetPasswordKeyForm",
    "user_token": "tenants.password_forms.UserTokenForm",
}

# The library counts every sign-in by passkey, successful or not; failures are counted in `tenants.sign_in`.
MFA_RATE_LIMITS: dict[str, str] = {"webauthn_login": "30/m/ip"}

MFA_FORMS: dict[str, str] = {
    "authenticate": "tenants.second_factor.forms.AuthenticateForm",
    "reauthenticate": "tenants.second_factor.forms.ReauthenticateForm",
    "authenticate_webauthn": "tenants.second_factor.forms.AuthenticatePasskeyForm",
    "reauthenticate_webauthn": "tenants.second_factor.forms.ReauthenticatePasskeyForm",
    "activate_totp": "tenants.second_factor.forms.ActivateAppForm",
    "login_webauthn": "tenants.second_factor.forms.LoginPasskeyForm",
    "add_webauthn": "tenants.second_factor.forms.AddPasskeyForm",
}
