"""Client quotas over REST: set, listed by level, explained, removed, and the guarantees of every endpoint."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.models import Instance
from quotas.explain import QUOTA_KEYS, explain
from quotas.interfaces import EntityPart
from quotas.precedence import Entity
from tenants.choices import Scope
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.fake_data_plane import FakeQuotas
from tests.testkit.fleet import make_running

__all__ = ["pytest_generate_tests"]

ALICE = EntityPart(name="alice")
ANY = EntityPart(name=None)


@pytest.mark.django_db
class TestQuotas(EndpointCases):
    cases = (
        Case("GET", "/instances/{instance}/quotas", Scope.QUOTAS_READ),
        Case(
            "PUT",
            "/instances/{instance}/quotas",
            Scope.QUOTAS_WRITE,
            body={"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1_000_000}},
        ),
        Case("DELETE", "/instances/{instance}/quotas?user=alice", Scope.QUOTAS_WRITE, status=204),
        Case(
            "PUT",
            "/instances/{instance}/quotas",
            Scope.QUOTAS_WRITE,
            body={"entity": {"ip": "192.0.2.1"}, "limits": {"connection_creation_rate": 5}},
        ),
        Case("DELETE", "/instances/{instance}/quotas?ip=192.0.2.2", Scope.QUOTAS_WRITE, status=204),
        Case("GET", "/instances/{instance}/quotas/effective", Scope.QUOTAS_READ),
    )

    @pytest.fixture(autouse=True)
    def admin_client(self, client_quotas: FakeQuotas) -> None:
        self.client_quotas = client_quotas

    def places(self, owner: Member) -> dict[str, str]:
        instance = make_running(owner.tenant)
        self.client_quotas.alter(instance.pk, ALICE, None, {"producer_byte_rate": 5.0}, validate_only=False)
        self.client_quotas.alter_address(instance.pk, "192.0.2.2", 5, validate_only=False)
        return {"instance": instance.pk}


@pytest.fixture()
def owner(db: None) -> Member:
    return make_member()


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture()
def api(owner: Member) -> Api:
    return Api.of(owner)


def put(api: Api, instance: Instance, entity: dict[str, Any], limits: dict[str, Any], query: str = "") -> Any:
    return api.put(f"/instances/{instance.pk}/quotas{query}", {"entity": entity, "limits": limits})


def test_quotas_are_listed_in_the_order_of_the_levels(api: Api, instance: Instance) -> None:
    entities = [
        {"client_id": None}, {"client_id": "etl"}, {"user": None}, {"user": None, "client_id": None},
        {"user": None, "client_id": "etl"}, {"user": "alice"}, {"user": "alice", "client_id": None},
        {"user": "alice", "client_id": "etl"},
    ]  # fmt: skip
    for entity in entities:
        assert put(api, instance, entity, {"consumer_byte_rate": 5}).status_code == 200
    items = api.get(f"/instances/{instance.pk}/quotas").json()["items"]
    assert [item["level"] for item in items] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [item["entity"] for item in items] == entities[::-1]


def test_put_replaces_all_limits_of_an_entity(api: Api, instance: Instance, client_quotas: FakeQuotas) -> None:
    put(api, instance, {"user": "alice"}, {"producer_byte_rate": 1, "request_percentage": 12.5})
    shown = put(api, instance, {"user": "alice"}, {"consumer_byte_rate": 2}).json()
    assert shown["limits"]["consumer_byte_rate"] == 2
    assert shown["limits"]["producer_byte_rate"] is None
    assert client_quotas.quotas == {(instance.pk, ALICE, None): {"consumer_byte_rate": 2}}
    assert put(api, instance, {"user": "alice"}, {"consumer_byte_rate": None}).status_code == 200
    assert client_quotas.quotas == {}


def test_the_same_quota_again_is_no_change(api: Api, instance: Instance) -> None:
    put(api, instance, {"user": "alice"}, {"producer_byte_rate": 1})
    before = AuditEntry.objects.count()
    put(api, instance, {"user": "alice"}, {"producer_byte_rate": 1})
    assert AuditEntry.objects.count() == before


@pytest.mark.parametrize(
    ("entity", "limits", "pointer"),
    [
        ({}, {"producer_byte_rate": 1}, "/entity"),
        ({"user": 5}, {}, "/entity/user"),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1}, "/limits/producer_byte_rate"),
        ({"ip": "10.0.0.1", "user": "a"}, {"connection_creation_rate": 1}, "/entity/ip"),
        ({"ip": "somewhere"}, {"connection_creation_rate": 1}, "/entity/ip"),
        ({"ip": "1" * 46}, {"connection_creation_rate": 1}, "/entity/ip"),
        ({"ip": None}, {"connection_creation_rate": -1}, "/limits/connection_creation_rate"),
        ({"ip": None}, {"connection_creation_rate": 2**31}, "/limits/connection_creation_rate"),
        ({"user": "a"}, {"connection_creation_rate": 1}, "/limits/connection_creation_rate"),
        ({"user": "a"}, {"producer_byte_rate": -1}, "/limits/producer_byte_rate"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "/limits/producer_byte_rate"),
        ({"user": "a"}, {"producer_byte_rate": 2**53 + 1}, "/limits/producer_byte_rate"),
        ({"user": "a"}, {"request_percentage": "10"}, "/limits/request_percentage"),
        ({"user": "a"}, {"speed": 1}, "/limits/speed"),
    ],
)
def test_a_wrong_quota_is_named_and_changes_nothing(
    api: Api, instance: Instance, client_quotas: FakeQuotas, entity: Any, limits: Any, pointer: str
) -> None:
    problem = assert_problem(put(api, instance, entity, limits), 400, "invalid_request")
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert client_quotas.quotas == {}
    assert client_quotas.addresses == {}


def test_an_address_has_one_limit_that_is_set_listed_and_removed(
    api: Api, instance: Instance, client_quotas: FakeQuotas
) -> None:
    at, rate = f"/instances/{instance.pk}/quotas", "connection_creation_rate"
    put(api, instance, {"user": "alice"}, {"producer_byte_rate": 1})
    for address, per_s in (("::ffff:192.0.2.1", 7), (None, 9), ("2001:DB8::0:1", 0)):
        shown = put(api, instance, {"ip": address}, {rate: per_s}).json()
        assert (shown["level"], shown["limits"][rate], shown["limits"]["producer_byte_rate"]) == (None, per_s, None)
    items = api.get(at).json()["items"]
    assert [item["entity"] for item in items] == [
        {"user": "alice"}, {"ip": None}, {"ip": "192.0.2.1"}, {"ip": "2001:db8::1"},
    ]  # fmt: skip
    assert [item["limits"][rate] for item in items] == [None, 9, 7, 0]
    before = AuditEntry.objects.count()
    put(api, instance, {"ip": "192.0.2.1"}, {rate: 7})
    put(api, instance, {"ip": "192.0.2.1"}, {rate: 8}, "?dry_run=true")
    assert AuditEntry.objects.count() == before
    assert client_quotas.addresses[instance.pk, "192.0.2.1"] == 7
    assert put(api, instance, {"ip": None}, {rate: None}).json()["limits"][rate] is None
    assert_problem(api.delete(f"{at}?ip_default=true"), 404)
    assert_problem(api.delete(f"{at}?ip=192.0.2.1&user=alice"), 400)
    assert_problem(api.delete(f"{at}?ip=192.0.2.1&ip_default=true"), 400)
    assert api.delete(f"{at}?ip=::ffff:192.0.2.1").status_code == 204
    assert list(client_quotas.addresses) == [(instance.pk, "2001:db8::1")]
    newest = AuditEntry.objects.order_by("-time")[0]
    assert (newest.action, newest.before, newest.after) == ("quota.removed", {rate: 7}, None)
    assert newest.target_id == f"{instance.pk}/ips/192.0.2.1"


def test_addresses_count_among_the_quotas_of_an_instance(
    api: Api, instance: Instance, client_quotas: FakeQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quotas.services.QUOTAS_PER_INSTANCE_MAX", 2)
    put(api, instance, {"ip": None}, {"connection_creation_rate": 1})
    put(api, instance, {"user": "alice"}, {"producer_byte_rate": 1})
    assert put(api, instance, {"ip": "192.0.2.1"}, {"connection_creation_rate": 1}).status_code == 403
    assert put(api, instance, {"user": "bob"}, {"producer_byte_rate": 1}).status_code == 403
    assert put(api, instance, {"ip": None}, {"connection_creation_rate": 2}).status_code == 200


def test_deleting_names_the_entity_in_the_query(api: Api, instance: Instance, client_quotas: FakeQuotas) -> None:
    at = f"/instances/{instance.pk}/quotas"
    put(api, instance, {"user": "alice", "client_id": None}, {"producer_byte_rate": 1})
    assert_problem(api.delete(f"{at}?user=alice"), 404)
    assert_problem(api.delete(at), 400)
    assert_problem(api.delete(f"{at}?user=alice&user_default=true"), 400)
    assert api.delete(f"{at}?user=alice&client_id_default=true&dry_run=true").status_code == 204
    assert client_quotas.quotas
    assert api.delete(f"{at}?user=alice&client_id_default=true").status_code == 204
    assert client_quotas.quotas == {}


def test_a_dry_run_sets_nothing(api: Api, instance: Instance, client_quotas: FakeQuotas) -> None:
    assert put(api, instance, {"user": "alice"}, {"producer_byte_rate": 1}, "?dry_run=true").status_code == 200
    assert client_quotas.quotas == {}


def test_quotas_of_another_tenants_instance_are_out_of_reach(
    api: Api, instance: Instance, client_quotas: FakeQuotas
) -> None:
    stranger = Api.of(make_member())
    put(api, instance, {"user": "alice"}, {"producer_byte_rate": 1})
    assert_problem(stranger.delete(f"/instances/{instance.pk}/quotas?user=alice"), 404, "not_found")
    assert client_quotas.quotas


def test_the_effective_quota_tells_the_level_and_why_the_others_do_not_apply(api: Api, instance: Instance) -> None:
    put(api, instance, {"user": None}, {"producer_byte_rate": 100})
    put(api, instance, {"client_id": "etl"}, {"producer_byte_rate": 5})
    result = api.get(f"/instances/{instance.pk}/quotas/effective?user=ANONYMOUS&client_id=etl").json()
    produce = next(item for item in result["quotas"] if item["quota"] == "producer_byte_rate")
    assert (produce["limit"], produce["level"], produce["name"]) == (100, 6, "any user")
    verdicts = {item["level"]: item["verdict"] for item in produce["levels"]}
    assert verdicts == {1: "not_set", 2: "not_set", 3: "not_set", 4: "not_set", 5: "not_set", 6: "applies",
                        7: "weaker", 8: "not_set"}  # fmt: skip
    consume = next(item for item in result["quotas"] if item["quota"] == "consumer_byte_rate")
    assert consume["limit"] is consume["level"] is None
    assert {item["quota"]: item["unit"] for item in result["quotas"]} == {
        "producer_byte_rate": "bytes_per_s",
        "consumer_byte_rate": "bytes_per_s",
        "request_percentage": "percent",
        "controller_mutation_rate": "partitions_per_s",
    }


def every_entity() -> list[Entity]:
    names = ((True, "u"), (True, None), (False, None))
    clients = ((True, "c"), (True, None), (False, None))
    return [Entity(*user, *client) for user, client in product(names, clients) if user[0] or client[0]]


@given(
    st.dictionaries(st.sampled_from(every_entity()), st.floats(1, 100)),
    st.sampled_from(["u", ""]),
    st.sampled_from(["c", ""]),
)
def test_an_explanation_always_agrees_with_the_rule_it_explains(
    limits: dict[Entity, float], user: str, client_id: str
) -> None:
    keyed = {tuple(entity): dict.fromkeys(QUOTA_KEYS, limit) for entity, limit in limits.items()}
    for effective in explain(keyed, user=user, client_id=client_id):  # type: ignore[arg-type]
        applying = [level for level in effective.levels if level.verdict == "applies"]
        assert [level.level for level in applying] == ([] if effective.level is None else [effective.level])
        assert all(level.level > (effective.level or 9) for level in effective.levels if level.verdict == "weaker")
        if user == "u" and client_id == "c" and limits:
            assert effective.level is not None


@pytest.mark.parametrize("name", ["c" * 1_024, "\U0001f30a" * 1_024, " lead", "a\nb"])
def test_a_quota_of_any_name_kafka_allows_can_be_explained_and_removed(
    name: str, api: Api, instance: Instance, client_quotas: FakeQuotas
) -> None:
    part = EntityPart(name=name)
    client_quotas.quotas[instance.pk, None, part] = {"producer_byte_rate": 5_000.0}
    at = f"/instances/{instance.pk}/quotas"
    asked = api.get(f"{at}/effective?client_id={quote(name)}").json()
    assert asked["client_id"] == name
    assert asked["quotas"][0]["limit"] == 5_000.0
    assert api.delete(f"{at}?client_id={quote(name)}").status_code == 204
    assert not client_quotas.quotas


@pytest.mark.parametrize(
    ("name", "status"), [("c" * 255, 200), ("c" * 256, 400), ("\u6c34" * 28, 200), ("\u6c34" * 29, 400)]
)
def test_the_name_of_a_quota_is_measured_as_the_brokers_keep_it(
    name: str, status: int, api: Api, instance: Instance, client_quotas: FakeQuotas
) -> None:
    body = {"entity": {"client_id": name}, "limits": {"producer_byte_rate": 1}}
    answer = api.put(f"/instances/{instance.pk}/quotas", body)
    assert answer.status_code == status, answer.content
    assert len(client_quotas.quotas) == (status == 200)


def test_pages_of_quotas_with_the_longest_names_follow_each_other(
    api: Api, instance: Instance, client_quotas: FakeQuotas
) -> None:
    random = Random(1)
    names = ["".join(random.choices("abc\u4e3b\U0001f30a", k=1_020)) for _ in range(4)]
    names += [names[0] + "a", names[0] + "b"]
    for name in names:
        client_quotas.quotas[instance.pk, EntityPart(name=name), EntityPart(name=name)] = {"producer_byte_rate": 1.0}
    result, token = [], ""
    for _ in names:
        page = api.get(f"/instances/{instance.pk}/quotas?page_size=1{token}").json()
        result += [item["entity"]["user"] for item in page["items"]]
        token = f"&page_token={page['next_page_token']}"
    assert sorted(result) == sorted(names)
    assert page["next_page_token"] is None
