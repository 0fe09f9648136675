"""REST resources of hosts of the fleet."""

from __future__ import annotations

from typing import Any

from django.utils import translation
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.agent.check_rules import has_failed
from brokers.api.base import OperatorView
from brokers.api.views import BrokerOut
from brokers.choices import HostCheck, HostCheckState
from brokers.contract.ports import HIGHEST_PORT, LOWEST_PORT
from brokers.limits import (
    ADDRESS_CHARS_MAX,
    BROKER_CAPACITY_MAX,
    BROKERS_PER_HOST_MAX,
    DIRECTORIES_MAX,
    HOST_NAME_CHARS_MAX,
    PATH_CHARS_MAX,
    ZONE_CHARS_MAX,
)
from brokers.models import Host
from brokers.operations import hosts, joining
from brokers.operations.check_texts import shown_checks
from tenants.access import fetch
from tenants.api.base import API_ROOT, endpoint
from tenants.api.strict import Integer, StrictSerializer, Text
from tenants.choices import Scope

TOKEN_FIELDS = ("join_token", "join_token_expires_at", "join_command")
SHOWN_ONCE = ("join_token", "join_command")
CAPACITY_HELP = "What all brokers of the host together may sell; null is no limit."


def _port(**options: Any) -> Integer:
    return Integer(min_value=LOWEST_PORT, max_value=HIGHEST_PORT, **options)


def _capacity() -> Integer:
    return Integer(required=False, allow_null=True, min_value=1, max_value=BROKER_CAPACITY_MAX, help_text=CAPACITY_HELP)


class _HostFields(StrictSerializer):
    zone = Text(
        max_length=ZONE_CHARS_MAX,
        required=False,
        allow_blank=True,
        help_text="Rack of its brokers that have none of their own. A broker takes up a change when it restarts.",
    )
    bind_host = Text(
        max_length=ADDRESS_CHARS_MAX, required=False, help_text="Where brokers listen. Default: `advertised_host`."
    )
    internal_host = Text(
        max_length=ADDRESS_CHARS_MAX,
        required=False,
        help_text="Under which other brokers and the control plane reach them. Default: `advertised_host`.",
    )
    capacity_mb_s = _capacity()
    capacity_gb = _capacity()
    data_dirs = serializers.ListField(
        child=Text(max_length=PATH_CHARS_MAX),
        required=False,
        max_length=DIRECTORIES_MAX,
        help_text="Absolute paths below which each further broker keeps its log. Default: in the state directory.",
    )


class HostIn(_HostFields):
    name = Text(max_length=HOST_NAME_CHARS_MAX, help_text="By which its agent is started.")
    advertised_host = Text(max_length=ADDRESS_CHARS_MAX, help_text="Under which clients reach its brokers.")
    port_first = _port(help_text="First port that instances may get on this host.")
    port_last = _port(help_text="Last one.")


class HostPatch(_HostFields):
    advertised_host = Text(max_length=ADDRESS_CHARS_MAX, required=False)
    port_first = _port(required=False)
    port_last = _port(required=False)


class MachineOut(serializers.Serializer):
    """Use of a host's machine, as its agent measured it with its last checks."""

    cpus = serializers.IntegerField()
    cpu_percent = serializers.IntegerField(
        allow_null=True, help_text="Of all processors in the minute before; null: not known yet."
    )
    memory_bytes = serializers.IntegerField()
    memory_available_bytes = serializers.IntegerField(help_text="What programs could have without swapping.")


class HostOut(serializers.ModelSerializer[Host]):
    broker_count = serializers.IntegerField()
    used_mb_s = serializers.IntegerField(help_text="What its brokers may sell together, in MB/s.")
    used_gb = serializers.IntegerField()
    agent_is_alive = serializers.SerializerMethodField()
    agent_command = serializers.SerializerMethodField(
        help_text="Starts its agent on a host that reaches the database; the line with a join token needs none."
    )
    agent_certificate_expires_at = serializers.DateTimeField(
        allow_null=True, help_text="Of an agent that joined by a token; it is renewed before. Null: none, or revoked."
    )
    agent_version = serializers.CharField(allow_blank=True, help_text='Of the agent that checked it last; "" before.')
    checks_failed = serializers.SerializerMethodField(help_text="True if its last checks found something wrong.")
    machine = serializers.SerializerMethodField(help_text="Null: not measured yet, or by an agent of version 0.1.")

    class Meta:
        model = Host
        fields = (
            "id", "name", "zone", "advertised_host", "bind_host", "internal_host", "port_first", "port_last",
            "capacity_mb_s", "capacity_gb", "used_mb_s", "used_gb", "data_dirs", "broker_count", "agent_seen_at",
            "agent_is_alive", "agent_command", "agent_version", "agent_joined_at", "agent_certificate_expires_at",
            "checks_failed", "machine", "created_at",
        )  # fmt: skip

    def get_agent_is_alive(self, host: Host) -> bool:
        return selectors.agent_is_alive(host)

    def get_agent_command(self, host: Host) -> str:
        return hosts.agent_command(host)

    def get_checks_failed(self, host: Host) -> bool:
        return has_failed(host.checks)

    @extend_schema_field(MachineOut(allow_null=True))
    def get_machine(self, host: Host) -> dict[str, Any] | None:
        return dict(MachineOut(host.machine).data) if host.machine else None


class JoinTokenOut(serializers.Serializer):
    join_token = serializers.CharField(
        allow_null=True, help_text="For one use. It is not shown again, and null in a dry run."
    )
    join_token_expires_at = serializers.DateTimeField()
    join_command = serializers.CharField(allow_null=True, help_text="The line to run on the host.")


class HostMadeOut(HostOut):
    """Host with the token by which its agent joins."""

    join_token = serializers.CharField(
        allow_null=True, help_text="For one use. It is not shown again, and null in a dry run."
    )
    join_token_expires_at = serializers.DateTimeField()
    join_command = serializers.CharField(allow_null=True, help_text="The line to run on the host.")

    class Meta(HostOut.Meta):
        fields = (*HostOut.Meta.fields, *TOKEN_FIELDS)  # type: ignore[assignment]


class HostCheckOut(serializers.Serializer):
    name = serializers.CharField(help_text=f"One of {', '.join(HostCheck.values)}.")
    state = serializers.CharField(help_text=f"One of {', '.join(HostCheckState.values)}.")
    fact = serializers.CharField(help_text="What was found.")
    remedy = serializers.CharField(allow_blank=True, help_text="What to do about it.")


class DiskOut(serializers.Serializer):
    broker_id = serializers.CharField()
    path = serializers.CharField()
    total_bytes = serializers.IntegerField(allow_null=True, help_text="Of the volume.")
    usable_bytes = serializers.IntegerField(allow_null=True)
    offline_reason = serializers.CharField(allow_blank=True)


class HostDetailOut(HostOut):
    """Host with its checks, its brokers, and their last reported disks."""

    checked_at = serializers.DateTimeField(allow_null=True, help_text="When its agent made `checks`.")
    checks = serializers.SerializerMethodField()
    brokers = serializers.SerializerMethodField()
    disks = serializers.SerializerMethodField()

    class Meta(HostOut.Meta):
        fields = (*HostOut.Meta.fields, "checked_at", "checks", "brokers", "disks")  # type: ignore[assignment]

    def _brokers(self, host: Host) -> list[Any]:
        return list(selectors.brokers().filter(host=host)[:BROKERS_PER_HOST_MAX])

    @extend_schema_field(HostCheckOut(many=True))
    def get_checks(self, host: Host) -> list[dict[str, Any]]:
        with translation.override("en"):
            return [dict(HostCheckOut(check).data) for check in shown_checks(host)]

    def get_brokers(self, host: Host) -> list[dict[str, Any]]:
        return [dict(BrokerOut(broker).data) for broker in self._brokers(host)]

    def get_disks(self, host: Host) -> list[dict[str, Any]]:
        return [dict(DiskOut(disk).data) for disk in selectors.disks_of(self._brokers(host))]


class HostCollection(OperatorView):
    @endpoint("list_hosts", Scope.OPERATOR, page_item=HostOut)
    def get(self, request: Request) -> Response:
        """List hosts."""
        return self.page(selectors.hosts(), HostOut, order=("name", "id"))

    @endpoint(
        "add_host",
        Scope.OPERATOR,
        body=HostIn,
        returns=HostMadeOut,
        status=201,
        secret_fields=SHOWN_ONCE,
        errors=(409,),
    )
    def post(self, request: Request) -> Response:
        """Add a host. `join_command` in the response is the line to run there; its token is for one use within an hour.

        Two hosts with one address must not share ports.
        """
        host = hosts.add_host(acting=self.actor, **self.body)
        token = shown_token(joining.new_join_token(acting=self.actor, host=host), is_dry_run=self.dry_run)
        row = fetch(selectors.hosts(), pk=host.pk)
        for name, value in token.items():
            setattr(row, name, value)
        return self.one(row, HostMadeOut, status=201, location=f"{API_ROOT}/operator/hosts/{host.pk}")


class HostJoinToken(OperatorView):
    @endpoint(
        "make_join_token", Scope.OPERATOR, returns=JoinTokenOut, status=201, secret_fields=SHOWN_ONCE, errors=(404, 409)
    )
    def post(self, request: Request, host_id: str) -> Response:
        """Make a new join token of a host.

        An unused earlier one is void, and the certificate of its agent is revoked: no agent of the host is heard until
        one has joined with the new token. If an agent had joined before, certificates of its brokers are revoked, too:
        within 30 s other brokers refuse them, and once the agent has joined again, they get new ones.
        """
        row = hosts.locked_host(host_id)
        token = shown_token(joining.new_join_token(acting=self.actor, host=row), is_dry_run=self.dry_run)
        return self.one(token, JoinTokenOut, status=201)


def shown_token(token: joining.JoinToken, *, is_dry_run: bool) -> dict[str, Any]:
    """Returns the fields of a join token; a dry run has none that could be used."""
    return {
        "join_token": None if is_dry_run else token.secret,
        "join_token_expires_at": token.expires_at,
        "join_command": None if is_dry_run else token.command,
    }


class HostResource(OperatorView):
    @endpoint("get_host", Scope.OPERATOR, returns=HostDetailOut)
    def get(self, request: Request, host_id: str) -> Response:
        """Read a host with its brokers and their disks."""
        return self.one(fetch(selectors.hosts(), pk=host_id), HostDetailOut)

    @endpoint("change_host", Scope.OPERATOR, body=HostPatch, returns=HostOut, requires_if_match=True, errors=(404, 409))
    def patch(self, request: Request, host_id: str) -> Response:
        """Change a host.

        Listen addresses can be changed while it has no brokers, the advertised host and tenant ports while they are
        unused. Directories apply to brokers that are added later.
        """
        row = hosts.locked_host(host_id)
        self.require_match(row)
        hosts.change_host(acting=self.actor, host=row, changes=self.body)
        return self.one(fetch(selectors.hosts(), pk=host_id), HostOut)

    @endpoint("remove_host", Scope.OPERATOR, status=204, requires_if_match=True, errors=(404, 409))
    def delete(self, request: Request, host_id: str) -> Response:
        """Remove a host without brokers. Stop its agent afterwards."""
        row = hosts.locked_host(host_id)
        self.require_match(row)
        hosts.remove_host(acting=self.actor, host=row)
        return self.nothing()
