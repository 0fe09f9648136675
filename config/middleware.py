"""Middleware that determines client addresses behind trusted proxies, and sets browser security headers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from config.panel import style_digests
from config.web.addresses import client_address, is_trusted, parse_address

Handler = Callable[[HttpRequest], HttpResponse]

# All resources come from this origin: tenants' pages use no CDN, inline script or eval.
STRICT_POLICY = {
    "default-src": "'self'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
# The operator panel is third-party code: Alpine evaluates expressions in attributes, and its style elements are listed
# by digest.
OPERATOR_PREFIX = "/operator/"
PERMISSIONS_POLICY = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


def policy_text(policy: dict[str, str]) -> str:
    """Returns the value of a Content-Security-Policy header."""
    return "; ".join(f"{directive} {sources}" for directive, sources in policy.items())


# Headers about client and host that only trusted proxies may set.
FORWARDED_HEADERS = (
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_REAL_IP",
)


class ClientAddressMiddleware:
    """Sets `REMOTE_ADDR` to the client's address, for sign-in, rate limits, audit rows and allauth."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        peer, forwarded_for = request.META.get("REMOTE_ADDR", ""), request.META.get("HTTP_X_FORWARDED_FOR", "")
        request.META["REMOTE_ADDR"] = client_address(peer, forwarded_for, settings.TRUSTED_PROXIES)
        if not is_trusted(parse_address(peer), settings.TRUSTED_PROXIES):
            for name in FORWARDED_HEADERS:
                request.META.pop(name, None)
        return self.get_response(request)


@cache
def operator_policy() -> str:
    """Returns the policy of the operator panel. Created with the first page, because it reads the panel's templates."""
    styles = " ".join(f"'{digest}'" for digest in style_digests())
    return policy_text(STRICT_POLICY | {"script-src": "'self' 'unsafe-eval'", "style-src": f"'self' {styles}"})


class SecurityHeadersMiddleware:
    """Adds the content security policy and the permissions policy to every response."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.strict = policy_text(STRICT_POLICY)

    def policy_of(self, path: str) -> str:
        """Returns the policy of a page."""
        if path.startswith(OPERATOR_PREFIX):
            return operator_policy()
        return self.strict

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", self.policy_of(request.path))
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response
