"""Forms of the console: they call the service, confirm the result, and show a refusal at its field."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from django.test import Client
from django.urls import reverse

from instances.interfaces import BrokerUnresponsive, RefusedTopic
from instances.lifecycle.phases import Phase
from instances.models import Instance
from quotas.interfaces import EntityPart
from tenants.models import ApiToken, AuditEntry, Member, Tenant, User
from tests.component.console.conftest import PASSWORD
from tests.component.console.fakes import NOW_MS, FakeDataPlane, FakeObservation, FakeQuotaAdminClient, throttle

SIGN_UP = {
    "email": "new@example.com",
    "password": PASSWORD,
    "tenant_name": "Example",
    "time_zone": "Europe/Berlin",
}


def text_of(response: object) -> str:
    return response.content.decode()  # type: ignore[attr-defined,no-any-return]


# --- the way in -------------------------------------------------------------------------------------------------------


def test_signing_up_makes_a_tenant_and_signs_in(client: Client, db: None) -> None:
    response = client.post("/accounts/signup/", SIGN_UP)
    assert response.status_code == 302
    member = Member.objects.get(user__email="new@example.com")
    assert (member.role, member.tenant.name, member.user.time_zone) == ("owner", "Example", "Europe/Berlin")
    assert client.get("/members/").status_code == 200


def test_a_zone_the_system_does_not_know_does_not_stop_a_sign_up(client: Client, db: None) -> None:
    assert client.post("/accounts/signup/", SIGN_UP | {"time_zone": "Mars/Olympus"}).status_code == 302
    assert User.objects.get(email="new@example.com").time_zone == "UTC"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("email", "not an address", "valid email"),
        ("email", "ida@halvorsen.example", "Log in instead"),
        ("password", "short", "at least 10"),
        ("tenant_name", "", "required"),
    ],
)
def test_a_wrong_field_is_reported_beside_it(field: str, value: str, words: str, client: Client, owner: Member) -> None:
    response = client.post("/accounts/signup/", SIGN_UP | {field: value})
    assert response.status_code == 422
    assert words in text_of(response)
    assert re.search(rf'<input[^>]*name="{field}"[^>]*aria-invalid="true"', text_of(response))
    assert Tenant.objects.count() == 1


def test_an_invitation_is_accepted_by_its_link(
    ida: Client, stranger: Member, browse: Callable[[Member], Client]
) -> None:
    page = ida.post("/members/", {"email": stranger.user.email, "role": "viewer"})
    assert page["Cache-Control"] == "no-store"
    link = re.search(r'data-copy="http[^"]*(/join/[^"]+)"', text_of(page))
    assert link is not None
    eve = browse(stranger)
    assert eve.get(link[1]).status_code == 200
    assert eve.post(link[1]).status_code == 302
    assert eve.post(link[1]).status_code == 410
    assert "Halvorsen Freight" in text_of(eve.get("/members/"))


def test_an_invited_person_without_an_account_joins_without_founding_a_tenant(ida: Client, client: Client) -> None:
    page = ida.post("/members/", {"email": "tom@halvorsen.example", "role": "viewer"})
    link = re.search(r'data-copy="http[^"]*(/join/[^"]+)"', text_of(page))
    assert link is not None
    shown = client.get(link[1])
    assert (shown.status_code, shown["Cache-Control"], shown["Referrer-Policy"]) == (200, "no-store", "same-origin")
    assert f"/accounts/login/?next={link[1]}" in text_of(shown)
    tenants = Tenant.objects.count()
    account = {"email": "other@halvorsen.example", "password": SIGN_UP["password"], "time_zone": "Asia/Shanghai"}
    refused = client.post(link[1], account)
    assert refused.status_code == 422
    assert "no open invitation for this address" in text_of(refused)
    assert not User.objects.filter(email="other@halvorsen.example").exists()
    assert client.post(link[1], account | {"email": "tom@halvorsen.example"}).status_code == 302
    assert Tenant.objects.count() == tenants
    assert "Halvorsen Freight" in text_of(client.get("/members/"))
    assert User.objects.get(email="tom@halvorsen.example").time_zone == "Asia/Shanghai"


def test_a_tenant_one_does_not_belong_to_cannot_be_chosen(ida: Client, stranger: Member) -> None:
    assert ida.post("/tenant/", {"tenant": stranger.tenant_id}).status_code == 404
    assert "Halvorsen Freight" in text_of(ida.get("/members/"))


# --- people and tokens ------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_kept_out_of_caches(ida: Client) -> None:
    response = ida.post("/tokens/", {"name": "deploy", "scopes": ["instances:read"], "days": "30"})
    secret = re.search(r'data-copy="(pst_[^"]+)"', text_of(response))
    assert secret is not None
    assert response["Cache-Control"] == "no-store"
    assert secret[1] not in text_of(ida.get("/tokens/"))
    token = ApiToken.objects.get(name="deploy")
    assert ida.post(reverse("page-token-revoke", args=[token.pk]), {"confirmed": "yes"}).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_the_rights_of_a_token_are_listed_in_words(ida: Client) -> None:
    ida.post("/tokens/", {"name": "deploy", "scopes": ["topics:read", "billing:read", "messages:read"], "days": ""})
    table = text_of(ida.get("/tokens/")).partition("<tbody>")[2].partition("</tbody>")[0]
    assert "Topics and messages, Billing</summary>" in table and "Read messages" in table and "topics:read" not in table


def test_a_developer_cannot_grant_what_the_role_does_not_have(
    join: Callable[[str], Member], browse: Callable[[Member], Client]
) -> None:
    response = browse(join("developer")).post("/tokens/", {"name": "x", "scopes": ["billing:write"], "days": ""})
    assert response.status_code == 422
    assert not ApiToken.objects.filter(name="x").exists()


def test_the_last_owner_stays(ida: Client, owner: Member) -> None:
    ida.post(reverse("page-member-remove", args=[owner.pk]), {"confirmed": "yes"})
    owner.refresh_from_db()
    assert owner.removed_at is None
    assert "keeps at least one owner" in text_of(ida.get("/members/"))


def test_the_audit_log_filters_and_exports(ida: Client, instance: Instance) -> None:
    page = text_of(ida.get("/audit/?q=instance.created"))
    assert instance.pk in page
    assert "tenant.created" not in page
    lines = b"".join(ida.get("/audit.csv")).decode().splitlines()  # type: ignore[call-overload]
    assert lines[0].startswith("time,actor_kind,actor,action")
    assert len(lines) == 1 + AuditEntry.objects.exclude(tenant=None).count()
    exported = list(csv.DictReader(lines))
    entry = AuditEntry.objects.get(action="instance.created")
    (line,) = [line for line in exported if line["target"] == entry.target_id and line["action"] == entry.action]
    assert (line["before"], json.loads(line["after"])) == ("", entry.after)


# --- preferences ------------------------------------------------------------------------------------------------------


def test_language_and_theme_are_kept_for_the_person(ida: Client, owner: Member) -> None:
    ida.post("/preferences/", {"language": "zh-hans", "theme": "dark", "next": "/members/"})
    page = text_of(ida.get("/members/"))
    assert '<html lang="zh-Hans" data-theme="dark">' in page
    assert "成员" in page
    owner.user.refresh_from_db()
    assert (owner.user.language, owner.user.theme) == ("zh-hans", "dark")


def test_preferences_lead_to_no_other_site(client: Client, db: None) -> None:
    response = client.post("/preferences/", {"language": "zh-hans", "next": "https://elsewhere.example/"})
    assert response["Location"] == "/"
    assert "创建账户" in text_of(client.get("/accounts/signup/"))


def test_every_page_speaks_chinese(ida: Client, instance: Instance) -> None:
    ida.post("/preferences/", {"language": "zh-hans"})
    pages = ["/instances/", "/instances/new/", "/tokens/", "/audit/", "/settings/", "/usage/"]
    pages += [
        reverse(name, args=[instance.pk]) for name in ("page-instance", "page-topics", "page-quotas", "page-usage")
    ]
    for page in pages:
        heading = re.search(r"<h1[^>]*>(.*?)</h1>", text_of(ida.get(page)))
        assert heading is not None
        assert re.search(r"[\u4e00-\u9fff]|orders-prod", heading[1]), page


# --- instances --------------------------------------------------------------------------------------------------------


def test_buying_leads_to_the_steps(
    ida: Client, reconciled: list[str], django_capture_on_commit_callbacks: object
) -> None:
    values = {
        "name": "orders-eu",
        "plan": "stream",
        "bandwidth_mb_s": "30",
        "storage_gb": "200",
        "cluster_type": "shared",
    }
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        response = ida.post("/instances/new/", values)
    made = Instance.objects.get(name="orders-eu")
    assert response["Location"] == reverse("page-instance", args=[made.pk])
    assert reconciled == [made.pk]
    assert (made.bandwidth_mb_s, made.storage_gb, made.settings["auto_create_topics"]) == (30, 200, False)
    page = text_of(ida.get(response["Location"]))
    assert "Request accepted" in page
    assert "First message in and out" in page


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("bandwidth_mb_s", "3", "Stream starts at 20 MB/s. Enter 20 or more"),
        ("bandwidth_mb_s", "900", "Stream ends at 60 MB/s. Enter 60 or less"),
        ("storage_gb", "10", "Stream starts at 100 GB"),
        ("name", "Not a name", "Use a to z, digits and dashes"),
    ],
)
def test_a_wrong_size_is_reported_with_its_range(field: str, value: str, words: str, ida: Client) -> None:
    values = {"name": "orders-eu", "plan": "stream", "bandwidth_mb_s": "20", "storage_gb": "100"} | {field: value}
    response = ida.post("/instances/new/", values)
    assert response.status_code == 422
    assert words in text_of(response)
    assert not Instance.objects.exists()


def test_the_price_follows_the_size_and_is_a_dash_while_a_size_is_wrong(ida: Client) -> None:
    sizes = {"plan": "stream", "bandwidth_mb_s": "30", "storage_gb": "100"}
    assert "€ 0.2900" in text_of(ida.get("/price/", sizes))
    for wrong, words in (({"bandwidth_mb_s": "9000"}, "ends at"), ({"storage_gb": "much"}, "whole number")):
        panel = text_of(ida.get("/price/", sizes | wrong))
        assert "€" not in panel
        assert '<div class="figure">—</div>' in panel
        assert words in panel


def test_a_failed_instance_says_why_and_what_next(ida: Client, instance: Instance) -> None:
    operation = instance.operations.get()
    operation.state, operation.error = "failed", {"code": "no_room", "data": {"largest_bandwidth_mb_s": 12}}
    operation.steps[1] |= {"state": "failed", "at_ms": 48, "fact": "No shared cluster has it."}
    operation.save()
    Instance.objects.filter(pk=instance.pk).update(phase="failed", reason="no_room")
    page = text_of(ida.get(reverse("page-instance", args=[instance.pk])))
    assert "No cluster has 20 MB/s free. Take 12 MB/s or less." in page
    assert "Nothing was charged." in page
    assert reverse("page-instance-retry", args=[instance.pk]) in page


def test_deleting_asks_for_the_name_and_offers_undo(ida: Client, instance: Instance) -> None:
    address = reverse("page-instance-delete", args=[instance.pk])
    assert ida.post(address, {"typed": "something else"}).status_code == 200
    instance.refresh_from_db()
    assert not instance.is_deleted
    page = text_of(ida.post(address, {"typed": "orders-prod"}, follow=True))
    assert "orders-prod is being deleted. Restorable until" in page
    assert 'class="undo"' in page
    ida.post(reverse("page-instance-restore", args=[instance.pk]))
    instance.refresh_from_db()
    assert not instance.is_deleted


def test_deleting_what_has_no_topic_promises_no_undo(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.found.clear()
    address = reverse("page-instance-delete", args=[instance.pk])
    assert "It has no topic, so it goes for good at once" in text_of(ida.get(address))
    page = text_of(ida.post(address, {"typed": "orders-prod"}, follow=True))
    assert "orders-prod is being deleted for good." in page
    assert 'class="undo"' not in page
    assert reverse("page-instance-restore", args=[instance.pk]) not in page
    assert "Being deleted for good." in text_of(ida.get(reverse("page-instance", args=[instance.pk])))


def test_deleting_an_instance_with_a_deleted_topic_promises_an_undo(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    topic = {"typed": "orders.created"}
    assert ida.post(reverse("page-topic-delete", args=[instance.pk, "orders.created"]), topic).status_code == 302
    data_plane.found.clear()
    address = reverse("page-instance-delete", args=[instance.pk])
    page = text_of(ida.get(address))
    assert "You can restore everything for 7 days." in page
    assert "It has no topic" not in page
    assert "orders-prod is being deleted. Restorable until" in text_of(
        ida.post(address, {"typed": "orders-prod"}, follow=True)
    )


def test_a_deleted_instance_is_purged_by_typing_its_name(ida: Client, instance: Instance) -> None:
    ida.post(reverse("page-instance-delete", args=[instance.pk]), {"typed": "orders-prod"})
    address = reverse("page-instance-purge", args=[instance.pk])
    for page in ("page-instances", "page-instance"):
        arguments = [instance.pk] if page == "page-instance" else []
        assert address in text_of(ida.get(reverse(page, args=arguments)))
    assert "Nothing brings them back." in text_of(ida.post(address, {"typed": "orders"}))
    instance.refresh_from_db()
    assert instance.reason == "deleted_by_user"
    assert "orders-prod is being deleted for good." in text_of(ida.post(address, {"typed": "orders-prod"}, follow=True))
    instance.refresh_from_db()
    assert instance.reason == "deleted_for_good"
    assert "is being purged already" in text_of(ida.post(address, {"typed": "orders-prod"}, follow=True))


# --- topics and quotas ------------------------------------------------------------------------------------------------


def test_a_topic_is_created_through_the_data_plane(ida: Client, instance: Instance, data_plane: FakeDataPlane) -> None:
    address = reverse("page-topic-create", args=[instance.pk])
    ida.post(address, {"name": "payments", "partitions": "4", "retention_hours": "0"})
    assert len(data_plane.topic(instance.pk, "payments").partitions) == 4
    assert data_plane.configs[instance.pk, "payments"] == {"retention.ms": "-1"}
    again = ida.post(address, {"name": "payments", "partitions": "1"})
    assert again.status_code == 422
    wrong = text_of(ida.post(address, {"name": "orders created", "partitions": "1"}))
    assert "orders.created" in wrong


def test_a_topic_has_as_many_copies_as_chosen_and_no_more_than_brokers(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    """REP-1: one to three, each on another broker of the instance."""
    address = reverse("page-topic-create", args=[instance.pk])
    instance.endpoints = {str(number): f"127.0.0.1:{19_000 + number}" for number in (1, 2)}
    instance.save()
    page = text_of(ida.get(address))
    assert '<option value="2" selected>2</option>' in page
    assert '<option value="3">' not in page
    assert ida.post(address, {"name": "precious", "partitions": "1", "replication_factor": "2"}).status_code == 302
    assert data_plane.topic(instance.pk, "precious").replication_factor == 2
    assert ida.post(address, {"name": "too-many", "partitions": "1", "replication_factor": "3"}).status_code == 422


def test_a_person_founds_another_tenant_and_works_in_it(ida: Client, owner: Member, instance: Instance) -> None:
    at = reverse("page-settings")
    assert ida.post(at, {"part": "found", "name": " "}).status_code == 422
    response = ida.post(at, {"part": "found", "name": "Second"}, follow=True)
    assert "Second is founded." in text_of(response)
    assert instance.name not in text_of(response), "it has nothing of the first"
    founded = Member.objects.get(user=owner.user, tenant__name="Second")
    assert (founded.role, founded.tenant.name) == ("owner", "Second")


def test_a_topic_is_cloned_without_its_messages(ida: Client, instance: Instance, data_plane: FakeDataPlane) -> None:
    address = reverse("page-topic-clone", args=[instance.pk, "orders.created"])
    assert "retention.ms" in text_of(ida.get(address))
    for name, words in (("orders.created", "There is a topic with this name."), ("a b", "a.b")):
        response = ida.post(address, {"name": name})
        assert response.status_code == 422
        assert words in text_of(response)
    assert ida.post(address, {"name": "copy"}).status_code == 302
    assert len(data_plane.topic(instance.pk, "copy").partitions) == 3
    assert data_plane.configs[instance.pk, "copy"] == {"retention.ms": "86400000"}


def test_a_wrong_address_is_reported_beside_its_list(ida: Client, instance: Instance) -> None:
    address = reverse("page-topic-access", args=[instance.pk, "orders.created"])
    response = ida.post(address, {"produce": "10.0.0.0/8\nnot-an-address", "consume": ""})
    assert response.status_code == 422
    assert 'aria-invalid="true"' in text_of(response)
    assert ida.post(address, {"produce": "10.0.0.0/8", "consume": ""}).status_code == 302


def test_quotas_are_set_explained_and_removed(
    ida: Client, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    address = reverse("page-quotas", args=[instance.pk])
    entity = {"user_kind": "name", "user": "etl", "client_id_kind": "none", "client_id": ""}
    ida.post(address, entity | {"produce_mb_s": "1.5", "consume_mb_s": ""})
    assert quota_admin_client.found[instance.pk] == {
        (EntityPart(name="etl"), None): {"producer_byte_rate": 1_500_000.0}
    }
    page = text_of(ida.get(f"{address}?explain=1&user=etl&client_id=flink"))
    assert "1.5 MB/s applies" in page
    ida.post(reverse("page-quota-delete", args=[instance.pk]), entity | {"confirmed": "yes"})
    assert quota_admin_client.found[instance.pk] == {}


def test_new_connections_of_an_address_are_limited_and_let_go(
    ida: Client, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    address = reverse("page-address-quotas", args=[instance.pk])
    ida.post(address, {"ip_kind": "name", "ip": "192.0.2.1", "connections_per_s": "7"})
    ida.post(address, {"ip_kind": "default", "ip": "", "connections_per_s": "20"})
    assert quota_admin_client.addresses[instance.pk] == {"192.0.2.1": 7, None: 20}
    page = text_of(ida.get(reverse("page-quotas", args=[instance.pk])))
    assert "192.0.2.1" in page
    assert "7/s" in page
    assert "20/s" in page
    ida.post(
        reverse("page-address-quota-delete", args=[instance.pk]), {"ip_kind": "default", "ip": "", "confirmed": "yes"}
    )
    assert quota_admin_client.addresses[instance.pk] == {"192.0.2.1": 7}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ip_kind": "name", "ip": "", "connections_per_s": "1"}, "Say which one."),
        ({"ip_kind": "name", "ip": "somewhere", "connections_per_s": "1"}, "Use an IP address, such as 192.0.2.1."),
        ({"ip_kind": "default", "ip": "", "connections_per_s": ""}, "This field is required."),
    ],
)
def test_a_wrong_limit_of_an_address_is_shown_beside_its_field(
    values: dict[str, str], words: str, ida: Client, instance: Instance, quota_admin_client: FakeQuotaAdminClient
) -> None:
    response = ida.post(reverse("page-address-quotas", args=[instance.pk]), values)
    assert response.status_code == 422
    assert words in text_of(response)
    assert quota_admin_client.addresses.get(instance.pk, {}) == {}


def test_a_quota_needs_an_entity_and_a_limit(ida: Client, instance: Instance) -> None:
    response = ida.post(reverse("page-quotas", args=[instance.pk]), {"user_kind": "none", "client_id_kind": "none"})
    assert response.status_code == 422
    assert "Name a user, a client id, or both." in text_of(response)


# --- what is seen -----------------------------------------------------------------------------------------------------


def test_the_throttle_panel_names_rule_level_delay_and_who(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.entries = (throttle(),)
    page = text_of(ida.get(reverse("page-why", args=[instance.pk])))
    assert "User reports may produce 2 MB/s (level 3 of 8: user). It waits 35 ms on broker 2." in page
    assert "reports, etl" in page
    assert "p95 80 ms" in page


def test_the_panel_stays_a_minute_after_the_end(ida: Client, instance: Instance, observation: FakeObservation) -> None:
    address = reverse("page-why", args=[instance.pk])
    observation.entries = (throttle(active=False, last_ms=NOW_MS - 59_000),)
    assert "ended" in text_of(ida.get(address))
    observation.entries = (throttle(active=False, last_ms=NOW_MS - 61_000),)
    assert "No client waits." in text_of(ida.get(address))


@pytest.mark.parametrize(("level", "words"), [({}, "on broker 2."), ({"broker_id": 3}, "on brokers 2, 3.")])
def test_the_sentence_counts_the_brokers_that_make_a_client_wait(
    level: dict[str, object], words: str, ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.entries = (throttle(), throttle(**level))
    assert words in text_of(ida.get(reverse("page-why", args=[instance.pk])))


def test_partitions_made_a_moment_ago_accuse_no_broker_of_silence(
    ida: Client, instance: Instance, observation: FakeObservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of brokers are cached for a second, so they may be older than the partitions."""
    message = observation.topic_sizes(instance.pk)
    earlier = replace(message, partitions={"orders.created": {0: message.partitions["orders.created"][0]}})
    monkeypatch.setattr(FakeObservation, "topic_sizes", lambda *_: earlier)
    ida.post(reverse("page-topic-partitions", args=[instance.pk, "orders.created"]), {"partitions": "50"})
    page = text_of(ida.get(reverse("page-topic-partitions", args=[instance.pk, "orders.created"])))
    assert page.count("not counted yet: reload in a second") == 49
    assert "does not answer" not in page


def test_a_silent_broker_makes_figures_unknown_and_never_zero(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    observation.silent = (BrokerUnresponsive(broker_id=1, reason="does not answer"),)
    page = text_of(ida.get(reverse("page-topics", args=[instance.pk])))
    assert "not known" in page
    detail = text_of(ida.get(reverse("page-topic-partitions", args=[instance.pk, "orders.created"])))
    assert "its leader does not answer" in detail
    points = ida.get(reverse("page-traffic", args=[instance.pk])).json()
    assert points["points"] == []
    assert len(points["gaps"]) == 1


@pytest.mark.parametrize("role", ["viewer", "finance", "developer"])
def test_a_role_that_may_not_protect_gets_a_refusal_and_no_crash(
    instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client], role: str
) -> None:
    answer = browse(join(role)).post(f"/instances/{instance.pk}/settings/", {"part": "protect", "protected": "on"})
    assert answer.status_code == 302
    instance.refresh_from_db()
    assert instance.protected is (role == "developer")


def test_an_instance_that_is_being_deleted_cannot_be_protected_and_says_so(ida: Client, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(phase=Phase.DELETING.value)
    answer = ida.post(f"/instances/{instance.pk}/settings/", {"part": "protect", "protected": "on"}, follow=True)
    assert answer.status_code == 200


def test_the_topics_page_tells_which_topics_clients_could_not_have(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    """Clients only repeat their request, so the page has to show it."""
    reason = "The instance may have 4 partitions and has 2; 3 more do not fit."
    observation.refused = tuple(
        RefusedTopic(name=name, reason=reason, last_ms=NOW_MS) for name in ("clicks", "orders.created")
    )
    page = text_of(ida.get(reverse("page-topics", args=[instance.pk])))
    assert "Topics that clients asked for and that could not be created" in page
    assert '<dt class="mono">clicks</dt><dd>' + reason in page
    assert '<dt class="mono">orders.created</dt>' not in page, "it is there by now"
