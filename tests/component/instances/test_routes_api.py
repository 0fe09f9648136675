"""Routes over REST: created, changed, deleted, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from instances import interfaces
from instances.models import Instance, Operation, Route
from instances.routes.kinds import CIDRS_MAX, ROUTES_MAX
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import make_running, plugged

pytestmark = pytest.mark.django_db


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant, name="orders")


@pytest.fixture()
def beyond_loopback() -> Iterator[None]:
    with plugged(interfaces.exposure, lambda: True):
        yield


def routes_of(api: Api, instance_id: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = api.get(f"/instances/{instance_id}").json()["routes"]
    assert shown == api.get(f"/instances/{instance_id}/routes").json()["items"]
    return shown


def test_a_new_instance_has_one_route_with_users(api: Api) -> None:
    made = api.post("/instances", {"name": "orders"}).json()["resource_id"]
    assert routes_of(api, made) == [
        {
            "name": "default",
            "security": "sasl_plaintext",
            "security_protocol": "SASL_PLAINTEXT",
            "bootstrap_servers": "",
            "addresses": [],
            "allow_list": [],
            "advertised_host": None,
            "connections_max": None,
            "proxies": [],
            "certificate": None,
            "client_ca": None,
            "principal_mapping_rules": "DEFAULT",
            "revocation": None,
        }
    ]


def test_an_instance_is_bought_with_the_routes_it_is_to_have(api: Api) -> None:
    wanted = [
        {"name": "open", "security": "plaintext"},
        {"name": "inside", "security": "sasl_tls", "allow_list": ["10.0.0.0/8", "10.0.0.0/8"], "connections_max": 10},
    ]
    made = api.post("/instances", {"name": "orders", "routes": wanted}).json()["resource_id"]
    shown = routes_of(api, made)
    assert [(route["name"], route["security_protocol"]) for route in shown] == [
        ("open", "PLAINTEXT"),
        ("inside", "SASL_SSL"),
    ]
    assert (shown[1]["allow_list"], shown[1]["connections_max"]) == (["10.0.0.0/8"], 10)
    entry = AuditEntry.objects.get(action="instance.created")
    assert [route["name"] for route in entry.after["routes"]] == ["open", "inside"]


def test_a_route_is_opened_changed_and_closed_by_operations(api: Api, instance: Instance) -> None:
    place = f"/instances/{instance.pk}/routes"
    answer = api.post(place, {"name": "outside", "security": "tls", "advertised_host": "kafka.example"})
    assert answer.status_code == 202
    assert api.get(answer["Location"]).json()["type"] == "instance.routes"
    changed = api.patch(f"{place}/outside", {"proxies": ["192.0.2.1"], "advertised_host": None})
    assert (changed.status_code, changed.json()["proxies"], changed.json()["advertised_host"]) == (
        202, ["192.0.2.1"], None,
    )  # fmt: skip
    assert api.patch(f"{place}/outside", {"proxies": ["192.0.2.1"]}).status_code == 200
    assert api.delete(f"{place}/outside").status_code == 202
    assert [route["name"] for route in routes_of(api, instance.pk)] == ["default"]
    actions = AuditEntry.objects.filter(action__startswith="route.").order_by("time", "id")
    assert [entry.action for entry in actions] == ["route.created", "route.changed", "route.deleted"]
    instance.refresh_from_db()
    assert (instance.generation, Operation.objects.filter(instance=instance).count()) == (4, 3)


def test_the_address_is_that_of_the_first_route_also_when_the_one_before_it_is_closed(
    api: Api, instance: Instance
) -> None:
    Route.objects.create(instance=instance, name="second", security="tls", endpoints={"1": "kafka.example:1"})
    assert api.get(f"/instances/{instance.pk}").json()["bootstrap_servers"] == "127.0.0.1:19000,127.0.0.1:19001"
    api.delete(f"/instances/{instance.pk}/routes/default")
    assert api.get(f"/instances/{instance.pk}").json()["bootstrap_servers"] == "kafka.example:1"


def test_the_last_route_stays(api: Api, instance: Instance) -> None:
    assert_problem(api.delete(f"/instances/{instance.pk}/routes/default"), 409, "last_route")


def test_there_are_no_more_routes_than_may_be(api: Api, instance: Instance) -> None:
    place = f"/instances/{instance.pk}/routes"
    for number in range(ROUTES_MAX - 1):
        assert api.post(place, {"name": f"more-{number}", "security": "tls"}).status_code == 202
    assert_problem(api.post(place, {"name": "beyond", "security": "tls"}), 403, "quota_exceeded")
    many = [{"name": f"r{number}", "security": "tls"} for number in range(ROUTES_MAX + 1)]
    assert_problem(api.post("/instances", {"name": "many", "routes": many}), 400)
    assert_problem(api.post("/instances", {"name": "none", "routes": []}), 400)


def test_a_name_is_used_once(api: Api, instance: Instance) -> None:
    again = {"name": "default", "security": "tls"}
    assert_problem(api.post(f"/instances/{instance.pk}/routes", again), 409, "name_taken")
    problem = assert_problem(api.post("/instances", {"name": "twice", "routes": [again, again]}), 409, "name_taken")
    assert problem["errors"][0]["pointer"] == "/routes/1/name"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"security": "none"}, "/security"),
        ({"allow_list": ["10.1.2.3/8"]}, "/allow_list/0"),
        ({"proxies": ["not an address"]}, "/proxies/0"),
        ({"allow_list": ["10.0.0.1"] * (CIDRS_MAX + 1)}, "/allow_list"),
        ({"advertised_host": "kafka.example:9092"}, "/advertised_host"),
        ({"advertised_host": "-bad-"}, "/advertised_host"),
        ({"connections_max": 0}, "/connections_max"),
        ({"name": "other"}, "/name"),
    ],
)
def test_a_wrong_value_is_refused_with_a_pointer_and_changes_nothing(
    api: Api, instance: Instance, body: dict[str, Any], pointer: str
) -> None:
    before = routes_of(api, instance.pk)
    problem = assert_problem(api.patch(f"/instances/{instance.pk}/routes/default", body), 400)
    assert problem["errors"][0]["pointer"] == pointer
    assert routes_of(api, instance.pk) == before


def test_the_longest_list_is_taken(api: Api, instance: Instance) -> None:
    cidrs = [f"2001:db8:1234:5678:9abc:def0:1234:{number:x}/128" for number in range(CIDRS_MAX)]
    answer = api.patch(f"/instances/{instance.pk}/routes/default", {"allow_list": cidrs, "proxies": cidrs})
    assert (answer.status_code, len(answer.json()["allow_list"])) == (202, CIDRS_MAX)


def test_plaintext_that_others_can_reach_has_to_be_confirmed(
    api: Api, instance: Instance, beyond_loopback: None
) -> None:
    place, wanted = f"/instances/{instance.pk}/routes", {"name": "open", "security": "plaintext"}
    problem = assert_problem(api.post(place, wanted), 409, "confirm_plaintext")
    assert problem["errors"][0]["pointer"] == "/confirm_plaintext"
    problem = assert_problem(api.post("/instances", {"name": "new", "routes": [wanted]}), 409, "confirm_plaintext")
    assert problem["errors"][0]["pointer"] == "/routes/0/confirm_plaintext"
    assert api.post(place, {**wanted, "confirm_plaintext": True}).status_code == 202
    assert api.patch(f"{place}/open", {"connections_max": 5}).status_code == 202
    assert api.post(place, {"name": "safe", "security": "sasl_tls"}).status_code == 202
    assert_problem(api.patch(f"{place}/safe", {"security": "plaintext"}), 409, "confirm_plaintext")


def test_a_change_is_made_to_the_version_that_was_read(api: Api, instance: Instance) -> None:
    place = f"/instances/{instance.pk}/routes/default"
    etag = api.get(place)["ETag"]
    assert api.patch(place, {"connections_max": 5}, If_Match=etag).status_code == 202
    assert_problem(api.patch(place, {"connections_max": 6}, If_Match=etag), 412)
    assert_problem(api.delete(place, If_Match=etag), 412)


def test_another_tenants_routes_do_not_exist(instance: Instance) -> None:
    stranger = Api.of(make_member())
    for place in (f"/instances/{instance.pk}/routes", f"/instances/{instance.pk}/routes/default"):
        assert_problem(stranger.get(place), 404)
    assert_problem(stranger.patch(f"/instances/{instance.pk}/routes/default", {"connections_max": 5}), 404)


def test_the_authoritys_certificate_is_given_to_anybody(settings: Any, tmp_path: Any) -> None:
    settings.TLS_DIR = tmp_path
    assert Api().get("/ca.pem").status_code == 404
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "ca_key.pem").write_text("secret")
    answer = Api().get("/ca.pem")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/x-pem-file")
    assert answer.content == b"-----BEGIN CERTIFICATE-----\n"
