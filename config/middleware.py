"""Who asks, as trusted proxies tell it; and headers that tell a browser what a page of ours may do."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from config.panel import style_digests
from config.web.addresses import client_address, is_trusted, parse_address

Handler = Callable[[HttpRequest], HttpResponse]

# Everything comes from this origin: there is no CDN, no inline script and no eval on a tenant's page.
STRICT_POLICY = {
    "default-src": "'self'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
# The API browser (inline start-up script and styles) is other people's page; it gets what it needs and nothing from
# outside. So does the operator panel: Alpine evaluates expressions in attributes, and the style elements are named.
THIRD_PARTY_PAGES = STRICT_POLICY | {
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "worker-src": "'self' blob:",
}
THIRD_PARTY_PREFIX = "/api/docs/"
OPERATOR_PREFIX = "/operator/"
PERMISSIONS_POLICY = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


def policy_text(policy: dict[str, str]) -> str:
    """The value of a Content-Security-Policy header."""
    return "; ".join(f"{directive} {sources}" for directive, sources in policy.items())


# What a proxy says of the client and the address it asked for; nobody else's word about these is believed.
FORWARDED_HEADERS = (
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_REAL_IP",
)


class ClientAddressMiddleware:
    """Makes `REMOTE_ADDR` the client's address, once, for sign-in, rate limits, audit rows and allauth alike."""

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
    """The policy of the operator panel. Not made before the first page: its templates are read for it."""
    styles = " ".join(f"'{digest}'" for digest in style_digests())
    return policy_text(STRICT_POLICY | {"script-src": "'self' 'unsafe-eval'", "style-src": f"'self' {styles}"})


class SecurityHeadersMiddleware:
    """Adds the content security policy and the permissions policy to every answer."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.strict = policy_text(STRICT_POLICY)
        self.third_party = policy_text(THIRD_PARTY_PAGES)

    def policy_of(self, path: str) -> str:
        """The policy of a page."""
        if path.startswith(OPERATOR_PREFIX):
            return operator_policy()
        return self.third_party if path.startswith(THIRD_PARTY_PREFIX) else self.strict

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", self.policy_of(request.path))
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response
