"""OAuth configuration over REST: checked, replaced as a whole, published to brokers on commit."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any

import pytest

from instances.models import Instance, OAuthConfiguration
from instances.oauth.key_sets import keys_of
from instances.oauth.limits import KEY_SET_BYTES_MAX, KEYS_PER_SET_MAX
from instances.services.oauth import mark_published, store_failed_fetch, store_fetched_keys
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import make_running
from tests.testkit.oauth import AUDIENCE, ISSUER, Issuer, jwk_of, make_key

pytestmark = pytest.mark.django_db
URL = "https://login.example.com/.well-known/jwks.json"
AT_AN_ADDRESS = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": URL}
NOW = datetime(2026, 11, 25, tzinfo=UTC)
RSA = jwk_of(make_key("RS256"), "one")
# The same number, with zeros before it.
LONG_BY_ZEROS = RSA | {"n": "AAAA" * (KEY_SET_BYTES_MAX // 4) + RSA["n"]}


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture()
def at(instance: Instance) -> str:
    return f"/instances/{instance.pk}/oauth"


def pinned(issuer: Issuer, **fields: Any) -> dict[str, Any]:
    return {"issuer": ISSUER, "audience": AUDIENCE, "jwks": issuer.jwks, **fields}


def test_a_pinned_key_set_is_configured_and_read_back(
    api: Api, at: str, instance: Instance, django_capture_on_commit_callbacks: Any, asked_to_publish: list[str]
) -> None:
    issuer = Issuer()
    with django_capture_on_commit_callbacks(execute=True):
        shown = api.put(at, pinned(issuer)).json()
    assert asked_to_publish == [instance.pk]
    (key,) = shown.pop("keys_in_force")
    assert (key["kid"], key["algorithms"], len(key["sha256"])) == ("one", ["ES256"], 64)
    jwk = issuer.jwks["keys"][0] | {"alg": "ES256"}
    assert shown == {
        "issuer": ISSUER, "audience": AUDIENCE, "jwks_url": None, "jwks": {"keys": [jwk]}, "principal_claim": "sub",
        "clock_skew_seconds": 30, "keys_fetched_at": None, "keys_error": None,
    }  # fmt: skip
    writable = ("issuer", "audience", "jwks", "jwks_url", "principal_claim", "clock_skew_seconds")
    again = api.put(at, {name: shown[name] for name in writable})
    assert again.status_code == 200, again.content
    assert OAuthConfiguration.objects.get().revision == 1, "nothing differs"


def test_nothing_is_there_before_it_is_configured(api: Api, at: str) -> None:
    assert_problem(api.get(at), 404, "not_found")
    assert_problem(api.delete(at), 404, "not_found")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"issuer": None}, "/issuer"), ({"issuer": ""}, "/issuer"), ({"issuer": "i" * 513}, "/issuer"),
        ({"audience": 7}, "/audience"), ({"principal_claim": ""}, "/principal_claim"),
        ({"clock_skew_seconds": -1}, "/clock_skew_seconds"), ({"clock_skew_seconds": 301}, "/clock_skew_seconds"),
        ({"jwks_url": None}, "/jwks_url"), ({"jwks": {"keys": []}}, "/jwks_url"),
        ({"jwks_url": "http://login.example.com/"}, "/jwks_url"), ({"jwks_url": "https://10.0.0.1/"}, "/jwks_url"),
        ({"jwks_url": "https://169.254.169.254/"}, "/jwks_url"), ({"jwks_url": "https://localhost:22/"}, "/jwks_url"),
        ({"jwks_url": None, "jwks": {}}, "/jwks"), ({"jwks_url": None, "jwks": []}, "/jwks"),
        ({"jwks_url": None, "jwks": {"keys": [{"kty": "oct", "k": "AAAA"}]}}, "/jwks"),
        ({"jwks_url": None, "jwks": {"keys": [{}] * (KEYS_PER_SET_MAX + 1)}}, "/jwks"),
        ({"jwks_url": None, "jwks": {"keys": [LONG_BY_ZEROS]}}, "/jwks"),
    ],
)  # fmt: skip
def test_an_invalid_configuration_is_refused_with_a_pointer_to_the_field(
    api: Api, at: str, change: dict[str, Any], pointer: str
) -> None:
    problem = assert_problem(api.put(at, {**AT_AN_ADDRESS, **change}), 400, "invalid_request")
    assert problem["errors"][0]["pointer"] == pointer
    assert not OAuthConfiguration.objects.exists()


def test_a_private_key_is_refused_and_kept_nowhere(api: Api, at: str, caplog: pytest.LogCaptureFixture) -> None:
    jwk = jwk_of(make_key(), "one") | {"d": "c2VjcmV0LXBhcnQ"}
    problem = assert_problem(api.put(at, {"issuer": ISSUER, "audience": AUDIENCE, "jwks": {"keys": [jwk]}}), 400)
    assert "secret part" in problem["errors"][0]["detail"]
    assert "c2VjcmV0LXBhcnQ" not in caplog.text
    assert not AuditEntry.objects.filter(action__startswith="oauth").exists()


def test_addresses_that_the_operator_names_may_be_private(api: Api, at: str, settings: Any) -> None:
    settings.OUTBOUND_PRIVATE_ADDRESSES = (ip_network("10.0.0.0/8"),)
    assert api.put(at, {**AT_AN_ADDRESS, "jwks_url": "https://10.0.0.1/keys"}).status_code == 200


def test_the_audit_log_says_what_became_of_it(api: Api, at: str, instance: Instance) -> None:
    api.put(at, AT_AN_ADDRESS)
    api.put(at, {**AT_AN_ADDRESS, "audience": "new"})
    api.put(at, pinned(Issuer(), audience="new"))
    api.delete(at)
    rows = list(reversed(AuditEntry.objects.filter(target_type="oauth")))
    assert [row.action for row in rows] == ["oauth.configured"] * 3 + ["oauth.removed"]
    assert {row.target_id for row in rows} == {f"{instance.pk}/oauth"}
    assert (rows[1].before, rows[1].after) == ({"audience": AUDIENCE}, {"audience": "new"})
    assert rows[2].after["pinned_keys"][0]["kid"] == "one"
    assert (rows[3].before["issuer"], rows[3].after) == (ISSUER, None)


def test_another_version_is_not_overwritten(api: Api, at: str) -> None:
    etag = api.put(at, AT_AN_ADDRESS)["ETag"]
    api.put(at, {**AT_AN_ADDRESS, "audience": "new"})
    assert api.put(at, AT_AN_ADDRESS, If_Match=etag).status_code == 412
    assert api.delete(at, If_Match=etag).status_code == 412
    assert api.delete(at, If_Match=api.get(at)["ETag"]).status_code == 204


def test_another_address_forgets_the_keys_of_the_one_before_and_the_same_keeps_them(api: Api, at: str) -> None:
    api.put(at, AT_AN_ADDRESS)
    row = OAuthConfiguration.objects.get()
    assert store_fetched_keys(row, keys_of(Issuer().jwks, is_pinned=False), NOW)
    etag = api.get(at)["ETag"]
    shown = api.put(at, {**AT_AN_ADDRESS, "audience": "new"}).json()
    assert [key["kid"] for key in shown["keys_in_force"]] == ["one"]
    assert shown["keys_fetched_at"] is not None
    assert api.get(at)["ETag"] != etag
    shown = api.put(at, {**AT_AN_ADDRESS, "jwks_url": f"{URL}?2"}).json()
    assert (shown["keys_in_force"], shown["keys_fetched_at"]) == ([], None)


def test_fetched_keys_raise_the_revision_only_when_they_differ(api: Api, at: str) -> None:
    issuer = Issuer()
    api.put(at, AT_AN_ADDRESS)
    row = OAuthConfiguration.objects.get()
    keys = keys_of(issuer.jwks, is_pinned=False)
    assert store_fetched_keys(row, keys, NOW)
    assert not store_fetched_keys(row, keys, NOW)
    issuer.rotate("two")
    assert store_fetched_keys(row, keys_of(issuer.jwks, is_pinned=False), NOW)
    assert OAuthConfiguration.objects.get().revision == 3
    store_failed_fetch(row, "There was no answer." * 100, NOW)
    shown = api.get(at).json()
    assert [key["kid"] for key in shown["keys_in_force"]] == ["one", "two"]
    assert shown["keys_error"].startswith("There was no answer.")


def test_keys_of_an_address_that_was_replaced_meanwhile_are_not_taken(api: Api, at: str) -> None:
    api.put(at, AT_AN_ADDRESS)
    row = OAuthConfiguration.objects.get()
    api.put(at, {**AT_AN_ADDRESS, "jwks_url": f"{URL}?2"})
    assert not store_fetched_keys(row, keys_of(Issuer().jwks, is_pinned=False), NOW)
    assert OAuthConfiguration.objects.get().keys == []


def test_a_removed_configuration_stays_until_brokers_have_applied_it(api: Api, at: str) -> None:
    api.put(at, AT_AN_ADDRESS)
    assert api.delete(at).status_code == 204
    assert_problem(api.get(at), 404)
    row = OAuthConfiguration.objects.get()
    api.put(at, AT_AN_ADDRESS)
    mark_published(row)
    assert OAuthConfiguration.objects.get().published_revision == 0, "it was configured again meanwhile"
    api.delete(at)
    mark_published(OAuthConfiguration.objects.get())
    assert not OAuthConfiguration.objects.exists()


def test_the_configuration_of_one_instance_is_none_of_another(api: Api, at: str, owner: Member) -> None:
    api.put(at, AT_AN_ADDRESS)
    assert_problem(api.get(f"/instances/{make_running(owner.tenant).pk}/oauth"), 404)
    stranger = Api.of(make_member())
    for answer in (stranger.get(at), stranger.put(at, AT_AN_ADDRESS), stranger.delete(at)):
        assert_problem(answer, 404, "not_found")
