"""The certificate of the installation's authority, which clients of TLS routes are given."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from brokers.infra.certificates import CA_FILE
from tenants.api.base import ANYBODY, ApiView, endpoint
from tenants.errors import NotFound

MEDIA_TYPE = "application/x-pem-file"


class PemRenderer(BaseRenderer):
    """Lets a caller ask for PEM alone; the view answers by itself."""

    media_type = MEDIA_TYPE
    format = "pem"

    def render(self, data: object, accepted_media_type: str | None = None, renderer_context: object = None) -> bytes:
        return str(data).encode()


class CaCertificate(ApiView):
    tag = "Instances"
    renderer_classes = (JSONRenderer, PemRenderer)

    @endpoint("get_ca_certificate", ANYBODY, text=MEDIA_TYPE)
    def get(self, request: Request) -> HttpResponse:
        """Read the certificate of the authority that signs those of the brokers.

        A Kafka client trusts it (`ssl.ca.location`, or a trust store). It is no secret: every broker shows that it is
        signed by it.
        """
        try:
            pem = (settings.TLS_DIR / CA_FILE).read_bytes()
        except OSError:
            raise NotFound("This installation has no certificate authority of its own.") from None
        return HttpResponse(pem, content_type=MEDIA_TYPE)
