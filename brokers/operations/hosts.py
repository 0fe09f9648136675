"""Services for operators: adding hosts to the fleet, changing them, and removing those without brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.contract.ports import HIGHEST_PORT, LOWEST_PORT
from brokers.limits import (
    ADDRESS_CHARS_MAX,
    BROKER_CAPACITY_MAX,
    DIRECTORIES_MAX,
    HOST_NAME_CHARS_MAX,
    HOSTS_MAX,
    PATH_CHARS_MAX,
    ZONE_CHARS_MAX,
)
from brokers.models import AgentCertificate, Broker, FormerPort, Host, PortLease
from brokers.operations import revocation
from brokers.operations.host_rules import NAME, HostAddresses, find_overlap, normalised_address, normalised_directory
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, FieldError, Invalid, Message, NotFound

ADDRESS_FIELDS = ("advertised_host", "bind_host", "internal_host")
PORT_FIELDS = ("port_first", "port_last")
CAPACITY_FIELDS = ("capacity_mb_s", "capacity_gb")
AUDITED_FIELDS = ("name", "zone", *ADDRESS_FIELDS, *PORT_FIELDS, *CAPACITY_FIELDS, "data_dirs")
CHANGEABLE = AUDITED_FIELDS[1:]


def agent_command(host: Host) -> str:
    """Returns the command line that starts the agent of a host on its machine."""
    return f"manage.py agent --host {host.name}"


def locked_hosts() -> list[Host]:
    """Returns all hosts of the fleet, locked in a fixed order: ports are compared over all of them."""
    return list(Host.objects.select_for_update(no_key=True).filter(removed_at=None).order_by("pk"))


def locked_host(host_id: str) -> Host:
    """Returns one host, with all hosts locked. Raises `NotFound`."""
    row = next((host for host in locked_hosts() if host.pk == host_id), None)
    if row is None:
        raise NotFound
    return row


@transaction.atomic
def add_host(*, acting: Actor, name: str, advertised_host: str, **fields: Any) -> Host:
    """Creates a host; its agent is started by hand (`agent_command`). The bind address and the internal address are the
    advertised host unless `bind_host` and `internal_host` are given.

    Raises `Invalid` for a wrong value and `Conflict` for a name or a port that is taken.
    """
    access.require(acting, Scope.OPERATOR)
    hosts = locked_hosts()
    if len(hosts) >= HOSTS_MAX:
        raise Conflict(Message(gettext_noop("A fleet has at most %(n)s hosts."), n=HOSTS_MAX), code="fleet_full")
    if not NAME.fullmatch(name) or len(name) > HOST_NAME_CHARS_MAX:
        raise Invalid.at("/name", _name_rule(HOST_NAME_CHARS_MAX), code="invalid_name")
    if any(host.name == name for host in hosts):
        raise _name_taken()
    values = {"advertised_host": advertised_host, "bind_host": advertised_host, "internal_host": advertised_host}
    values |= {key: value for key, value in fields.items() if value not in (None, "")}
    new_host = Host(name=name, **_validated(values))
    _require_free_ports(new_host, hosts)
    try:
        with transaction.atomic():
            new_host.save(force_insert=True)
    except IntegrityError:
        raise _name_taken() from None
    audit.record(acting, "host.added", new_host, None, audited_fields(new_host))
    return new_host


@transaction.atomic
def change_host(*, acting: Actor, host: Host, changes: Mapping[str, Any]) -> Host:
    """Changes the given fields. The name cannot change, because the agent is started with it.

    Raises `Conflict` if brokers or instances rely on the former value: addresses of listeners while there are brokers
    (`has_brokers`), the advertised host while instances have ports (`has_instances`), ports in use by instances
    (`ports_in_use`), a capacity below what its brokers sell (`sold`), a zone outside those of a cluster of its brokers
    (`other_zone`), and no zone where other brokers of a cluster have one (`zone_missing`).
    """
    access.require(acting, Scope.OPERATOR)
    hosts = locked_hosts()
    row = next((candidate for candidate in hosts if candidate.pk == host.pk), None)
    if row is None:
        raise Conflict("The host is removed.", code="removed")
    validated = _validated({key: value for key, value in changes.items() if key in CHANGEABLE}, row)
    changed = {key: value for key, value in validated.items() if getattr(row, key) != value}
    if not changed:
        return row
    before = {key: getattr(row, key) for key in changed}
    for key, value in changed.items():
        setattr(row, key, value)
    _require_no_reliance(row, set(changed))
    if "zone" in changed:
        _require_zone_of_clusters(row)
    _require_free_ports(row, hosts)
    row.save_changes(list(changed))
    audit.record(acting, "host.changed", row, before, changed)
    return row


@transaction.atomic
def remove_host(*, acting: Actor, host: Host) -> Host:
    """Removes a host without brokers from the fleet. Raises `Conflict` (`has_brokers`) for a host with brokers."""
    access.require(acting, Scope.OPERATOR)
    row = Host.objects.select_for_update().get(pk=host.pk)
    if row.removed_at is not None:
        return row
    brokers = Broker.objects.filter(host=row, removed_at=None).count()
    if brokers or PortLease.objects.filter(host=row).exists():
        raise Conflict(
            Message(
                gettext_noop(
                    "Host %(name)s has %(n)s brokers. Remove them first: drain each, or retire their cluster."
                ),
                name=row.name,
                n=brokers,
            ),
            code="has_brokers",
        )
    row.removed_at = timezone.now()
    row.save_changes(["removed_at"])
    AgentCertificate.objects.filter(host=row, revoked_at=None).update(revoked_at=row.removed_at)
    revocation.revoke_for_host(row, row.removed_at)
    FormerPort.objects.filter(host=row).delete()
    audit.record(acting, "host.removed", row, audited_fields(row), None)
    return row


def addresses_of(hosts: Iterable[Host]) -> list[HostAddresses]:
    """Returns the hosts in the form that the rules compare."""
    rows = list(hosts)
    own_ports: dict[str, set[int]] = {host.pk: set() for host in rows}
    brokers = Broker.objects.filter(host__in=rows, removed_at=None)
    for host_id, internal, admin in brokers.values_list("host_id", "internal_port", "admin_port"):
        own_ports[host_id] |= {internal, admin}
    return [
        HostAddresses(
            name=host.name,
            bind_host=host.bind_host,
            advertised_host=host.advertised_host,
            internal_host=host.internal_host,
            port_first=host.port_first,
            port_last=host.port_last,
            own_ports=frozenset(own_ports[host.pk]),
        )
        for host in rows
    ]


def audited_fields(host: Host) -> dict[str, Any]:
    """Returns the fields of a host that the audit log stores."""
    return {name: getattr(host, name) for name in AUDITED_FIELDS}


def _validated(values: Mapping[str, Any], current: Host | None = None) -> dict[str, Any]:
    """Returns the values in normal form; each wrong value is an error at its own pointer."""
    result = dict(values)
    errors: list[FieldError] = []

    def refuse(name: str, detail: str, code: str) -> None:
        errors.append(FieldError(pointer=f"/{name}", detail=detail, code=code))

    for name in ADDRESS_FIELDS:
        if name not in result:
            continue
        address = normalised_address(str(result[name]), wildcard=name == "bind_host")
        if address is None or len(address) > ADDRESS_CHARS_MAX:
            refuse(name, "This is no host name and no address. A port is not part of it.", "invalid_host")
        else:
            result[name] = address
    zone = result.get("zone", "")
    if zone and (not NAME.fullmatch(zone) or len(zone) > ZONE_CHARS_MAX):
        refuse("zone", _name_rule(ZONE_CHARS_MAX), "invalid_name")
    for name in PORT_FIELDS:
        if name in result and not LOWEST_PORT <= result[name] <= HIGHEST_PORT:
            refuse(
                name,
                Message(gettext_noop("A port from %(first)s to %(last)s."), first=LOWEST_PORT, last=HIGHEST_PORT),
                "out_of_range",
            )
    first = result.get("port_first", current.port_first if current else None)
    last = result.get("port_last", current.port_last if current else None)
    if first is not None and last is not None and first > last:
        refuse("port_last", "The last port is below the first one.", "out_of_range")
    for name in CAPACITY_FIELDS:
        if result.get(name) is not None and not 1 <= result[name] <= BROKER_CAPACITY_MAX:
            refuse(
                name,
                Message(gettext_noop("A whole number from 1 to %(most)s."), most=f"{BROKER_CAPACITY_MAX:,}"),
                "out_of_range",
            )
    for field, detail, code in wrong_directories(result.get("data_dirs", ())):
        refuse(field, detail, code)
    if errors:
        raise Invalid(errors[0].detail, errors=errors)
    return result


def wrong_directories(paths: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    """Yields the field, the reason and the code of each path that cannot be a log directory beside the others."""
    if len(paths) > DIRECTORIES_MAX:
        yield "data_dirs", Message(gettext_noop("At most %(n)s directories."), n=DIRECTORIES_MAX), "too_many"
    for index, path in enumerate(paths):
        pure = PurePosixPath(path)
        if not pure.is_absolute() or ".." in pure.parts or len(path) > PATH_CHARS_MAX or "\0" in path:
            yield f"data_dirs/{index}", "An absolute path.", "invalid_path"
        elif normalised_directory(path) in map(normalised_directory, paths[:index]):
            yield f"data_dirs/{index}", "This directory is named twice.", "taken"


def _require_free_ports(host: Host, hosts: Iterable[Host]) -> None:
    host_addresses, *others = addresses_of([host, *(other for other in hosts if other.pk != host.pk)])
    conflict = find_overlap(host_addresses, others)
    if conflict is not None:
        errors = Invalid.at("/port_first", conflict.detail, code=conflict.code).errors
        raise Conflict(conflict.detail, code=conflict.code, errors=errors)


def _require_no_reliance(host: Host, changed: set[str]) -> None:
    brokers = Broker.objects.filter(host=host, removed_at=None)
    if changed & {"bind_host", "internal_host"} and brokers.exists():
        raise Conflict("Its brokers listen there. Remove them first.", code="has_brokers")
    leases = PortLease.objects.filter(host=host)
    if "advertised_host" in changed and leases.exists():
        raise Conflict("Clients of instances know that address. Move the instances first.", code="has_instances")
    outside = leases.exclude(port__gte=host.port_first, port__lte=host.port_last).order_by("port").first()
    if changed & set(PORT_FIELDS) and outside is not None:
        raise Conflict(
            Message(gettext_noop("Port %(port)s is that of an instance."), port=outside.port), code="ports_in_use"
        )
    for name, sold in zip(CAPACITY_FIELDS, sold_by_brokers(host), strict=True):
        limit = getattr(host, name)
        if name in changed and limit is not None and sold > limit:
            raise Conflict(Message(gettext_noop("Its brokers may sell %(n)s already."), n=f"{sold:,}"), code="sold")


def _require_zone_of_clusters(host: Host) -> None:
    """Raises `Conflict` if a cluster with brokers on the host has no place for its zone.

    A zone where other hosts have none yet is accepted: it takes effect when each of them has one
    (`brokers.agent.database.process_settings`).
    """
    for broker in Broker.objects.filter(host=host, removed_at=None).select_related("cluster"):
        cluster = broker.cluster
        if cluster.zones and host.zone not in cluster.zones:
            raise Conflict(
                Message(
                    gettext_noop("The cluster's brokers are in the zones %(zones)s, the host is in %(zone)s."),
                    zones=", ".join(cluster.zones),
                    zone=host.zone or "none",
                ),
                code="other_zone",
            )
        if host.zone or broker.rack:
            continue
        others = Broker.objects.filter(cluster=cluster, removed_at=None).exclude(host=host, rack="")
        zoned_broker = next((row for row in others.select_related("host") if row.effective_rack), None)
        if zoned_broker is not None:
            raise Conflict(
                Message(
                    gettext_noop("Broker %(id)s of its cluster is in the zone %(zone)s: the host needs a zone, too."),
                    id=zoned_broker.number,
                    zone=zoned_broker.effective_rack,
                ),
                code="zone_missing",
            )


def sold_by_brokers(host: Host) -> tuple[int, int]:
    """Returns the MB/s and GB that the brokers of a host may sell in total."""
    rows = Broker.objects.filter(host=host, removed_at=None).values_list("bandwidth_mb_s", "storage_gb")
    return sum(mb_s for mb_s, _ in rows), sum(gb for _, gb in rows)


def _name_rule(chars_max: int) -> str:
    return Message(gettext_noop("Small letters, digits and - in between; at most %(n)s characters."), n=chars_max)


def _name_taken() -> Conflict:
    detail = "Another host has this name."
    return Conflict(detail, code="name_taken", errors=Invalid.at("/name", detail, code="name_taken").errors)
