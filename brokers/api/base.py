"""`OperatorView`: the base of what only operators reach."""

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
    """As in the operator panel: staff that may see clusters read, and staff that may change them act."""

    tag = "Operator"

    @property
    def actor(self) -> Actor:
        """In no tenant, as in the panel: an audit row about the fleet is for nobody in the tenant of the token."""
        return replace(super().actor, tenant=None)

    def run_endpoint(self, declared: Endpoint, handle: Callable[[], Response]) -> Response:
        access.require(self.actor, declared.scope)
        needed = "view" if self.request.method in ("GET", "HEAD") else "change"
        user = self.actor.user
        if user is None or not user.has_perm(f"brokers.{needed}_cluster"):
            raise PermissionDenied(f"Of clusters you may {'see nothing' if needed == 'view' else 'change nothing'}.")
        return super().run_endpoint(declared, handle)
