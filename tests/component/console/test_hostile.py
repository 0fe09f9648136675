"""Requests that no browser sends: bytes that PostgreSQL cannot store, numbers beyond every limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from instances.limits import DEFAULT_PARTITIONS_MAX
from instances.models import Instance
from instances.templatetags.access import user_url
from quotas.interfaces import EntityPart
from tenants.models import Member
from tests.component.console.fakes import FakeQuotaAdminClient
from tests.testkit.fake_users import FakeUsers

NUL = "\x00"


@pytest.mark.parametrize(
    "act", ["page-member-role", "page-member-remove", "page-invitation-revoke", "page-token-revoke"]
)
def test_an_id_with_a_zero_byte_is_not_found(act: str, ida: Client) -> None:
    assert ida.post(reverse(act, args=[f"mem-{NUL}"]), {"role": "viewer"}).status_code in (302, 404)


def test_a_tenant_with_a_zero_byte_is_not_found(ida: Client) -> None:
    assert ida.post("/tenant/", {"tenant": NUL}).status_code == 404


def test_an_undo_of_an_entry_with_a_zero_byte_changes_nothing(ida: Client, instance: Instance) -> None:
    at = reverse("page-group-undo", args=[instance.pk])
    assert ida.post(f"{at}?group=reports&entry=%00").status_code == 302
    assert ida.post(f"{at}?group=%00&entry=%00").status_code in (302, 404)


@pytest.mark.parametrize("page", ["page-group", "page-group-reset", "page-group-delete", "page-transaction"])
def test_names_with_a_zero_byte_are_not_found(page: str, ida: Client, instance: Instance) -> None:
    assert ida.get(f"{reverse(page, args=[instance.pk])}?group=%00&id=%00").status_code == 404


@pytest.mark.parametrize("page", ["page-groups", "page-transactions", "page-topics", "page-quotas"])
def test_queries_with_a_zero_byte_show_the_page(page: str, ida: Client, instance: Instance) -> None:
    query = "q=%00&page_token=%00&state=%00&explain=1&user=%00&client_id=%00"
    assert ida.get(f"{reverse(page, args=[instance.pk])}?{query}").status_code == 200


@pytest.mark.parametrize(
    ("page", "more", "query"),
    [
        ("page-user-restore", [], "?user=%00"),
        ("page-user-delete-for-good", [], "?user=%00"),
        ("page-topic-copy-act", [NUL, "cancel"], ""),
        ("page-topic-copy-act", [NUL, "resume"], ""),
        ("page-acl-undo", [], "?entry=%00"),
    ],
)
def test_a_row_named_by_a_zero_byte_is_not_found(
    page: str, more: list[str], query: str, ida: Client, instance: Instance
) -> None:
    address = reverse(page, args=[instance.pk, *more]) + query
    assert ida.post(address, {"confirmed": "yes"}).status_code in (302, 404)


def test_a_missing_row_of_a_fragment_is_a_fragment(ida: Client, instance: Instance) -> None:
    address = reverse("page-topic-copy-act", args=[instance.pk, NUL, "cancel"])
    response = ida.post(address, headers={"HX-Request": "true"})
    assert response.status_code == 404
    assert "<html" not in response.content.decode()


def test_a_user_with_a_zero_byte_is_deleted_for_good_and_no_undo_is_offered(
    ida: Client, instance: Instance, users: FakeUsers
) -> None:
    name = f"bill{NUL}ing"
    users.add(instance.pk, name, secrets=())
    page = ida.post(user_url("page-user-delete", instance.pk, name), {"typed": name}, follow=True).content.decode()
    assert (instance.pk, name) not in users.users_by_key
    assert "is deleted." in page
    assert reverse("page-user-restore", args=[instance.pk]) not in page


def test_a_session_with_a_zero_byte_is_nobodys(client: Client, db: None) -> None:
    client.cookies[settings.SESSION_COOKIE_NAME] = f"abcdefgh{NUL}ijklmnop"
    assert client.get("/instances/").status_code == 302


@pytest.mark.parametrize("hours", ["1e999999", "9e9999999999", "1" + "0" * 5_000, "1e30", "0.0000000001", "NaN"])
def test_a_retention_beyond_every_clock_is_refused_beside_its_field(
    hours: str, ida: Client, instance: Instance
) -> None:
    values = {"name": "long", "partitions": "1", "replication_factor": "1", "retention_hours": hours}
    response = ida.post(reverse("page-topic-create", args=[instance.pk]), values)
    assert response.status_code == 422
    assert 'aria-invalid="true"' in response.content.decode()


def test_automatic_topics_have_no_more_partitions_than_the_api_allows(ida: Client, instance: Instance) -> None:
    values = {"part": "topics", "auto_create_topics": "on", "default_partitions": str(DEFAULT_PARTITIONS_MAX + 1)}
    assert ida.post(reverse("page-instance-settings", args=[instance.pk]), values).status_code == 422
    instance.refresh_from_db()
    assert instance.settings["default_partitions"] <= DEFAULT_PARTITIONS_MAX


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5_000, "٣", "²"])
def test_numbers_in_queries_are_read_or_refused(number: str, ida: Client, owner: Member, instance: Instance) -> None:
    assert ida.get(f"{reverse('page-traffic', args=[instance.pk])}?since_ms={number}").status_code == 200
    assert ida.get(f"/prices/?plan=stream&bandwidth_mb_s={number}&storage_gb={number}").status_code in (200, 204, 404)


def test_a_refused_page_names_who_may_and_leads_back_to_the_instance(
    join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance
) -> None:
    viewer = browse(join("viewer"))
    page = viewer.get(f"{reverse('page-group-reset', args=[instance.pk])}?group=reports")
    assert page.status_code == 403
    assert f'href="{reverse("page-instance", args=[instance.pk])}"' in page.content.decode()
    assert 'href="/instances/ins-' not in viewer.get("/instances/ins-nobodys0/groups/").content.decode()


def test_an_act_the_phase_does_not_allow_is_not_shown_as_a_failure_of_ours(ida: Client, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(phase="deleting")
    page = ida.get(f"{reverse('page-group', args=[instance.pk])}?group=reports")
    assert page.status_code == 409
    assert "This is not possible at the moment" in page.content.decode()
    assert "send us" not in page.content.decode()


def test_the_button_for_a_first_topic_may_be_pressed_twice(ida: Client, instance: Instance) -> None:
    at = reverse("page-topic-sample", args=[instance.pk])
    assert [ida.post(at).status_code for _ in range(2)] == [302, 302]


@pytest.mark.parametrize("page", ["page-groups", "page-topics", "page-why", "page-groups-part", "page-transactions"])
def test_a_part_without_a_session_is_never_the_login(page: str, client: Client, instance: Instance) -> None:
    at = reverse(page, args=[instance.pk])
    part = client.get(at, headers={"HX-Request": "true"})
    assert (part.status_code, part["HX-Refresh"], part.content) == (401, "true", b"")
    assert client.get(at).status_code == 302


@pytest.mark.parametrize(
    ("came_from", "onward"),
    [
        ("http://testserver/instances/?q=a", "/instances/%3Fq%3Da"),
        ("http://elsewhere.example/instances/", "/"),
        ("//elsewhere.example/", "/"),
        ("", "/"),
    ],
)
def test_a_form_sent_after_the_session_ended_leads_back_to_its_page(
    came_from: str, onward: str, client: Client, instance: Instance
) -> None:
    answer = client.post(reverse("page-topic-sample", args=[instance.pk]), headers={"Referer": came_from})
    assert answer.status_code == 302
    assert answer["Location"].endswith(f"/accounts/login/?next={onward}")


@pytest.mark.parametrize("name", ["x" * 300, " spaces ", "", "\x07", "line\r\nfeed"])
def test_removing_a_quota_of_an_odd_name_leaves_the_default_alone(
    name: str, ida: Client, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    limits = {"producer_byte_rate": 1.0}
    default = (EntityPart(name=None), None)
    quota_admin_client.found[instance.pk] = {default: dict(limits), (EntityPart(name=name), None): dict(limits)}
    entity = {"user_kind": "name", "user": name, "client_id_kind": "none", "client_id": ""}
    ida.post(reverse("page-quota-delete", args=[instance.pk]), entity | {"confirmed": "yes"})
    assert quota_admin_client.found[instance.pk] == {default: limits}


def test_a_deletion_that_names_no_quota_removes_none(
    ida: Client, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    kept: dict[tuple[EntityPart | None, EntityPart | None], dict[str, float]]
    kept = {(EntityPart(name=None), None): {"producer_byte_rate": 1.0}}
    quota_admin_client.found[instance.pk] = dict(kept)
    at = reverse("page-quota-delete", args=[instance.pk])
    for entity in ({}, {"user_kind": "name", "user": NUL, "client_id_kind": "none"}, {"user_kind": "all"}):
        assert ida.post(at, entity).status_code == 302
    assert quota_admin_client.found[instance.pk] == kept


def test_quotas_of_an_unreachable_instance_are_not_shown_as_none(ida: Client, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(phase="deleting")
    page = ida.get(reverse("page-quotas", args=[instance.pk])).content.decode()
    assert "No quota set" not in page and "The instance must run first." in page
