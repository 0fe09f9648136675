"""Initial rows of an installation: plans, one cluster on this machine, an operator, and a demo tenant.

All functions are idempotent.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connections

from billing.services import ensure_default_plans
from brokers.choices import ClusterState, WantedState
from brokers.contract.upstream import UpstreamSettings
from brokers.dataplane import upstream_probe
from brokers.infra.certificates import CA_FILE
from brokers.models import Broker, Cluster, Host
from brokers.operations.clusters import add_cluster
from brokers.operations.hosts import add_host
from brokers.operations.seed import seed_fleet
from config.embedded.process import StartFailed
from config.environment import SECRETS_DIR
from config.supervisor.options import UpOptions
from config.supervisor.outgoing import tenant_ports
from config.supervisor.probe import answers_ok
from config.supervisor.ready import DemoInstance, ReadyLogin, ReadyTenant, SaslLogin
from config.supervisor.state import StateDirectory, write_private_json
from instances import interfaces
from instances import selectors as instance_selectors
from instances import services as instance_services
from instances.lifecycle.phases import Phase
from instances.models import Instance
from instances.routes.kinds import WITH_TLS
from instances.users import selectors as user_selectors
from instances.users.limits import SECRETS_PER_USER_MAX
from instances.users.routes import first_route, needs_user
from tenants import services as tenant_services
from tenants.actors import member_actor, system_actor
from tenants.demo import demo_owner, ensure_demo_tenant
from tenants.errors import Conflict, Invalid, NotFound, Unavailable
from tenants.models import Member
from tenants.operator_token import ensure_operator_token

CLUSTER_NAME = "local"
KAFKA_CLUSTER_NAME = "kafka"
OPERATOR_EMAIL = "operator@penstock.example"
DEMO_EMAIL = "demo@penstock.example"
DEMO_INSTANCE = "demo"
DEMO_TOPIC = "hello"
DEMO_USER = "demo"
DEMO_MECHANISM = "SCRAM-SHA-512"
# Large enough for trying the product with real load.
DEMO_BANDWIDTH_MB_S = 200
DEMO_STORAGE_GB = 500
PASSWORD_BYTES = 12
LOGINS_FILE = "logins.json"

BEING_PROVISIONED = frozenset({Phase.REQUESTED, Phase.PROVISIONING})

Wait = Callable[[Callable[[], bool], str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """Accounts that may sign in."""

    operator: ReadyLogin
    operator_token: str
    tenant: ReadyTenant | None


def ensure_fleet(options: UpOptions, host_name: str) -> None:
    """Creates plans and the wanted state of the cluster on this machine, which the agent will start."""
    ensure_default_plans()
    seed_fleet(
        cluster_name=CLUSTER_NAME,
        host_name=host_name,
        brokers=options.brokers,
        port_base=options.port_base,
        ports=tenant_ports(options.port_base),
        internal_port_base=options.internal_ports.start,
        admin_port_base=options.admin_ports.start,
        data_root=options.state_dir / "brokers",
    )


def ensure_further_fleet(options: UpOptions, host_name: str) -> list[str]:
    """Creates further hosts, each with a loopback address, and clusters on them; existing ones do not change.

    Returns the names of these hosts, whose agents must be started.
    """
    acting = system_actor("up")
    addresses = {f"{host_name}-{number}": f"127.0.0.{number}" for number in range(2, options.hosts + 1)}
    existing_names = set(Host.objects.filter(removed_at=None).values_list("name", flat=True))
    for name, address in addresses.items():
        if name not in existing_names:
            last = options.port_base + tenant_ports(options.port_base) - 1
            add_host(
                acting=acting, name=name, zone=name, advertised_host=address, port_first=options.port_base,
                port_last=last,
            )  # fmt: skip
    hosts = list(Host.objects.filter(removed_at=None, name__in=addresses or [host_name]).order_by("advertised_host"))
    for number in range(2, options.clusters + 1):
        name = f"{CLUSTER_NAME}-{number}"
        if not Cluster.objects.active().filter(name=name).exists():
            chosen = [hosts[index % len(hosts)] for index in range(options.brokers)]
            add_cluster(acting=acting, name=name, hosts=chosen)
    return list(addresses)


def ensure_kafka_cluster(host_name: str, bootstrap_servers: str, *, for_demo: bool) -> None:
    """Creates the cluster of gateways in front of an Apache Kafka, with `for_demo` for the demo tenant alone."""
    if Cluster.objects.active().filter(name=KAFKA_CLUSTER_NAME).exists():
        return
    try:
        upstream = upstream_probe.probe(UpstreamSettings(bootstrap_servers=bootstrap_servers))
    except Invalid as error:
        raise StartFailed(f"Apache Kafka cannot be used: {error}", "See kafka.log.") from error
    add_cluster(
        acting=system_actor("up"),
        name=KAFKA_CLUSTER_NAME,
        hosts=[Host.objects.get(name=host_name, removed_at=None)],
        brokers_per_instance_min=1,
        tenant_ids=[demo_owner(DEMO_EMAIL).tenant_id] if for_demo else (),
        upstream=upstream,
    )


def clusters_are_formed() -> bool:
    """True if no cluster is being formed."""
    return not Cluster.objects.filter(state=ClusterState.FORMING).exists()


def brokers_serve() -> bool:
    """True if every broker that should run reports that it serves."""
    brokers = Broker.objects.filter(cluster__name=CLUSTER_NAME, wanted=WantedState.RUNNING).select_related("host")
    return all(answers_ok(*broker.admin_address, "/readyz") for broker in brokers)


def ensure_accounts(state: StateDirectory, *, with_demo: bool, say: Callable[[str], None]) -> Seeded:
    """Creates the operator and the demo tenant's owner; their passwords are stored in the state directory."""
    logins = _Logins(state)
    operator = logins.login("operator", OPERATOR_EMAIL)
    login = logins.login("demo", DEMO_EMAIL) if with_demo else None
    if logins.are_lost:
        # Existing accounts need known passwords. This comes first, because the loss is no longer visible once the file
        # is complete.
        for account in (operator, logins.login("demo", DEMO_EMAIL)):
            if tenant_services.replace_password(email=account.username, password=account.password):
                say(f"The file of logins was unreadable: {account.username} has a new password, shown below")
    # Saved before the accounts are created: an interruption must not leave accounts with unknown passwords.
    logins.save()
    tenant_services.create_operator(email=operator.username, password=operator.password)
    tenant = None
    if login is not None:
        demo = ensure_demo_tenant(
            email=login.username, password=login.password, token_secret=logins.known.get("demo_token")
        )
        logins.known["demo_token"] = demo.token_secret
        tenant = ReadyTenant(slug=demo.tenant.slug, token=demo.token_secret, login=login)
        logins.save()
    return Seeded(operator=operator, operator_token=operator_token(state), tenant=tenant)


def operator_token(state: StateDirectory) -> str:
    """Returns the API token of the operator, stored in the state directory; recreated if it is invalid.

    Raises `NotFound` before there is an operator.
    """
    logins = _Logins(state)
    secret = ensure_operator_token(email=OPERATOR_EMAIL, stored_secret=logins.known.get("operator_token"))
    if logins.known.get("operator_token") != secret:
        logins.known["operator_token"] = secret
        logins.save()
    return secret


def demo_instance(state: StateDirectory, *, wait: Wait) -> DemoInstance:
    """Returns the demo tenant's running instance, created if needed, with a user if clients must sign in."""
    member = demo_owner(DEMO_EMAIL)
    result = instance_selectors.instance_list(member.tenant).filter(name=DEMO_INSTANCE).first()
    instance = result or _create_demo_instance(member)

    def is_complete() -> bool:
        instance.refresh_from_db()
        return instance.current_phase not in BEING_PROVISIONED

    wait(is_complete, f"the demo instance {instance.pk}", "worker")
    if instance.current_phase is Phase.FAILED:
        raise StartFailed(f"The demo instance {instance.pk} could not be made: {instance.reason}", "See the logs.")
    is_on_kafka = interfaces.is_on_kafka.implementation(instance.pk)
    if is_on_kafka:
        _ensure_demo_topic(member, instance, wait)
    return DemoInstance(
        id=instance.pk,
        bootstrap_servers=instance.bootstrap_servers,
        topic=DEMO_TOPIC,
        sasl=demo_user(state, member, instance, wait=wait) if needs_user(instance) else None,
        is_on_kafka=is_on_kafka,
    )


def _ensure_demo_topic(member: Member, instance: Instance, wait: Wait) -> None:
    """Creates the demo topic: a gateway creates none for a producer, as brokers do."""

    def exists() -> bool:
        try:
            instance_services.create_topic(acting=member_actor(member), instance=instance, name=DEMO_TOPIC)
        except Unavailable:  # gateways are opening its listeners
            return False
        except Conflict:  # it was created by an earlier start
            return True
        return True

    wait(exists, f"the topic of the demo instance {instance.pk}", "agent")


def demo_user(state: StateDirectory, member: Member, instance: Instance, *, wait: Wait) -> SaslLogin:
    """Returns the demo instance's user with full access and its stored password; recreated if either is missing."""
    logins = _Logins(state)

    def is_there() -> bool:
        try:
            _ensure_password(logins, member, instance)
            return True
        except Unavailable:  # brokers are opening its listeners
            return False

    wait(is_there, f"the user of the demo instance {instance.pk}", "agent")
    route = first_route(instance)
    assert route is not None, "its users sign in somewhere"
    return SaslLogin(
        mechanism=DEMO_MECHANISM,
        username=DEMO_USER,
        password=logins.known["demo_user_password"],
        security_protocol=route.security_protocol,
        ca_file=settings.TLS_DIR / CA_FILE if route.security in WITH_TLS and route.certificate is None else None,
    )


def _ensure_password(logins: _Logins, member: Member, instance: Instance) -> None:
    """Creates the user, or adds a secret to it, if its password is not stored."""
    acting = member_actor(member)
    try:
        user_secrets = user_selectors.user(instance, DEMO_USER).secrets
    except NotFound:
        _, secret = instance_services.create_user(acting=acting, instance=instance, name=DEMO_USER, superuser=True)
    else:
        if (
            logins.known.get("demo_user_key") in {stored_secret.id for stored_secret in user_secrets}
            and "demo_user_password" in logins.known
        ):
            return
        if len(user_secrets) >= SECRETS_PER_USER_MAX:
            oldest = user_secrets[0].id
            instance_services.remove_secret(acting=acting, instance=instance, name=DEMO_USER, secret_id=oldest)
        secret = instance_services.add_secret(acting=acting, instance=instance, name=DEMO_USER)
    logins.known |= {"demo_user_key": secret.id, "demo_user_password": secret.password}
    logins.save()


def _create_demo_instance(member: Member) -> Instance:
    return instance_services.create_instance(
        acting=member_actor(member),
        name=DEMO_INSTANCE,
        bandwidth_mb_s=DEMO_BANDWIDTH_MB_S,
        storage_gb=DEMO_STORAGE_GB,
    )[0]


def release_connections() -> None:
    """Closes database connections, which the supervisor no longer needs."""
    connections.close_all()


class _Logins:
    """Passwords and the demo token of this state directory, in a private file."""

    def __init__(self, state: StateDirectory) -> None:
        self.file = state.root / SECRETS_DIR / LOGINS_FILE
        self.known: dict[str, str] = {}
        self.are_lost = False
        if self.file.exists():
            try:
                self.known = _texts(json.loads(self.file.read_text("utf-8")))
            except ValueError:  # truncated by a power failure
                self.are_lost = True

    def login(self, name: str, email: str) -> ReadyLogin:
        password = self.known.setdefault(f"{name}_password", secrets.token_urlsafe(PASSWORD_BYTES))
        return ReadyLogin(username=email, password=password)

    def save(self) -> None:
        write_private_json(self.file, self.known)


def _texts(body: Any) -> dict[str, str]:
    """Checks that the document is an object of strings. Raises `ValueError`."""
    if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
        raise ValueError("not an object of texts")
    return body
