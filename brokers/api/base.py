"""Base class `OperatorView` of resources for operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rest_framework.response import Response

from tenants import access
from tenants.actors import Actor
from tenants.api.base import ApiView
from tenants.api.endpoint import Endpoint
from tenants.errors import PermissionDenied


class OperatorView(ApiView):
    """View with the permissions of the operator panel: staff that may view or change clusters."""

    tag = "Operator"

    @property
    def actor(self) -> Actor:
        """Actor without a tenant, as in the panel: audit rows about the fleet do not belong to the token's tenant."""
        return replace(super().actor, tenant=None)

    def run_endpoint(self, declared: Endpoint, handle: Callable[[], Response]) -> Response:
        access.require(self.actor, declared.scope)
        required_permission = "view" if self.request.method in ("GET", "HEAD") else "change"
        user = self.actor.user
        if user is None or not user.has_perm(f"brokers.{required_permission}_cluster"):
            raise PermissionDenied(
                f"Of clusters you may {'see nothing' if required_permission == 'view' else 'change nothing'}."
            )
        return super().run_endpoint(declared, handle)
