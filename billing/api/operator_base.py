"""Base class of operators' REST resources about money, with the permissions of the operator panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rest_framework.response import Response

from billing import pricing
from tenants import access
from tenants.actors import Actor
from tenants.api.base import ApiView
from tenants.api.endpoint import Endpoint
from tenants.errors import NotFound, PermissionDenied
from tenants.models import Tenant


class OperatorMoneyView(ApiView):
    """View for staff with permissions of the operator panel."""

    tag = "Operator"
    may_read = "billing.view_plan"
    may_write = "billing.change_plan"

    @property
    def actor(self) -> Actor:
        """Actor without a tenant, as in the panel."""
        return replace(super().actor, tenant=None)

    def run_endpoint(self, declared: Endpoint, handle: Callable[[], Response]) -> Response:
        access.require(self.actor, declared.scope)
        permission = self.may_read if self.request.method in ("GET", "HEAD") else self.may_write
        if self.actor.user is None or not self.actor.user.has_perm(permission):
            raise PermissionDenied("Your account may not do this in the operator panel.")
        return super().run_endpoint(declared, handle)


def tenant_or_404(tenant_id: str) -> Tenant:
    """Returns any tenant by id. Raises `NotFound`."""
    tenant = pricing.tenant_of_id(tenant_id)
    if tenant is None:
        raise NotFound()
    return tenant
