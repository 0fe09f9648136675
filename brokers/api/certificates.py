"""The certificate of the installation's authority, which clients of TLS routes are given.

It is a file, for `curl` and trust stores: no token, and not a part of the schema.
"""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from brokers.infra.certificates import CA_FILE

MEDIA_TYPE = "application/x-pem-file"


@require_safe
def ca_certificate(request: HttpRequest) -> HttpResponse:
    """It is no secret: every broker shows that it is signed by it, and who needs it has no token yet."""
    try:
        pem = (settings.TLS_DIR / CA_FILE).read_bytes()
    except OSError:
        raise Http404("This installation has no certificate authority of its own.") from None
    return HttpResponse(pem, content_type=MEDIA_TYPE)
