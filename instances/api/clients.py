"""REST API of the connections of clients to an instance: list, read, close."""

from __future__ import annotations

from datetime import UTC, datetime

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.api.topics import DATA_PLANE_ERRORS
from instances.api.watching import SilentOut
from instances.clients.interfaces import Connection
from instances.clients.listing import CONTAINS_CHARS_MAX, DEFAULT_SORT, SORTS, connection_detail, connection_page
from instances.limits import CONNECTIONS_LISTED_MAX
from tenants.api.base import ApiView, endpoint
from tenants.api.endpoint import PageQuery
from tenants.api.strict import Choice, Text
from tenants.choices import Scope


class ClientQuery(PageQuery):
    contains = Text(
        required=False, max_length=CONTAINS_CHARS_MAX, help_text="Part of client id, user, address or software."
    )
    sort = Choice(
        required=False, choices=SORTS, default=DEFAULT_SORT, help_text="A column; with - before it the largest first."
    )


class ClientOut(serializers.Serializer):
    """A connection of a client to one broker."""

    id = serializers.CharField(help_text="Never used again.")
    client_id = serializers.CharField(allow_blank=True, help_text="Empty until a request has said so.")
    software = serializers.CharField(allow_blank=True, help_text="As its library says; older ones say nothing.")
    software_version = serializers.CharField(allow_blank=True)
    user = serializers.CharField(allow_blank=True, help_text="Empty on a route without sign-in, or while signing in.")
    is_signing_in = serializers.BooleanField()
    address = serializers.CharField()
    route = serializers.CharField(allow_blank=True)
    broker_id = serializers.IntegerField()
    since = serializers.SerializerMethodField()
    requests = serializers.IntegerField(help_text="Since it was opened.")

    def get_since(self, connection: Connection) -> datetime:
        return datetime.fromtimestamp(connection.since_ms / 1_000, UTC)


class ClientPageOut(serializers.Serializer):
    """One page of connections."""

    items = ClientOut(many=True)
    next_page_token = serializers.CharField(
        source="next_token", allow_null=True, help_text="Ask for the next page with it; null at the end."
    )
    total = serializers.IntegerField(help_text="Connections that match.")
    is_cut = serializers.BooleanField(help_text=f"The instance has more than the {CONNECTIONS_LISTED_MAX} listed.")
    silent = SilentOut(many=True, help_text="Brokers that did not answer: connections to them are missing.")


class ClientCollection(ApiView):
    tag = "Clients"

    @endpoint("list_clients", Scope.CLIENTS_READ, query=ClientQuery, returns=ClientPageOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str) -> Response:
        """List the current connections of clients, over all brokers of the instance.

        The list is at most two seconds old.
        """
        page = connection_page(
            access.instance(self.actor, instance_id),
            contains=self.query.get("contains", ""),
            sort=self.query["sort"],
            page_token=self.query.get("page_token") or "",
            page_size=self.query["page_size"],
        )
        return self.one(page, ClientPageOut)


class ClientResource(ApiView):
    tag = "Clients"

    @endpoint("get_client", Scope.CLIENTS_READ, returns=ClientOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str, connection_id: str) -> Response:
        """Read one connection."""
        return self.one(connection_detail(access.instance(self.actor, instance_id), connection_id), ClientOut)

    @endpoint("close_client", Scope.CLIENTS_WRITE, status=204, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str, connection_id: str) -> Response:
        """Close a connection. Its client reconnects unless its user is disabled or its address is excluded."""
        instance = access.instance(self.actor, instance_id)
        services.close_connection(
            acting=self.actor, instance=instance, connection_id=connection_id, dry_run=self.dry_run
        )
        return self.nothing()
