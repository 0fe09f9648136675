"""Rate limits of views: each request is charged to its caller and the caller's tenant."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from rest_framework.request import Request
from rest_framework.views import APIView

from tenants.actors import Actor
from tenants.api import rates
from tenants.counting import network_of
from tenants.errors import RateLimited


class ChargedView(APIView):
    """Base of views that charge their requests, and show the limit in the headers of the response."""

    rate: rates.LimitState | None = None

    def _charge(self, request: Request, actor: Actor | None) -> None:
        """Charges a request to its caller, one without credentials to its network. Raises `RateLimited`."""
        identity = actor.id if actor else network_of(request._request)
        is_write = (request.method or "").lower() not in ("get", "head", "options")
        self.rate = rates.charge(identity, is_anonymous=actor is None, is_write=is_write)
        if self.rate is not None and self.rate.is_exceeded:
            raise RateLimited("Wait before the next request.", retry_after_s=self.rate.reset_s)
        if actor is None or actor.tenant is None:
            return
        # Charged after the caller's own limit, so that a token over its rate does not use up the limit of the tenant's
        # other tokens.
        tenant_state = rates.charge_tenant(actor.tenant.pk, is_write=is_write)
        self.rate = rates.tighter(self.rate, tenant_state)
        if tenant_state is not None and tenant_state.is_exceeded:
            detail = "All callers of the tenant together sent too many requests. Wait before the next one."
            raise RateLimited(detail, retry_after_s=tenant_state.reset_s)

    def finalize_response(
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        final = super().finalize_response(request, response, *args, **kwargs)
        for name, value in (self.rate.headers() if self.rate else {}).items():
            final[name] = value
        return final
