"""Pages of users: a password shown once, a second one, full access, disabling and enabling, and deletion."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from django.test import Client
from django.urls import reverse

from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.models import AuditEntry, Member
from tests.component.console.test_acts import text_of
from tests.testkit.fake_users import CREATED_AT_MS, FakeAcls, FakeUsers, rule, secret

SHOWN = re.compile(r'data-copy="(psu_[^"]{43})"')


def page(name: str, instance: Instance, user: str = "") -> str:
    return reverse(name, args=[instance.pk]) + (f"?user={user}" if user else "")


def test_a_user_is_made_and_its_password_shown_on_a_page_that_nobody_keeps(
    ida: Client, instance: Instance, users: FakeUsers
) -> None:
    response = ida.post(page("page-users", instance), {"name": "etl", "days": "30", "rights": "full_access"})
    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    password = SHOWN.search(text_of(response))
    assert password is not None
    made = users.users_by_key[instance.pk, "etl"]
    assert made.superuser
    assert made.expires_at_ms is not None
    assert password[1] in users.passwords.values()
    later = ida.get(page("page-users", instance))
    assert password[1] not in text_of(later)
    assert "etl" in text_of(later)


def test_a_snippet_with_the_password_is_shown_where_clients_sign_in(
    ida: Client, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SimpleNamespace(security="sasl_plaintext", bootstrap_servers="127.0.0.1:19001")
    monkeypatch.setattr(Instance, "routes_in_order", [first], raising=False)
    shown = text_of(ida.post(page("page-users", instance), {"name": "etl"}))
    assert "&quot;sasl.username&quot;: &quot;etl&quot;" in shown
    overview = text_of(ida.get(reverse("page-instance", args=[instance.pk])))
    assert "&quot;sasl.username&quot;: &quot;billing&quot;" in overview
    assert "psu_" not in overview


def test_where_nobody_signs_in_the_page_says_so_and_snippets_stay_as_they_were(
    ida: Client, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SimpleNamespace(security="plaintext")
    monkeypatch.setattr(Instance, "routes_in_order", [first], raising=False)
    assert "as ANONYMOUS" in text_of(ida.get(page("page-users", instance)))
    assert "sasl" not in text_of(ida.get(reverse("page-instance", args=[instance.pk])))


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "required"), ("ANONYMOUS", "means something else"), ("billing", "such a user already")],
)
def test_a_name_that_is_refused_is_said_beside_its_field(
    ida: Client, instance: Instance, name: str, words: str
) -> None:
    response = ida.post(page("page-users", instance), {"name": name})
    assert response.status_code == 422
    assert words in text_of(response)
    assert re.search(r'<input[^>]*name="name"[^>]*aria-invalid="true"', text_of(response))


def test_a_second_password_is_shown_once_and_the_old_one_removed(
    ida: Client, instance: Instance, users: FakeUsers
) -> None:
    at = page("page-user", instance, "billing")
    assert "Remove</button>" not in text_of(ida.get(at))
    response = ida.post(at, {"part": "rotate"})
    assert response["Cache-Control"] == "no-store"
    assert SHOWN.search(text_of(response))
    assert "Remove</button>" in text_of(response)
    assert ida.post(at, {"part": "remove", "secret": "sec-of-billing", "confirmed": "yes"}).status_code == 302
    (left,) = users.users_by_key[instance.pk, "billing"].secrets
    assert left.id in users.passwords


def test_a_third_password_is_refused_in_words(ida: Client, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "full", secrets=(secret("a"), secret("b")))
    at = page("page-user", instance, "full")
    assert "Remove one to add another" in text_of(ida.get(at))
    shown = ida.post(at, {"part": "rotate"}, follow=True)
    assert "at most 2 passwords" in text_of(shown)


def test_a_user_is_disabled_and_let_in_again_by_undo(ida: Client, instance: Instance, users: FakeUsers) -> None:
    shown = text_of(ida.post(page("page-user", instance, "billing"), {"part": "disable"}, follow=True))
    assert users.users_by_key[instance.pk, "billing"].disabled
    assert "Disabled" in shown
    back = re.search(r'class="undo".*?action="([^"]+)"', shown, re.DOTALL)
    assert back is not None
    assert ida.post(back[1].replace("&amp;", "&")).status_code == 302
    assert not users.users_by_key[instance.pk, "billing"].disabled


def test_full_access_is_given_and_taken(ida: Client, instance: Instance, users: FakeUsers) -> None:
    at = page("page-user", instance, "billing")
    for part, expected in (("full", True), ("limited", False)):
        ida.post(at, {"part": part})
        assert users.users_by_key[instance.pk, "billing"].superuser is expected


def test_an_expiry_is_set_and_taken_away(ida: Client, instance: Instance, users: FakeUsers) -> None:
    at = page("page-user", instance, "billing")
    ida.post(at, {"part": "expiry", "days": "90"})
    assert users.users_by_key[instance.pk, "billing"].expires_at_ms is not None
    ida.post(at, {"part": "expiry", "days": ""})
    assert users.users_by_key[instance.pk, "billing"].expires_at_ms is None


def test_a_deletion_says_what_it_cuts_and_wants_the_name(
    ida: Client, instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    at = page("page-user-delete", instance, "billing")
    acls.create(instance.pk, [rule("User:billing", "write")])
    shown = text_of(ida.get(at))
    assert "2 open connections end within a second" in shown
    assert "Access rules and quotas that name it stay: 2 and 0." in shown
    ida.post(at, {"typed": "another"})
    assert (instance.pk, "billing") in users.users_by_key
    assert ida.post(at, {"typed": "billing", "for_good": "on"}).status_code == 302
    assert (instance.pk, "billing") not in users.users_by_key


def test_a_deleted_user_is_brought_back_by_undo_or_below_the_list_and_goes_when_asked(
    ida: Client, instance: Instance, users: FakeUsers
) -> None:
    assert "Recently deleted" not in text_of(ida.get(page("page-users", instance)))
    shown = text_of(ida.post(page("page-user-delete", instance, "billing"), {"typed": "billing"}, follow=True))
    restore = page("page-user-restore", instance, "billing")
    assert shown.count(f'action="{restore}"') == 2, "the undo, and the row"
    assert ida.get(page("page-user", instance, "billing")).status_code == 404
    assert "with its passwords and rights" in text_of(ida.post(restore, follow=True))
    assert not users.users_by_key[instance.pk, "billing"].disabled

    ida.post(page("page-user-delete", instance, "billing"), {"typed": "billing"})
    ends = page("page-user-delete-for-good", instance, "billing")
    assert "Nothing brings them back" in text_of(ida.post(ends))
    assert (instance.pk, "billing") in users.users_by_key
    assert "deleted for good" in text_of(ida.post(ends, {"confirmed": "yes"}, follow=True))
    assert (instance.pk, "billing") not in users.users_by_key
    assert "There is no deleted user" in text_of(ida.post(restore, follow=True))


def test_states_and_silence_are_said_on_the_list(ida: Client, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, "old", expires_at_ms=CREATED_AT_MS - 10**12, last_used_at_ms=None)
    users.silent = (BrokerUnresponsive(broker_id=2, reason="does not answer"),)
    shown = text_of(ida.get(page("page-users", instance)))
    for words in ("Expired", "never seen", "A broker does not answer"):
        assert words in shown


def test_an_empty_list_and_one_without_a_match_say_what_to_do(
    ida: Client, instance: Instance, users: FakeUsers
) -> None:
    at = page("page-users", instance)
    rows = ida.get(at + "?q=zzz", headers={"HX-Request": "true"})
    assert "No user matches" in text_of(rows)
    assert "<html" not in text_of(rows)
    users.users_by_key.clear()
    assert "No user yet" in text_of(ida.get(at))


def test_a_viewer_makes_no_user(
    join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance, users: FakeUsers
) -> None:
    viewer = browse(join("viewer"))
    before = dict(users.users_by_key)
    for at, body in (
        (page("page-users", instance), {"name": "etl"}),
        (page("page-user", instance, "billing"), {"part": "disable"}),
        (page("page-user", instance, "billing"), {"part": "rotate"}),
        (page("page-user-enable", instance, "billing"), {}),
        (page("page-user-restore", instance, "billing"), {}),
        (page("page-user-delete-for-good", instance, "billing"), {"confirmed": "yes"}),
    ):
        viewer.post(at, body)
    assert users.users_by_key == before
    assert not AuditEntry.objects.filter(action__startswith="user.", target_type="user", tenant=instance.tenant).filter(
        target_id__startswith=instance.pk
    )


def test_a_strangers_post_changes_nobody(
    stranger: Member, browse: Callable[[Member], Client], instance: Instance, users: FakeUsers
) -> None:
    eve, before = browse(stranger), dict(users.users_by_key)
    for name in (
        "page-users", "page-user", "page-user-enable", "page-user-delete", "page-user-restore",
        "page-user-delete-for-good",
    ):  # fmt: skip
        body = {"name": "etl", "part": "disable", "typed": "billing", "confirmed": "yes"}
        assert eve.post(page(name, instance, "billing"), body).status_code == 404
    assert users.users_by_key == before


def test_the_quotas_form_offers_the_users_there_are(ida: Client, instance: Instance) -> None:
    shown = text_of(ida.get(reverse("page-quotas", args=[instance.pk])))
    assert '<option value="billing"></option>' in shown
    assert 'list="user-names"' in shown


def test_a_hostile_name_is_only_a_name(ida: Client, instance: Instance, users: FakeUsers) -> None:
    users.add(instance.pk, '"><script>alert(1)</script>')
    shown = text_of(ida.get(page("page-users", instance)))
    assert "<script>alert" not in shown
    link = re.search(r'href="([^"]*users/one/\?user=%22[^"]+)"', shown)
    assert link is not None
    assert ida.get(link[1]).status_code == 200
