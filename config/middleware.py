"""Who asks, as trusted proxies tell it; and headers that tell a browser what a page of ours may do."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

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
# The operator panel (Alpine evaluates attribute expressions) and the API browser (inline start-up script and styles)
# are other people's pages; they get what they need and nothing from outside.
THIRD_PARTY_PAGES = STRICT_POLICY | {
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "worker-src": "'self' blob:",
}
THIRD_PARTY_PREFIXES = ("/operator/", "/api/docs/")
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


class SecurityHeadersMiddleware:
    """Adds the content security policy and the permissions policy to every answer."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.strict = policy_text(STRICT_POLICY)
        self.third_party = policy_text(THIRD_PARTY_PAGES)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        is_third_party = request.path.startswith(THIRD_PARTY_PREFIXES)
        response.headers.setdefault("Content-Security-Policy", self.third_party if is_third_party else self.strict)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return response
