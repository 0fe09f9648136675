"""Sign-up, sign-in, operators and the demo tenant."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from tenants import services
from tenants.actors import member_actor
from tenants.demo import DEMO_SLUG, demo_owner, ensure_demo_tenant
from tenants.errors import Conflict, Invalid, QuotaExceeded
from tenants.limits import TENANTS_PER_USER_MAX
from tenants.management.commands.create_operator import PASSWORD_VARIABLE
from tenants.models import ApiToken, AuditEntry, Member, Tenant, User
from tests.testkit.api_cases import PASSWORD, Api, make_member, make_user

pytestmark = pytest.mark.django_db


def test_a_sign_up_makes_a_person_a_tenant_and_an_owner() -> None:
    member = services.sign_up(email="Ada@Example.com", password=PASSWORD, tenant_name=" Analytical Engines ")
    assert (member.user.email, member.role, member.tenant.name) == ("ada@example.com", "owner", "Analytical Engines")
    assert member.tenant.slug.startswith("analytical-engines-")
    assert member.user.check_password(PASSWORD)
    actions = list(AuditEntry.objects.filter(tenant=member.tenant).order_by("time").values_list("action", flat=True))
    assert actions == ["tenant.created", "member.joined"]


def test_a_tenant_with_a_chinese_name_has_a_short_name_all_the_same() -> None:
    member = services.sign_up(email="ada@example.com", password=PASSWORD, tenant_name="分析机", language="zh-hans")
    assert member.user.language == "zh-hans"
    assert member.tenant.slug.startswith("tenant-")


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"password": "short"}, "/password"),
        ({"password": "1234567890123"}, "/password"),
        ({"password": "ada@example.com"}, "/password"),
        ({"email": "nobody"}, "/email"),
        ({"tenant_name": " "}, "/name"),
        ({"tenant_name": "bell\x07"}, "/name"),
    ],
)
def test_a_sign_up_with_a_bad_value_makes_nothing(wrong: dict[str, str], pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        services.sign_up(**{"email": "ada@example.com", "password": PASSWORD, "tenant_name": "A", **wrong})
    assert refusal.value.errors[0].pointer == pointer
    assert (User.objects.count(), Tenant.objects.count()) == (0, 0)


def test_signing_in_is_by_e_mail_in_any_case_and_the_api_takes_the_session() -> None:
    member = make_member()
    client = Client()
    client.post(reverse("account_login"), {"login": member.user.email.upper(), "password": PASSWORD})
    assert client.get("/api/v1/members").status_code == 200
    client.post(reverse("account_logout"))
    assert client.get("/api/v1/members").status_code == 401


def test_a_service_sign_up_refuses_known_addresses_and_weak_passwords() -> None:
    services.sign_up(email="ada@example.com", password=PASSWORD, tenant_name="A", language="en")
    with pytest.raises(Conflict):
        services.sign_up(email="ADA@example.com", password=PASSWORD, tenant_name="B", language="en")
    with pytest.raises(Invalid):
        services.sign_up(email="bob@example.com", password="password", tenant_name="B", language="en")
    assert Tenant.objects.count() == 1


def test_a_person_founds_tenants_by_api_up_to_the_limit() -> None:
    owner = make_member()
    session = Api(user=owner.user)
    made = session.post("/tenants", {"name": "Second"})
    assert made.status_code == 201, made.content
    assert session.get(made["Location"]).json()["name"] == "Second"
    for number in range(TENANTS_PER_USER_MAX - 2):
        services.create_own_tenant(user=owner.user, name=f"T{number}")
    with pytest.raises(QuotaExceeded):
        services.create_own_tenant(user=owner.user, name="One more")
    assert Api.of(owner).post("/tenants", {"name": "By token"}).status_code == 403


def test_without_mail_and_beyond_loopback_a_sign_up_tells_nothing(settings: Any) -> None:
    settings.SIGN_UP_IS_OPEN = False
    known = make_user().email
    answers = set()
    for email in (known, "nobody@example.com"):
        form = {"email": email, "password": PASSWORD, "tenant_name": "A"}
        page = Client().post(reverse("page-sign-up"), form)
        answers.add((page.status_code, "created by invitation" in page.content.decode()))
    assert answers == {(403, True)}
    assert User.objects.count() == 1


def test_an_invitations_link_tells_of_its_own_address_alone() -> None:
    owner, known = make_member(), make_user().email
    _invitation, secret = services.invite_member(acting=member_actor(owner), email="new@example.com", role="viewer")
    answers = []
    for email in (known, "nobody@example.com"):
        page = Client().post(reverse("page-join", args=[secret]), {"email": email, "password": PASSWORD})
        answers.append((page.status_code, "There is an account" in page.content.decode()))
    assert answers == [(422, False)] * 2
    assert Client().post(
        reverse("page-join", args=[secret]), {"email": "new@example.com", "password": PASSWORD}
    ).status_code == 302  # fmt: skip


def test_a_tenant_is_made_for_somebody_who_sets_the_password_by_a_link() -> None:
    said = StringIO()
    call_command("create_tenant", "Ada@Example.com", "Analytical Engines", stdout=said)
    user = User.objects.get(email="ada@example.com")
    assert not user.has_usable_password()
    link = re.search(r"/accounts/password/reset/key/\S+", said.getvalue())
    assert link is not None, said.getvalue()
    browser = Client()
    at = browser.get(link[0], follow=True).redirect_chain[-1][0]
    assert browser.post(at, {"password1": PASSWORD, "password2": PASSWORD}).status_code == 302
    browser.post(reverse("account_login"), {"login": user.email, "password": PASSWORD})
    assert browser.get("/members/").status_code == 200
    again = StringIO()
    call_command("create_tenant", "ada@example.com", "A second one", stdout=again)
    assert "/accounts/" not in again.getvalue(), "an account that is there keeps its password"
    assert Member.objects.filter(user=user).count() == 2
    with pytest.raises(CommandError):
        call_command("create_tenant", "nobody", "X")


def test_two_tenants_of_the_same_name_cannot_tell_each_other() -> None:
    first = services.create_own_tenant(user=make_user(), name="Acme").tenant
    second = services.create_own_tenant(user=make_user(), name="Acme").tenant
    assert first.slug != second.slug
    assert first.slug.startswith("acme-")
    assert second.slug.startswith("acme-")


def test_preferences_are_checked_and_kept() -> None:
    user = make_user()
    services.set_preferences(user=user, language="zh-hans", theme="dark", time_zone="Asia/Shanghai", name="Ada")
    user.refresh_from_db()
    assert (user.language, user.theme, user.time_zone, user.name) == ("zh-hans", "dark", "Asia/Shanghai", "Ada")
    for wrong in ({"language": "tlh"}, {"theme": "pink"}, {"time_zone": "Mars/Olympus"}):
        with pytest.raises(Invalid):
            services.set_preferences(user=user, **wrong)


def test_an_operator_is_created_once_and_keeps_the_first_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "first password of ops")
    said = StringIO()
    call_command("create_operator", "Ops@Example.com", stdout=said)
    monkeypatch.setenv(PASSWORD_VARIABLE, "another password of ops")
    call_command("create_operator", "ops@example.com", stdout=said)
    user = User.objects.get(email="ops@example.com")
    assert user.is_staff and user.is_superuser
    assert user.check_password("first password of ops")
    assert said.getvalue().splitlines() == ["ops@example.com created", "ops@example.com is an operator already"]
    assert "password of ops" not in said.getvalue()


@pytest.mark.parametrize("password", ["short", "1234567890123", "ops@example.com", "password1234"])
def test_the_password_of_a_new_operator_is_one_that_the_console_would_take(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, password)
    with pytest.raises(CommandError, match="password"):
        call_command("create_operator", "ops@example.com")
    assert not User.objects.exists()


def test_an_existing_user_becomes_an_operator_without_being_asked_for_a_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _: pytest.fail("it would be ignored"))
    user = make_user()
    said = StringIO()
    for _ in range(2):
        call_command("create_operator", user.email.upper(), stdout=said)
    user.refresh_from_db()
    assert user.is_staff and user.is_superuser and user.check_password(PASSWORD)
    assert said.getvalue().splitlines() == [
        f"{user.email} is an operator now and keeps the password",
        f"{user.email} is an operator already",
    ]


def test_the_demo_tenant_is_the_same_on_every_start() -> None:
    first = ensure_demo_tenant(email="demo@example.com", password=PASSWORD, token_secret=None)
    second = ensure_demo_tenant(email="demo@example.com", password=PASSWORD, token_secret=first.token_secret)
    assert (first.tenant.slug, second.tenant.pk) == (DEMO_SLUG, first.tenant.pk)
    assert second.token_secret == first.token_secret
    assert (User.objects.count(), Tenant.objects.count(), Member.objects.count()) == (1, 1, 1)
    assert Api(second.token_secret).get("/members").status_code == 200
    third = ensure_demo_tenant(email="demo@example.com", password=PASSWORD, token_secret="pst_lost")
    assert third.token_secret != first.token_secret
    assert demo_owner("demo@example.com") == second.member


def test_the_demo_token_of_an_earlier_version_may_do_what_its_owner_may_by_now() -> None:
    first = ensure_demo_tenant(email="demo@example.com", password=PASSWORD, token_secret=None)
    token = ApiToken.objects.get(tenant=first.tenant)
    whole, token.scopes = token.scopes, ["instances:read"]
    token.save()

    again = ensure_demo_tenant(email="demo@example.com", password=PASSWORD, token_secret=first.token_secret)

    token.refresh_from_db()
    assert (again.token_secret, token.scopes) == (first.token_secret, whole)
    assert ApiToken.objects.filter(tenant=first.tenant).count() == 1
    assert AuditEntry.objects.filter(tenant=first.tenant, action="token.changed").count() == 1
