"""Alert rules in the console: created, shown, paused, changed and deleted, each tenant's own only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances.models import Instance
from notifications.alerts import firings, services
from notifications.alerts.firings import Fired
from notifications.models import AlertFiring, AlertRule
from tenants.actors import member_actor
from tenants.models import Member, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def rule(owner: Member, instance: Instance) -> AlertRule:
    return services.create_rule(
        acting=member_actor(owner), instance=instance, name="<late>", kind="consumer_lag", threshold=1_000,
        group_id="billing",
    )  # fmt: skip


def fire(rule: AlertRule, times: int = 1) -> None:
    """Makes a rule fire at an instant."""
    now = timezone.now()
    for number in range(times):
        AlertFiring.objects.filter(resolved_at=None).update(resolved_at=now, ended_by="resolved")
        firings.begin([Fired(rule, 12_345, now)], now + timedelta(seconds=number))
    AlertRule.objects.update(state="firing", value=12_345, is_unknown=False, evaluated_at=now)


def form(instance: Instance, **changed: Any) -> dict[str, Any]:
    return {
        "name": "full soon", "instance_id": instance.pk, "kind": "storage_used", "threshold": "80", "for_minutes": "5",
        "window_minutes": "", "group_id": "", "topic": "", "in_tenant": instance.tenant_id, **changed,
    }  # fmt: skip


def page(client: Client, rule: AlertRule | None = None, **query: str) -> str:
    at = reverse("page-alert-rules") if rule is None else reverse("page-alert-rule", args=[rule.pk])
    answer = client.get(at, query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_rule_is_added_and_listed_with_what_it_watches(ida: Client, instance: Instance) -> None:
    assert "No alert rule yet" in page(ida) and "Nothing has fired yet." in page(ida)
    assert ida.post(reverse("page-alert-rules"), form(instance)).status_code == 302
    listed = page(ida)
    assert "80 % or more of the storage is used for 5 min" in listed and "Not looked at yet" in listed
    assert AlertRule.objects.get().threshold == 80


@pytest.mark.parametrize(
    "changed",
    [{"threshold": "101"}, {"threshold": "0"}, {"group_id": "g"}, {"kind": "cluster_brokers_silent"},
     {"instance_id": "ins-zzzzzzzz"}, {"name": ""}, {"window_minutes": "15"}, {"kind": "consumer_lag"}],
)  # fmt: skip
def test_an_invalid_rule_is_refused_beside_its_field(ida: Client, instance: Instance, changed: dict[str, str]) -> None:
    refused = ida.post(reverse("page-alert-rules"), form(instance, **changed))
    assert refused.status_code == 422 and 'class="error"' in refused.content.decode()
    assert not AlertRule.objects.exists()


def test_a_rule_that_fires_says_so_in_the_list_and_on_its_own_page(ida: Client, rule: AlertRule) -> None:
    fire(rule)
    for shown in (page(ida), page(ida, rule)):
        assert "&lt;late&gt;" in shown and "<late>" not in shown
        assert "Firing" in shown and "12,345" in shown
        assert "Group billing of orders-prod is 12,345 records behind." in shown
    AlertRule.objects.update(is_unknown=True)
    assert "The state stays as it was" in page(ida, rule) and "Unknown" in page(ida)


def test_it_is_changed_paused_resumed_and_deleted(ida: Client, rule: AlertRule) -> None:
    fire(rule)
    assert "window_minutes" not in page(ida, rule)
    changed = {"name": "late", "threshold": "5", "for_minutes": "1", "group_id": "billing", "topic": ""}
    own = reverse("page-alert-rule", args=[rule.pk])
    assert ida.post(own, {**changed, "in_tenant": rule.tenant_id}).status_code == 302
    rule.refresh_from_db()
    assert (rule.name, rule.threshold, rule.state) == ("late", 5, "ok")
    refused = ida.post(own, {**changed, "group_id": "", "in_tenant": rule.tenant_id})
    assert refused.status_code == 422

    for act, is_enabled in (("pause", False), ("resume", True)):
        ida.post(reverse("page-alert-rule-act", args=[rule.pk, act]))
        rule.refresh_from_db()
        assert rule.is_enabled is is_enabled
    assert ida.get(reverse("page-alert-rule-act", args=[rule.pk, "delete"])).status_code == 405
    ida.post(reverse("page-alert-rule-act", args=[rule.pk, "delete"]), {"confirmed": "yes"})
    assert not AlertRule.objects.exists() and "The rule was changed" in page(ida)


def test_the_history_comes_in_pages(ida: Client, rule: AlertRule) -> None:
    fire(rule, times=60)
    shown = page(ida, rule)
    assert shown.count("records behind. The rule") == 50 and "Older" in shown
    token = shown.partition("?page_token=")[2].partition('"')[0]
    older = ida.get(f"{reverse('page-alert-rule', args=[rule.pk])}?page_token={token}").content.decode()
    assert older.count("records behind. The rule") == 10 and "Newest" in older


def test_another_tenants_rule_is_not_found(
    stranger: Member, browse: Callable[[Member], Client], rule: AlertRule, instance: Instance
) -> None:
    eve = browse(stranger)
    fire(rule)
    assert "late" not in page(eve)
    assert eve.get(reverse("page-alert-rule", args=[rule.pk])).status_code == 404
    assert eve.post(reverse("page-alert-rule", args=[rule.pk]), {"name": "x"}).status_code == 404
    for act in ("pause", "delete"):
        assert eve.post(reverse("page-alert-rule-act", args=[rule.pk, act])).status_code == 404
    refused = eve.post(reverse("page-alert-rules"), form(instance) | {"in_tenant": stranger.tenant_id})
    assert refused.status_code == 422 and AlertRule.objects.count() == 1


def test_a_viewer_sees_rules_and_changes_none(
    join: Callable[[str], Member], browse: Callable[[Member], Client], rule: AlertRule, instance: Instance
) -> None:
    viewer = browse(join("viewer"))
    assert "Owners, admins and developers set alert rules." in page(viewer)
    assert viewer.post(reverse("page-alert-rule-act", args=[rule.pk, "delete"])).status_code == 403
    changed = {"name": "x", "threshold": "5", "for_minutes": "1", "group_id": "billing"}
    viewer.post(reverse("page-alert-rule", args=[rule.pk]), {**changed, "in_tenant": rule.tenant_id})
    viewer.post(reverse("page-alert-rules"), form(instance))
    assert list(AlertRule.objects.values_list("name", "threshold")) == [("<late>", 1_000)]


def test_a_member_who_may_not_see_groups_sees_no_rule_about_one(
    join: Callable[[str], Member], browse: Callable[[Member], Client], rule: AlertRule
) -> None:
    fire(rule)
    finance = browse(join("finance"))
    assert "late" not in page(finance)
    assert finance.get(reverse("page-alert-rule", args=[rule.pk])).status_code == 404


def test_the_page_is_in_chinese_for_who_reads_it(ida: Client, owner: Member, rule: AlertRule) -> None:
    User.objects.filter(pk=owner.user_id).update(language="zh-hans")
    fire(rule)
    shown = page(ida)
    assert "告警规则" in shown and "Alert rules" not in shown and "records behind" not in shown
