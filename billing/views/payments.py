"""Endpoint for reports of a payment provider, authenticated by signature only."""

from __future__ import annotations

import time

from django.conf import settings
from django.http import Http404, HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.payments import reported, services
from tenants.api import rates

BODY_BYTES_MAX = 65_536
REPORTS_PER_MINUTE_MAX = 300


@csrf_exempt
@require_POST
def payment_webhook(request: HttpRequest) -> JsonResponse:
    """Answers 200 if the report was recorded or is irrelevant. A repeated report changes nothing.

    Raises:
        Http404: no secret is configured, so no provider is connected.
    """
    if not settings.PAYMENTS_SECRETS:
        raise Http404
    rate = rates.charge_counter(f"payments:{request.META.get('REMOTE_ADDR', '')}", REPORTS_PER_MINUTE_MAX)
    if rate is not None and rate.is_exceeded:
        return JsonResponse({"error": "Too many reports a minute."}, status=429)
    if int(request.META.get("CONTENT_LENGTH") or 0) > BODY_BYTES_MAX or len(request.body) > BODY_BYTES_MAX:
        return JsonResponse({"error": f"At most {BODY_BYTES_MAX} bytes."}, status=413)
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not reported.is_signed(headers, request.body, settings.PAYMENTS_SECRETS, time.time()):
        return JsonResponse({"error": "The signature does not verify."}, status=401)
    try:
        payment = reported.parse_payment(request.body)
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=400)
    if payment is not None:
        services.receive(payment, timezone.now())
    return JsonResponse({"received": True})
