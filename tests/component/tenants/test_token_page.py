"""The page that creates a token: a reload repeats the form, which creates no second one."""

from __future__ import annotations

import re

import pytest
from django.core import serializers as django_serializers
from django.test import Client

from tenants import access, scope_groups
from tenants.actors import member_actor
from tenants.choices import Role, Scope
from tenants.models import ApiToken, IdempotencyRecord, Member
from tests.testkit.api_cases import Api, assert_problem, make_member

pytestmark = pytest.mark.django_db


@pytest.fixture()
def owner() -> Member:
    return make_member()


@pytest.fixture()
def browser(owner: Member) -> Client:
    client = Client()
    client.force_login(owner.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def filled_in(browser: Client, name: str = "ci") -> dict[str, str]:
    page = browser.get("/tokens/").content.decode()
    once = re.search(r'name="once" value="([^"]+)"', page)
    assert once is not None
    return {"name": name, "scopes": "topics:read", "days": "90", "once": once[1]}


def test_a_reload_of_the_page_with_the_secret_makes_no_second_token(browser: Client) -> None:
    form = filled_in(browser)
    first = browser.post("/tokens/", form)
    assert first.status_code == 200
    assert "pst_" in first.content.decode()
    again = browser.post("/tokens/", form, follow=True)
    assert again.redirect_chain == [("/tokens/", 302)]
    assert "The token ci is made already" in again.content.decode()
    assert ApiToken.objects.count() == 1


def test_a_token_is_not_made_for_what_no_route_asks_for(browser: Client, owner: Member) -> None:
    page = browser.get("/tokens/").content.decode()
    offered = set(re.findall(r'name="scopes"[^>]*value="([^"]+)"|value="([^"]+)"[^>]*name="scopes"', page))
    offered = {item or other for item, other in offered}
    assert offered == access.TOKEN_SCOPES - {"operator"}
    problem = assert_problem(Api.of(owner).post("/tokens", {"name": "x", "scopes": ["messages:delete"]}), 400)
    assert problem["errors"][0]["pointer"] == "/scopes/0"


@pytest.mark.parametrize("preset", [preset.name for preset in scope_groups.PRESETS])
def test_a_preset_makes_a_token_with_its_scopes_whatever_is_ticked(preset: str, browser: Client, owner: Member) -> None:
    browser.post("/tokens/", filled_in(browser) | {"preset": preset, "scopes": "billing:write"})
    (wanted,) = [each for each in Api.of(owner).get("/scopes").json()["presets"] if each["name"] == preset]
    assert sorted(ApiToken.objects.get(name="ci").scopes) == wanted["scopes"]
    assert "operator" not in wanted["scopes"]


def test_a_preset_gives_no_more_than_its_maker_has(owner: Member) -> None:
    viewer = make_member(Role.VIEWER, owner.tenant)
    may = access.grantable_scopes(member_actor(viewer))
    answer = Api.of(owner, ["topics:read", "messages:read"]).get("/scopes").json()
    for preset in answer["presets"]:
        assert set(preset["scopes"]) <= {"topics:read", "messages:read"}
        assert set(scope_groups.preset_scopes(preset["name"], may)) <= may
    grantable = {scope["name"] for group in answer["groups"] for scope in group["scopes"] if scope["is_grantable"]}
    assert grantable == {"topics:read", "messages:read"}


def test_every_scope_stands_in_one_group() -> None:
    named = [scope for group in scope_groups.GROUPS for scope in group.scopes]
    assert sorted(named) == sorted(Scope)


def test_a_token_for_nothing_is_not_made(browser: Client) -> None:
    form = filled_in(browser)
    del form["scopes"]
    for changes in ({}, {"preset": ""}, {"preset": "no-such-preset"}):
        answer = browser.post("/tokens/", form | changes)
        assert answer.status_code == 422
    assert "Choose what the token may do." in browser.post("/tokens/", form).content.decode()
    assert not ApiToken.objects.filter(name="ci").exists()


def test_the_form_beside_a_secret_makes_another_token(browser: Client) -> None:
    first, second = filled_in(browser), filled_in(browser, "other")
    assert first["once"] != second["once"]
    for form in (first, second):
        assert "pst_" in browser.post("/tokens/", form).content.decode()
    assert ApiToken.objects.count() == 2


def test_a_form_that_was_refused_may_be_sent_again(browser: Client) -> None:
    form = filled_in(browser)
    assert browser.post("/tokens/", form | {"name": "\x01"}).status_code == 422
    assert browser.post("/tokens/", form).status_code == 200
    assert ApiToken.objects.count() == 1


def test_the_idempotency_key_of_a_form_is_per_person(browser: Client, owner: Member) -> None:
    form = filled_in(browser)
    browser.post("/tokens/", form)
    other = Client()
    other.force_login(make_member("admin", owner.tenant).user, backend="django.contrib.auth.backends.ModelBackend")
    assert other.post("/tokens/", form).status_code == 200
    assert ApiToken.objects.count() == 2


def test_the_record_of_a_form_does_not_hold_the_secret(browser: Client) -> None:
    page = browser.post("/tokens/", filled_in(browser)).content.decode()
    secret = re.search(r"pst_[\w-]{43}", page)
    assert secret is not None
    assert secret[0] not in django_serializers.serialize("json", IdempotencyRecord.objects.all())
