"""Settings file of a gateway: the upstream cluster, and the instances in front of it with their users, rights and
limits. docs/how-to/put-it-before-your-kafka.md explains it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
import ssl
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from brokers.contract import paths
from brokers.contract.acls import (
    USER_PREFIX,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.contract.documents import InstanceDocument, InstanceSettings
from brokers.contract.routes import DEFAULT_ROUTE, RouteDocument
from brokers.contract.upstream import SECURITY_PROTOCOLS, Address, parse_server, parse_servers
from brokers.contract.users import DIGESTS, ITERATIONS, RESERVED_NAMES, Secret, UserDocument, scram_salt
from brokers.engine.cluster.quota_image import QuotaEntity
from brokers.engine.cluster.user_plans import SaltedPassword, verifier_of
from brokers.engine.errors import SettingsWrong
from brokers.engine.upstream.connection import UpstreamLogin
from brokers.engine.upstream.node import PARTITIONS_MAX_DEFAULT
from instances.naming import is_instance_id
from instances.routes.kinds import MTLS, SECURITIES

T = TypeVar("T")

BYTES_PER_MB: Final = 1_000_000
QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
_OPEN_TO_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class GatewayInstance:
    """An instance with its users by node name, its access rules and its quotas."""

    id: str
    document: InstanceDocument
    users: Mapping[str, UserDocument]
    acls: Mapping[str, AclDocument]
    quotas: Mapping[QuotaEntity, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of one process. `nodes` are the upstream brokers that it serves."""

    bootstrap: tuple[Address, ...]
    login: UpstreamLogin
    bind_host: str
    certificate_file: Path | None
    nodes: frozenset[int]
    instances: tuple[GatewayInstance, ...]


def read(file: Path) -> GatewaySettings:
    """Reads the settings. Raises SettingsWrong."""
    try:
        if file.stat().st_mode & _OPEN_TO_OTHERS:
            raise SettingsWrong(f"{file} has passwords and must be readable by its owner only (chmod 600)")
        body = json.loads(file.read_text())
    except OSError as error:
        raise SettingsWrong(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsWrong(f"{file}: not JSON: {error}") from error
    try:
        return _settings(body, file.parent)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SettingsWrong(f"{file}: {reason}") from error


def _settings(body: Mapping[str, Any], folder: Path) -> GatewaySettings:
    _check_keys(body, "the file", "upstream", "instances", "bind_host", "tls_certificate_file")
    upstream = body["upstream"]
    _check_keys(upstream, "upstream", "bootstrap_servers", "security_protocol", "username", "password", "ca_file")
    instances = tuple(_instance(entry) for entry in body["instances"])
    if len({instance.id for instance in instances}) != len(instances):
        raise ValueError("two instances have one id")
    certificate = body.get("tls_certificate_file")
    return GatewaySettings(
        bootstrap=tuple(parse_servers(upstream["bootstrap_servers"])),
        login=_login(upstream, folder),
        bind_host=body.get("bind_host", "127.0.0.1"),
        certificate_file=None if certificate is None else folder / certificate,
        nodes=frozenset(node for instance in instances for node in instance.document.ports),
        instances=instances,
    )


def _check_keys(body: Mapping[str, Any], where: str, *known: str) -> None:
    """Raises ValueError for a key that nothing reads: a limit with a typing error must not be taken for none."""
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise ValueError(f"{where}: unknown keys: {', '.join(unknown)}")


def _login(upstream: Mapping[str, Any], folder: Path) -> UpstreamLogin:
    protocol = upstream.get("security_protocol", "PLAINTEXT")
    if protocol not in SECURITY_PROTOCOLS:
        raise ValueError(f"security_protocol is one of {', '.join(SECURITY_PROTOCOLS)}")
    tls = None
    if protocol.endswith("SSL"):
        ca_file = upstream.get("ca_file")
        try:
            tls = ssl.create_default_context(cafile=None if ca_file is None else str(folder / ca_file))
        except OSError as error:
            raise ValueError(f"ca_file: {error.strerror or error}") from error
    if not protocol.startswith("SASL"):
        return UpstreamLogin(tls)
    return UpstreamLogin(tls, upstream["username"], upstream["password"])


def _instance(body: Mapping[str, Any]) -> GatewayInstance:
    _check_keys(
        body, "instance", "id", "tenant", "bandwidth_mb_s", "partitions_max", "default_partitions", "open", "security",
        "nodes", "allow_list", "users", "acls", "quotas",
    )  # fmt: skip
    instance_id = body["id"]
    if not is_instance_id(instance_id):
        raise ValueError(f"not an instance id (ins- and 8 of a-z and 0-9): {instance_id!r}")
    security = body.get("security", "sasl_plaintext")
    if security not in SECURITIES or security == MTLS:
        raise ValueError(f"{instance_id}: security is one of {', '.join(sorted(set(SECURITIES) - {MTLS}))}")
    ports, endpoints = {}, {}
    for node in body["nodes"]:
        _check_keys(node, f"node of {instance_id}", "node", "port", "advertised")
        ports[int(node["node"])] = int(node["port"])
        endpoints[int(node["node"])] = str(node["advertised"])
        parse_server(str(node["advertised"]))
    bandwidth_bps = round(_rate(body, instance_id, "bandwidth_mb_s") * BYTES_PER_MB)
    route = RouteDocument(
        name=DEFAULT_ROUTE,
        security=security,
        ports=ports,
        endpoints=endpoints,
        allow_list=_allow_list(body, instance_id),
    )
    document = InstanceDocument(
        generation=1,
        produce_bps=bandwidth_bps,
        consume_bps=bandwidth_bps,
        capacity_bytes=0,
        partitions_max=int(body.get("partitions_max", PARTITIONS_MAX_DEFAULT)),
        endpoints=endpoints,
        ports=ports,
        settings=InstanceSettings(auto_create_topics=False, default_partitions=int(body.get("default_partitions", 1))),
        allow_everyone_if_no_acl=_flag(body, instance_id, "open"),
        routes=(route,),
        tenant_id=body.get("tenant", instance_id),
    )
    users = [_user(instance_id, user) for user in body.get("users", ())]
    return GatewayInstance(
        id=instance_id,
        document=document,
        users={paths.sanitise(user.name): user for user in users},
        acls=_acls(body.get("acls", ())),
        quotas=dict(_quota(quota) for quota in body.get("quotas", ())),
    )


def _text(body: Mapping[str, Any], where: str, key: str, default: str | None = None) -> str:
    """Returns a text. Raises ValueError for any other value: a rule with one would match nobody."""
    value = body[key] if default is None else body.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key} is text, in quotes")
    return value


def _rate(body: Mapping[str, Any], where: str, key: str) -> float:
    rate = float(body[key])
    if not 0 < rate < math.inf:
        raise ValueError(f"{where}: {key} is a number above 0")
    return rate


def _allow_list(body: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Returns the addresses and networks. Raises ValueError for what is none, since an empty list admits all."""
    entries = body.get("allow_list", [])
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise ValueError(f"{where}: allow_list is a list of addresses and networks")
    for entry in entries:
        ipaddress.ip_network(entry)
    return tuple(entries)


def _flag(body: Mapping[str, Any], where: str, key: str) -> bool:
    """Returns a value that is false by default. Raises ValueError for what is no boolean: a "false" in quotes must not
    be taken for true.
    """
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {key} is true or false, without quotes")
    return value


def _user(instance_id: str, body: Mapping[str, Any]) -> UserDocument:
    _check_keys(body, f"user of {instance_id}", "name", "password", "superuser")
    where = f"user of {instance_id}"
    name, password = _text(body, where, "name"), _text(body, where, "password")
    superuser = _flag(body, f"{instance_id}: user {name}", "superuser")
    if not name or name in RESERVED_NAMES:
        raise ValueError(f"{instance_id}: no user can be called {name!r}")
    if not password or not password.isascii():
        raise ValueError(f"{instance_id}: the password of {name} is empty or not ASCII")
    verifiers = tuple(
        verifier_of(_salt_password(mechanism, password, scram_salt(instance_id, name, mechanism)))
        for mechanism in sorted(DIGESTS)
    )
    secret = Secret(id="settings", created_at_ms=0, verifiers=verifiers)
    return UserDocument(name=name, created_at_ms=0, superuser=superuser, secrets=(secret,))


def _salt_password(mechanism: int, password: str, salt: bytes) -> SaltedPassword:
    derived = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode("ascii"), salt, ITERATIONS)
    return SaltedPassword(mechanism=mechanism, iterations=ITERATIONS, salt=salt, salted_password=derived)


def _acls(bodies: Any) -> dict[str, AclDocument]:
    entries: dict[ResourcePattern, set[AclEntry]] = {}
    for body in bodies:
        _check_keys(body, "acl", "resource_type", "name", "pattern_type", "user", "host", "operation", "permission")
        pattern = ResourcePattern(
            _parse_name(ResourceType, body["resource_type"]),
            _text(body, "acl", "name"),
            _parse_name(PatternType, body.get("pattern_type", "literal")),
        )
        entry = AclEntry(
            f"{USER_PREFIX}{_text(body, 'acl', 'user')}",
            _text(body, "acl", "host", "*"),
            _parse_name(AclOperation, body["operation"]),
            _parse_name(Permission, body.get("permission", "allow")),
        )
        entries.setdefault(pattern, set()).add(entry)
    return {
        pattern.node_name: AclDocument(pattern=pattern, entries=frozenset(of_pattern))
        for pattern, of_pattern in entries.items()
    }


def _parse_name(kind: Callable[[Any], T], text: str) -> T:
    member: T | None = getattr(kind, str(text).upper(), None)
    if member is None:
        raise ValueError(f"not known: {text!r}")
    return member


def _quota(body: Mapping[str, Any]) -> tuple[QuotaEntity, dict[str, float]]:
    """Returns an entity with its limits; a user or client id of null is the default for all."""
    _check_keys(body, "quota", "user", "client_id", *QUOTAS)
    names = [None if body.get(key) is None else _text(body, "quota", key) for key in ("user", "client_id")]
    entity = QuotaEntity("user" in body, names[0], "client_id" in body, names[1])
    if not entity.has_user and not entity.has_client:
        raise ValueError("a quota is of a user, a client_id, or both")
    return entity, {name: _rate(body, "quota", name) for name in QUOTAS if name in body}
