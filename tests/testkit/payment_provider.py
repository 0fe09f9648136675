"""A payment provider that signs its reports by Standard Webhooks, implemented from the specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from django.http import HttpResponse
from django.test import Client

PATH = "/payments/webhook"
SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()


def document(payment_id: str, invoice: str, amount: str, currency: str = "EUR", **more: Any) -> dict[str, Any]:
    data = {"payment_id": payment_id, "invoice": invoice, "amount": amount, "currency": currency}
    return {"type": "payment.succeeded", "data": data, **more}


def signature_headers(
    body: bytes, *, secret: str = SECRET, at_s: float | None = None, message_id: str = "msg_1"
) -> dict[str, str]:
    """Returns the headers of a report."""
    timestamp = str(int(time.time() if at_s is None else at_s))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def post_report(body: bytes, headers: dict[str, str]) -> HttpResponse:
    return Client().post(PATH, body, content_type="application/json", headers=headers)


def send_report(*what: str, **more: Any) -> HttpResponse:
    """Returns a signed report: `report("pay_1", "PS-1", "10.00")`."""
    body = json.dumps(document(*what)).encode()
    return post_report(body, signature_headers(body, **more))
