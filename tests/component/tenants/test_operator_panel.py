"""The operator panel: access, pages, and the effects and audit rows of its actions."""

from __future__ import annotations

from datetime import UTC

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tenants import services
from tenants.actors import member_actor
from tenants.limits import PASSWORD_CHANGES_PER_USER_AND_MINUTE_MAX, SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX
from tenants.models import ApiToken, AuditEntry, Tenant, User
from tests.testkit.api_cases import Api, make_member, make_token, make_user
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db


@pytest.fixture()
def operator() -> User:
    return services.create_operator(email="ops@example.com", password="long enough for ops")[0]


@pytest.fixture()
def panel(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def act(panel: Client, page: str, action: str, row: object) -> str:
    """Runs an action on one row, and returns the page that follows."""
    url = reverse(f"admin:tenants_{page}_changelist")
    body = {"action": action, "_selected_action": [row.pk]}  # type: ignore[attr-defined]
    answer = panel.post(url, body, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def suspend(panel: Client, tenant: Tenant, **changes: str) -> str:
    """Sends the form of the confirmation before a suspension, and returns the page that follows."""
    said = {"reason": "unpaid", "note": " Write to billing@penstock.example. ", "typed": tenant.name} | changes
    body = {"action": "suspend", "_selected_action": [tenant.pk]} | said
    return panel.post(reverse("admin:tenants_tenant_changelist"), body, follow=True).content.decode()


def test_suspend_asks_first_and_says_what_happens_to_whom(panel: Client) -> None:
    tenant = make_member().tenant
    instance = make_running(tenant)
    page = act(panel, "tenant", "suspend", tenant)
    tenant.refresh_from_db()
    assert tenant.status == "active"
    assert "Produce is refused at once, to every client" in page
    assert instance.name in page
    assert "Produce is refused, consume goes on." in page
    assert f"Type {tenant.name} to confirm" in page


@pytest.mark.parametrize(
    ("field", "value"), [("typed", "another"), ("note", ""), ("note", "x" * 501), ("reason", "whim"), ("typed", "")]
)
def test_a_suspension_without_reason_note_or_name_changes_nothing(panel: Client, field: str, value: str) -> None:
    tenant = make_member().tenant
    page = suspend(panel, tenant, **{field: value})
    assert 'class="error"' in page
    tenant.refresh_from_db()
    assert tenant.status == "active"


def test_a_tenant_owner_does_not_get_in() -> None:
    client = Client()
    client.force_login(make_member().user)
    answer = client.get(reverse("admin:index"))
    assert answer.status_code == 302
    assert "/login" in answer["Location"]


@pytest.mark.parametrize("page", ["tenant", "user", "member", "invitation", "apitoken", "auditentry"])
def test_every_list_and_every_detail_page_opens(panel: Client, page: str) -> None:
    owner = make_member()
    make_token(owner)
    services.invite_member(acting=member_actor(owner), email="x@example.com", role="viewer")
    listed = panel.get(reverse(f"admin:tenants_{page}_changelist"))
    assert listed.status_code == 200
    model = next(m for m in admin.site._registry if m._meta.label_lower == f"tenants.{page}")
    row = model._default_manager.first()
    assert row is not None
    shown = panel.get(reverse(f"admin:tenants_{page}_change", args=[row.pk]))
    assert shown.status_code == 200
    assert panel.get(reverse(f"admin:tenants_{page}_delete", args=[row.pk])).status_code == 403
    assert panel.get(reverse(f"admin:tenants_{page}_add")).status_code == 403


def test_passwords_of_operators_are_not_guessed_without_end(operator: User) -> None:
    cache.clear()
    client, address = Client(), reverse("admin:login")
    right = {"username": "Ops@example.com", "password": "long enough for ops"}
    assert client.post(address, right).status_code == 302  # what is right is not counted
    for _ in range(SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX):
        client.post(address, right | {"password": "a guess"})
    assert "Too many failed login attempts" in client.post(address, right).content.decode()
    cache.clear()
    assert client.post(address, right).status_code == 302


def test_an_operators_own_password_is_changed_with_a_row_and_not_guessed(panel: Client, operator: User) -> None:
    cache.clear()
    fresh = dict.fromkeys(("new_password1", "new_password2"), "ops have another")
    right = {"old_password": "long enough for ops"} | fresh
    address = reverse("admin:password_change")
    assert "revoke_tokens" in panel.get(address).content.decode()
    elsewhere = Client()
    elsewhere.force_login(operator)
    assert panel.post(address, right | {"old_password": "a guess"}).status_code == 200
    assert not AuditEntry.objects.filter(action="password.changed").exists()
    assert panel.post(address, right).status_code == 302
    entry = AuditEntry.objects.get(action="password.changed")
    assert (entry.actor_id, entry.target_id, entry.ip) == (operator.pk, operator.pk, "127.0.0.1")
    assert panel.get(reverse("admin:index")).status_code == 200, "its own session ended"
    assert elsewhere.get(reverse("admin:index")).status_code == 302, "another session goes on"
    statuses = [panel.post(address, right).status_code for _ in range(PASSWORD_CHANGES_PER_USER_AND_MINUTE_MAX)]
    assert statuses[-1] == 429


def test_a_stranger_does_not_reach_the_page_for_operators_passwords() -> None:
    client = Client()
    client.force_login(make_member().user)
    answer = client.get(reverse("admin:password_change"))
    assert (answer.status_code, "/login" in answer["Location"]) == (302, True)


def test_a_person_who_is_no_operator_does_not_sign_in_to_the_panel() -> None:
    person = User.objects.create_user("person@example.com", "long enough for a person")
    body = {"username": person.email, "password": "long enough for a person"}
    answer = Client().post(reverse("admin:login"), body)
    assert (answer.status_code, answer.wsgi_request.user.is_authenticated) == (200, False)


def test_the_shell_names_the_place_and_lists_the_pages(panel: Client) -> None:
    page = panel.get(reverse("admin:index")).content.decode()
    assert "testserver" in page
    assert reverse("admin:tenants_tenant_changelist") in page
    assert "operator/panel.css" in page
    assert "/auth/group/" not in page


@pytest.mark.parametrize(("language", "words"), [("en", "{:%b %Y, %H:%M:%S} UTC"), ("zh-hans", "日 {:%H:%M:%S} UTC")])
def test_times_have_seconds_and_their_zone(panel: Client, language: str, words: str) -> None:
    """Operators in several zones search logs for these times."""
    created_at = make_member().tenant.created_at.astimezone(UTC)
    page = panel.get(reverse("admin:tenants_tenant_changelist"), headers={"accept-language": language})
    assert words.format(created_at) in page.content.decode()


def test_suspending_and_resuming_leave_audit_rows_in_the_tenant(panel: Client, operator: User) -> None:
    tenant = make_member().tenant
    suspend(panel, tenant)
    tenant.refresh_from_db()
    assert (tenant.status, tenant.suspension_reason) == ("suspended", "unpaid")
    assert tenant.suspension_note == "Write to billing@penstock.example."
    assert "suspended already" in suspend(panel, tenant, reason="abuse")
    act(panel, "tenant", "resume", tenant)
    tenant.refresh_from_db()
    assert tenant.status == "active"
    entries = AuditEntry.objects.filter(tenant=tenant, actor_kind="operator").order_by("time")
    assert [entry.action for entry in entries] == ["tenant.suspended", "tenant.resumed"]
    assert {entry.actor_id for entry in entries} == {operator.pk}
    assert all(entry.request_id for entry in entries)


def test_staff_without_the_permission_may_look_and_not_act(panel: Client) -> None:
    tenant = make_member().tenant
    looker = make_user(is_staff=True)
    from django.contrib.auth.models import Permission

    looker.user_permissions.add(Permission.objects.get(codename="view_tenant"))
    client = Client()
    client.force_login(looker)
    assert client.get(reverse("admin:tenants_tenant_changelist")).status_code == 200
    suspend(client, tenant)
    tenant.refresh_from_db()
    assert tenant.status == "active"


def test_no_page_shows_a_secret_or_its_hash(panel: Client) -> None:
    owner = make_member()
    secret = make_token(owner)
    token = owner.tokens.get()
    page = panel.get(reverse("admin:tenants_apitoken_change", args=[token.pk])).content.decode()
    assert secret not in page
    assert token.secret_hash not in page


@pytest.mark.parametrize("address", ["%00/change/", "x%00y/history/", "?status__exact=%00", "?q=%00", "?%00=1"])
def test_a_nul_in_an_address_of_the_panel_is_a_bad_request(panel: Client, address: str) -> None:
    assert panel.get(f"/operator/tenants/tenant/{address}").status_code == 400


def test_a_nul_in_a_form_of_the_panel_is_a_bad_request_and_without_a_csrf_token_forbidden(
    panel: Client, operator: User
) -> None:
    body = {"action": "suspend", "_selected_action": ["\x00"]}
    assert panel.post("/operator/tenants/tenant/", body).status_code == 400
    checked = Client(enforce_csrf_checks=True)
    checked.force_login(operator)
    assert checked.post("/operator/tenants/tenant/", body).status_code == 403


def test_the_login_names_its_mark_so_that_no_browser_asks_for_another() -> None:
    page = Client().get(reverse("admin:login")).content.decode()
    assert '<link rel="icon" href="/static/penstock/img/mark.svg" type="image/svg+xml"' in page


def test_an_operator_revokes_a_token_once_and_the_tenant_reads_of_it(panel: Client, operator: User) -> None:
    owner = make_member()
    secret = make_token(owner)
    token = ApiToken.objects.get()
    assert "revoked" in act(panel, "apitoken", "revoke", token)
    assert Api(secret).get("/members").status_code == 401
    entry = AuditEntry.objects.get(action="token.revoked")
    assert (entry.tenant, entry.actor_kind, entry.actor_label) == (owner.tenant, "operator", operator.email)
    assert "revoked already" in act(panel, "apitoken", "revoke", token)
    assert AuditEntry.objects.filter(action="token.revoked").count() == 1
