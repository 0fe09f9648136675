"""The page of the OAuth configuration: the values that it sends to the service, and the roles that may."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from instances import services
from instances.models import Instance
from tenants.errors import Invalid
from tenants.models import Member
from tests.component.console.test_acts import text_of

GOOD = {
    "issuer": "https://login.example.com/", "audience": "orders", "jwks_url": "https://login.example.com/jwks.json",
    "jwks": "", "principal_claim": "sub", "clock_skew_seconds": "30",
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fake services that record their calls."""
    result: list[Any] = []
    monkeypatch.setattr(services, "configure_oauth", lambda *, acting, instance, requested: result.append(requested))
    monkeypatch.setattr(services, "remove_oauth", lambda *, acting, instance: result.append("removed"))
    return result


@pytest.fixture
def place(instance: Instance) -> str:
    return reverse("page-oauth", args=[instance.pk])


def test_an_address_goes_to_the_service(ida: Client, place: str, asked: list[Any]) -> None:
    assert ida.post(place, GOOD).status_code == 302
    assert asked == [GOOD | {"jwks": None, "clock_skew_seconds": 30}]


def test_a_pinned_key_set_goes_to_the_service(ida: Client, place: str, asked: list[Any]) -> None:
    ida.post(place, GOOD | {"jwks_url": "", "jwks": '{"keys": []}'})
    assert (asked[0]["jwks_url"], asked[0]["jwks"]) == (None, {"keys": []})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"jwks_url": ""}, "Give either an address or the key set."),
        ({"jwks": '{"keys": []}'}, "Give either an address or the key set."),
        ({"jwks": "[]", "jwks_url": ""}, "no JSON document of a key set"),
        ({"jwks": "{" * 100_000, "jwks_url": ""}, "no JSON document of a key set"),
        ({"jwks": "[" * 250_000, "jwks_url": ""}, "no JSON document of a key set"),
        ({"jwks": "x" * 300_000, "jwks_url": ""}, "at most"),
        ({"issuer": ""}, "required"),
        ({"clock_skew_seconds": "301"}, "less than or equal to 300"),
    ],
)
def test_a_wrong_value_is_reported_and_sent_nowhere(
    ida: Client, place: str, asked: list[Any], change: dict[str, str], words: str
) -> None:
    response = ida.post(place, GOOD | change)
    assert (response.status_code, words in text_of(response), asked) == (422, True, [])


def test_a_refusal_of_the_service_stands_beside_its_field(
    ida: Client, place: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise Invalid.at("/jwks_url", "The address is not public.")

    monkeypatch.setattr(services, "configure_oauth", refuse)
    shown = text_of(ida.post(place, GOOD))
    assert "The address is not public." in shown
    assert 'id="id_jwks_url-error"' in shown


def test_it_is_taken_away(ida: Client, place: str, asked: list[Any]) -> None:
    assert ida.post(place, {"part": "remove"}).status_code == 302
    assert asked == ["removed"]


def test_the_configuration_in_force_is_shown(
    ida: Client, place: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SimpleNamespace(id="key-1", algorithms=("RS256",))
    row = SimpleNamespace(
        issuer="https://login.example.com/", audience="orders", jwks_url="https://login.example.com/jwks.json",
        principal_claim="sub", clock_skew_s=30, public_keys=(key,), fetched_at=None, is_removed=False,
        fetch_error="It does not answer.",
    )  # fmt: skip
    monkeypatch.setattr(Instance, "oauth", row, raising=False)
    shown = text_of(ida.get(place))
    for words in ("key-1", "RS256", "It does not answer.", "those of before stay in force"):
        assert words in shown


def test_strangers_and_viewers_change_nothing(
    stranger: Member, join: Callable[[str], Member], browse: Callable[[Member], Client], place: str, asked: list[Any]
) -> None:
    eve, viewer = browse(stranger), browse(join("viewer"))
    assert eve.get(place).status_code == 404
    for body in (GOOD, {"part": "remove"}):
        assert eve.post(place, body).status_code == 404
        assert viewer.post(place, body).status_code == 403
    assert 'name="issuer"' not in text_of(viewer.get(place))
    assert asked == []


def test_the_page_of_users_leads_there(ida: Client, instance: Instance, place: str, asked: list[Any]) -> None:
    assert place in text_of(ida.get(reverse("page-users", args=[instance.pk])))
