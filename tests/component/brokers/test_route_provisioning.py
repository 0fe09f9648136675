"""Routes from rows to documents: each with its own ports, opened and closed while the instance runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from brokers.agent import broker_certificates
from brokers.contract import paths
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import InstanceDocument, change_from_json
from brokers.contract.routes import RouteDocument
from brokers.models import Cluster, FormerPort, PortLease
from brokers.monitoring.observe import targets_of_instance
from brokers.placement import instance_placement
from brokers.provisioning import reconciler
from brokers.provisioning.steps import RetryLater
from brokers.selectors import instances_by_broker, is_exposed
from instances import services
from instances.choices import OperationState
from instances.models import Instance, Operation, Route
from tenants.actors import Actor, member_actor
from tests.testkit.api_cases import make_member
from tests.testkit.client_certificates import Authority
from tests.testkit.fleet import AcknowledgingBrokers

pytestmark = pytest.mark.django_db

WANTED = (
    {"name": "inside", "security": "sasl_plaintext", "allow_list": ["10.0.0.0/8"]},
    {"name": "open", "security": "plaintext", "connections_max": 7},
)


@pytest.fixture()
def acting() -> Actor:
    return member_actor(make_member())


@pytest.fixture()
def instance(acting: Actor, cluster: Cluster, brokers: AcknowledgingBrokers) -> Instance:
    made = services.create_instance(acting=acting, name="orders", routes=WANTED)[0]
    assert reconciler.reconcile(made.pk) == "running at generation 1"
    return Instance.objects.get(pk=made.pk)


def published(brokers: AcknowledgingBrokers, instance: Instance) -> InstanceDocument:
    raw = brokers.read(paths.instance(instance.pk))
    assert raw is not None
    return InstanceDocument.from_json(raw)


def by_name(document: InstanceDocument) -> dict[str, RouteDocument]:
    return {route.name: route for route in document.routes}


def locked(instance: Instance) -> Instance:
    return Instance.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=instance.pk)


def test_every_route_has_a_port_on_every_broker(brokers: AcknowledgingBrokers, instance: Instance) -> None:
    document = published(brokers, instance)
    inside, opened = document.routes
    assert (inside.name, inside.security, inside.allow_list) == ("inside", "sasl_plaintext", ("10.0.0.0/8",))
    assert (opened.name, opened.connections_max) == ("open", 7)
    assert set(inside.ports) == set(opened.ports) == {1, 2, 3}
    assert len({*inside.ports.values(), *opened.ports.values()}) == 6
    assert (document.endpoints, document.ports) == (inside.endpoints, opened.ports)
    for route in document.routes:
        for number, port in route.ports.items():
            assert brokers.read(paths.instance_port(number, port)) == instance.pk.encode()
    rows = {route.name: route.bootstrap_servers.split(",") for route in instance.routes.all()}
    assert rows == {route.name: [route.endpoints[number] for number in (1, 2, 3)] for route in document.routes}
    assert instance.bootstrap_servers.split(",") == rows["inside"]


def test_a_protected_instance_waits_for_brokers_of_an_earlier_version_and_then_says_what_to_do(
    brokers: AcknowledgingBrokers, acting: Actor, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These brokers find no port in the document that they may open, and confirm nothing."""
    monkeypatch.setattr(reconciler, "ACK_DEADLINE_S", 1.0)
    routes = [{"name": "inside", "security": "sasl_plaintext"}]
    made = services.create_instance(acting=acting, name="protected", routes=routes)[0]
    brokers.silent = {2}
    with pytest.raises(RetryLater, match=r"brokers \[2\]"):
        reconciler.reconcile(made.pk)
    document = published(brokers, made)
    assert document.ports == {}
    assert document.serving == {1, 2, 3}
    long_ago = timezone.now() - timedelta(seconds=reconciler.PROVISION_DEADLINE_S + 1)
    Instance.objects.filter(pk=made.pk).update(phase_since=long_ago)

    reconciler.reconcile(made.pk)

    error = Operation.objects.get(instance=made).error
    assert error["code"] == "brokers_silent"
    assert "Brokers [2]" in error["detail"]
    assert "earlier version" in error["detail"]
    assert "Nothing was charged" in error["detail"]
    assert brokers.read(paths.instance(made.pk)) is None


def test_an_instance_counts_once_however_many_routes_it_has(instance: Instance, cluster: Cluster) -> None:
    assert instances_by_broker(cluster) == {1: 1, 2: 1, 3: 1}
    assert [target.number for target in targets_of_instance(instance.pk)] == [1, 2, 3]


def test_a_route_that_is_opened_later_gets_ports_and_its_operation_ends(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    wanted = {"name": "outside", "security": "tls", "advertised_host": "kafka.example"}
    before = by_name(published(brokers, instance))
    _, operation = services.create_route(acting=acting, instance=locked(instance), route=wanted)
    assert reconciler.reconcile(instance.pk) == "running at generation 2"
    after = by_name(published(brokers, instance))
    assert {name: after[name] for name in before} == before
    assert set(after["outside"].endpoints.values()) == {
        f"kafka.example:{port}" for port in after["outside"].ports.values()
    }
    operation.refresh_from_db()
    assert operation.state == OperationState.SUCCEEDED


def test_certificates_are_published_before_the_document_that_counts_them_in(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    authority = Authority.make("Acme CA")
    services.create_route(acting=acting, instance=locked(instance), route={"name": "secure", "security": "mtls"})
    route = instance.routes.get(name="secure")
    services.set_client_ca(acting=acting, instance=locked(instance), route=route, ca_pem=authority.pem)
    assert reconciler.reconcile(instance.pk) == "running at generation 3"
    path = paths.instance_route_certificates(instance.pk, "secure")
    raw = brokers.read(path)
    assert raw is not None and CertificatesDocument.from_json(raw).client_ca_pem == authority.pem
    changes = [brokers.read(f"{paths.CHANGES}/{name}") for name in brokers.children(paths.CHANGES)]
    announced = [path for change in changes if change for path in change_from_json(change)]
    assert announced[-2:] == [f"instances/{instance.pk}/certificates/secure", f"instances/{instance.pk}"]
    services.remove_client_ca(acting=acting, instance=locked(instance), route=route)
    reconciler.reconcile(instance.pk)
    assert brokers.read(path) is None
    services.set_client_ca(acting=acting, instance=locked(instance), route=route, ca_pem=authority.pem)
    services.delete_route(acting=acting, instance=locked(instance), route=instance.routes.get(name="secure"))
    reconciler.reconcile(instance.pk)
    assert brokers.children(paths.instance_certificates(instance.pk)) == []


def test_the_ports_of_a_closed_route_are_held_until_every_broker_knows(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    brokers.silent = {2}
    services.delete_route(acting=acting, instance=locked(instance), route=instance.routes.get(name="inside"))
    with pytest.raises(reconciler.RetryLater):
        reconciler.reconcile(instance.pk)
    assert PortLease.objects.filter(instance=instance).count() == 6
    brokers.silent = set()
    brokers.look_again()
    assert reconciler.reconcile(instance.pk) == "running at generation 2"
    assert PortLease.objects.filter(instance=instance).count() == 3
    document = published(brokers, instance)
    assert [route.name for route in document.routes] == ["open"]
    assert document.endpoints == document.routes[0].endpoints


def test_only_the_port_that_a_stranger_has_is_replaced(
    brokers: AcknowledgingBrokers, instance: Instance, acting: Actor
) -> None:
    before = by_name(published(brokers, instance))
    brokers.refuses = {2: {before["open"].ports[2]}}
    services.update_route(
        acting=acting,
        instance=locked(instance),
        route=instance.routes.get(name="open"),
        changes={"proxies": ["10.1.1.1"]},
    )
    assert reconciler.reconcile(instance.pk) == "running at generation 3"
    after = by_name(published(brokers, instance))
    assert after["inside"].ports == before["inside"].ports
    differing = {number for number, port in after["open"].ports.items() if port != before["open"].ports[number]}
    assert differing == {2}
    assert instance.routes.get(name="open").endpoints["2"] == after["open"].endpoints[2]


def test_an_instance_that_comes_back_to_a_broker_has_the_ports_of_all_its_routes_again(
    brokers: AcknowledgingBrokers, instance: Instance, cluster: Cluster
) -> None:
    before = by_name(published(brokers, instance))
    instance_placement.lease_ports(cluster, {instance.pk: ([1, 2], [3])})
    reconciler.reconcile(instance.pk)
    assert published(brokers, instance).leaving == (3,)
    assert sorted(instance.routes.get(name="open").endpoints) == ["1", "2"]
    instance_placement.release_ports(cluster, {instance.pk: [3]})
    assert FormerPort.objects.filter(instance=instance).count() == 2
    instance_placement.lease_ports(cluster, {instance.pk: ([1, 2, 3], [])})
    reconciler.reconcile(instance.pk)
    after = by_name(published(brokers, instance))
    assert {name: route.ports for name, route in after.items()} == {name: route.ports for name, route in before.items()}


def test_a_route_opened_while_the_instance_leaves_a_broker_does_not_bring_it_back(
    brokers: AcknowledgingBrokers, instance: Instance, cluster: Cluster, acting: Actor
) -> None:
    instance_placement.lease_ports(cluster, {instance.pk: ([1, 2], [3])})
    services.create_route(acting=acting, instance=locked(instance), route={"name": "late", "security": "tls"})
    reconciler.reconcile(instance.pk)
    late = Route.objects.get(instance=instance, name="late")
    assert sorted(late.endpoints) == ["1", "2"]
    assert published(brokers, instance).leaving == (3,)


def test_certificates_name_what_routes_advertise(instance: Instance, cluster: Cluster, acting: Actor) -> None:
    instance.routes.filter(name="open").update(advertised_host="kafka.example")
    broker = cluster.brokers.select_related("host").get(number=1)
    assert broker_certificates.route_hosts([broker])[broker.pk] == ["127.0.0.1", "kafka.example"]


@pytest.mark.parametrize(
    ("bind_host", "advertised_host", "is_beyond"),
    [
        ("127.0.0.1", "127.0.0.1", False),
        ("::1", "localhost", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("10.0.0.1", "kafka.example.com", True),
        ("127.0.0.1", "kafka.example.com", True),
        ("127.0.0.1", "192.0.2.7", True),
    ],
)
def test_brokers_are_exposed_where_any_host_listens_or_is_advertised_beyond_loopback(
    cluster: Cluster, acting: Actor, bind_host: str, advertised_host: str, is_beyond: bool
) -> None:
    """Then a new instance has an encrypted route by default."""
    host = cluster.brokers.select_related("host").first().host  # type: ignore[union-attr]
    host.bind_host, host.advertised_host = bind_host, advertised_host
    host.save()
    assert is_exposed() is is_beyond

    made, _ = services.create_instance(acting=acting, name="plain")
    chosen, _ = services.create_instance(
        acting=acting, name="chosen", routes=[{"name": "inside", "security": "sasl_plaintext"}]
    )

    security = "sasl_tls" if is_beyond else "sasl_plaintext"
    assert [(route.name, route.security) for route in made.routes_in_order] == [("default", security)]
    assert [(route.name, route.security) for route in chosen.routes_in_order] == [("inside", "sasl_plaintext")]
    assert made.settings_in_force["allow_everyone_if_no_acl"] is False
