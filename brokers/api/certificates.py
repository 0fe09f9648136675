"""Certificate of the installation's CA, for clients of TLS routes.

It is a file for `curl` and trust stores: it needs no token and is not part of the schema.
"""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from brokers.infra.certificates import CA_FILE

MEDIA_TYPE = "application/x-pem-file"


@require_safe
def ca_certificate(request: HttpRequest) -> HttpResponse:
    """Returns the CA certificate without authentication: it is public, and clients have no token yet."""
    try:
        pem = (settings.TLS_DIR / CA_FILE).read_bytes()
    except OSError:
        raise Http404("This installation has no certificate authority of its own.") from None
    return HttpResponse(pem, content_type=MEDIA_TYPE)
