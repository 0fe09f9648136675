"""REST API of a route's certificates: its own, its clients' authorities, and its revocation list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api import serializers as s
from instances.models import Operation
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.api.endpoint import SerializerClass
from tenants.choices import Scope

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _put_endpoint(name: str, body: SerializerClass, **options: Any) -> Decorator:
    """Declares a PUT that sets a part of a route."""
    return endpoint(
        name, Scope.INSTANCES_WRITE, body=body, returns=s.RouteOut, requires_if_match=True, errors=(409,), **options
    )


def _delete_endpoint(name: str) -> Decorator:
    """Declares a DELETE that removes a part of a route, by an operation."""
    return endpoint(
        name, Scope.INSTANCES_WRITE, returns=s.OperationOut, status=202, requires_if_match=True, errors=(409,)
    )


class _RoutePartView(ApiView):
    """Base of the views of one part of a route, such as its certificate, which is set and removed as a whole."""

    tag = "Instances"

    def set_part(self, instance_id: str, name: str, service: Callable[..., Operation | None]) -> Response:
        operation = self._call(instance_id, name, service, **self.body)
        location = f"{API_ROOT}/operations/{operation.pk}" if operation else None
        route = self._route
        return self.one(route, s.RouteOut, status=202 if operation else 200, location=location, etag=route.etag)

    def remove_part(self, instance_id: str, name: str, service: Callable[..., Operation]) -> Response:
        return self.accepted(self._call(instance_id, name, service), s.OperationOut)

    def _call(self, instance_id: str, name: str, service: Callable[..., Any], **arguments: Any) -> Any:
        instance = access.instance(self.actor, instance_id, lock=True)
        self._route = access.route(instance, name)
        self.require_match(self._route.etag)
        return service(acting=self.actor, instance=instance, route=self._route, dry_run=self.dry_run, **arguments)


class RouteClientCa(_RoutePartView):
    @_put_endpoint("set_route_client_ca", s.ClientCaIn, other_responses=((202, s.RouteOut),))
    def put(self, request: Request, instance_id: str, name: str) -> Response:
        """Set the authorities of the certificates of a route's clients (security mtls).

        In force within a second: 202, with the operation in `Location`. Connections with certificates of other
        authorities are closed.
        """
        return self.set_part(instance_id, name, services.set_client_ca)

    @_delete_endpoint("remove_route_client_ca")
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Remove all authorities: all connections of the route are closed, and none is accepted."""
        return self.remove_part(instance_id, name, services.remove_client_ca)


class RouteRevocationList(_RoutePartView):
    @_put_endpoint("set_route_revocation_list", s.RevocationListIn, other_responses=((202, s.RouteOut),))
    def put(self, request: Request, instance_id: str, name: str) -> Response:
        """Replace the certificate revocation list.

        In force within a second: 202, with the operation in `Location`. Connections with certificates on it are closed.
        A list whose next update is overdue stays in force.
        """
        return self.set_part(instance_id, name, services.set_revocation_list)

    @_delete_endpoint("remove_route_revocation_list")
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Remove the certificate revocation list."""
        return self.remove_part(instance_id, name, services.remove_revocation_list)


class RouteCertificate(_RoutePartView):
    @_put_endpoint("set_route_certificate", s.RouteCertificateIn, status=202)
    def put(self, request: Request, instance_id: str, name: str) -> Response:
        """Set the server certificate of a route, instead of one of this installation's authority.

        In force within a second, for new connections. The private key is stored encrypted and never shown.
        """
        return self.set_part(instance_id, name, services.set_certificate)

    @_delete_endpoint("remove_route_certificate")
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Remove the server certificate: certificates of this installation's authority are used again."""
        return self.remove_part(instance_id, name, services.remove_certificate)
