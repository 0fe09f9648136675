"""REST API of the routes of an instance."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, selectors, services
from instances.api import serializers as s
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.choices import Scope


class RouteCollection(ApiView):
    tag = "Instances"

    @endpoint("list_routes", Scope.INSTANCES_READ, page_item=s.RouteOut)
    def get(self, request: Request, instance_id: str) -> Response:
        """List the routes of an instance in the order of their creation."""
        return self.page(selectors.route_list(access.instance(self.actor, instance_id)), s.RouteOut, order=("id",))

    @endpoint("create_route", Scope.INSTANCES_WRITE, body=s.RouteIn, returns=s.RouteOut, status=202, errors=(409,))
    def post(self, request: Request, instance_id: str) -> Response:
        """Create a route of an instance.

        Returns the operation in `Location`; the route has its addresses when the operation has succeeded.
        """
        instance = access.instance(self.actor, instance_id, lock=True)
        route, operation = services.create_route(
            acting=self.actor, instance=instance, route=self.body, dry_run=self.dry_run
        )
        return self.one(
            route, s.RouteOut, status=202, location=f"{API_ROOT}/operations/{operation.pk}", etag=route.etag
        )


class RouteResource(ApiView):
    tag = "Instances"

    @endpoint("get_route", Scope.INSTANCES_READ, returns=s.RouteOut)
    def get(self, request: Request, instance_id: str, name: str) -> Response:
        """Read a route of an instance."""
        route = access.route(access.instance(self.actor, instance_id), name)
        return self.one(route, s.RouteOut, etag=route.etag)

    @endpoint(
        "update_route",
        Scope.INSTANCES_WRITE,
        body=s.RoutePatch,
        returns=s.RouteOut,
        other_responses=((202, s.RouteOut),),
        requires_if_match=True,
        errors=(409,),
    )
    def patch(self, request: Request, instance_id: str, name: str) -> Response:
        """Change the access rules and the security of a route.

        In force within a second: 202, with the operation in `Location`. Connections that a new list does not admit are
        closed, and all of them when the security changes.
        """
        instance = access.instance(self.actor, instance_id, lock=True)
        route = access.route(instance, name)
        self.require_match(route.etag)
        operation = services.update_route(
            acting=self.actor, instance=instance, route=route, changes=self.body, dry_run=self.dry_run
        )
        location = f"{API_ROOT}/operations/{operation.pk}" if operation else None
        return self.one(route, s.RouteOut, status=202 if operation else 200, location=location, etag=route.etag)

    @endpoint(
        "delete_route", Scope.INSTANCES_WRITE, returns=s.OperationOut, status=202, requires_if_match=True, errors=(409,)
    )
    def delete(self, request: Request, instance_id: str, name: str) -> Response:
        """Delete a route of an instance, and close its connections. The last route cannot be deleted."""
        instance = access.instance(self.actor, instance_id, lock=True)
        route = access.route(instance, name)
        self.require_match(route.etag)
        operation = services.delete_route(acting=self.actor, instance=instance, route=route, dry_run=self.dry_run)
        return self.accepted(operation, s.OperationOut)
