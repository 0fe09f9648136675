"""Two simultaneous requests for one name or address: one succeeds, the other is refused, and nothing crashes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from billing.budgets import services as budgets
from billing.models import Budget
from instances import access as instance_access
from instances import interfaces
from instances import services as instance_services
from instances.limits import INSTANCE_RESTORE_PERIOD
from instances.models import Instance
from notifications import access as notifications_access
from notifications.alerts import services as alerts
from notifications.models import AlertRule, WebhookEndpoint
from notifications.webhooks import services as webhooks
from tenants import services
from tenants.actors import member_actor, user_actor
from tenants.errors import DomainError, QuotaExceeded
from tenants.limits import UNVERIFIED_BANDWIDTH_MB_S_MAX, UNVERIFIED_STORAGE_GB_MAX
from tenants.models import Member, User
from tenants.services import members
from tests.testkit.api_cases import PASSWORD, make_member, make_user
from tests.testkit.beside import is_any_session_waiting, start_beside
from tests.testkit.fleet import catalogue, make_running, plugged
from tests.testkit.instances import make_instance
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

CEILING = {"bandwidth_mb_s": UNVERIFIED_BANDWIDTH_MB_S_MAX, "storage_gb": UNVERIFIED_STORAGE_GB_MAX - 1}


def refused_beside(first: Callable[[], object], second: Callable[[], object]) -> DomainError:
    """Starts the second request before the first is committed; returns its refusal."""
    with transaction.atomic():
        first()
        thread, failed = start_beside(second)
        eventually(lambda: is_any_session_waiting() or not thread.is_alive(), what="the second to wait for the first")
    thread.join(20)
    (refusal,) = failed
    assert isinstance(refusal, DomainError), repr(refusal)
    return refusal


def sign_up() -> object:
    return services.sign_up(email="ada@example.com", password=PASSWORD, tenant_name="Engines")


def rename(owner: Member, instance: Instance) -> Callable[[], object]:
    @transaction.atomic
    def work() -> None:
        acting = member_actor(owner)
        result = instance_access.instance(acting, instance.pk, lock=True)
        instance_services.rename_instance(acting=acting, instance=result, name="orders")

    return work


def create(owner: Member) -> Callable[[], object]:
    return lambda: instance_services.create_instance(acting=member_actor(owner), name="orders", plan="small")


def test_the_second_of_two_equal_concurrent_sign_ups_is_refused_as_taken() -> None:
    assert refused_beside(sign_up, sign_up).code == "email_taken"
    assert User.objects.count() == 1


def test_the_second_of_two_instances_renamed_alike_at_once_is_refused() -> None:
    owner = make_member()
    item, other = make_instance(owner.tenant), make_instance(owner.tenant)
    refusal = refused_beside(rename(owner, item), rename(owner, other))
    assert (refusal.code, [error.pointer for error in refusal.errors]) == ("name_taken", ["/name"])


def test_an_instance_bought_while_another_takes_its_name_is_refused() -> None:
    owner = make_member()
    held = make_instance(owner.tenant)
    with plugged(interfaces.plan_catalogue, catalogue):
        assert refused_beside(rename(owner, held), create(owner)).code == "name_taken"
    assert Instance.objects.filter(name="orders").count() == 1


def test_two_invitations_accepted_at_once_do_not_exceed_the_tenants_per_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guest = make_user()
    monkeypatch.setattr(members, "TENANTS_PER_USER_MAX", 1)

    def accept() -> Callable[[], object]:
        acting = member_actor(make_member())
        _invitation, secret = services.invite_member(acting=acting, email=guest.email, role="viewer")
        return lambda: services.accept_invitation(acting=user_actor(guest), user=guest, secret=secret)

    assert isinstance(refused_beside(accept(), accept()), QuotaExceeded)
    assert Member.objects.filter(user=guest).count() == 1


def changes_a_rule(owner: Member, rule: AlertRule) -> Callable[[], object]:
    @transaction.atomic
    def work() -> None:
        acting = member_actor(owner)
        locked = notifications_access.alert_rule(acting, rule.pk, lock=True)
        alerts.change_rule(acting=acting, rule=locked, changes={"name": "full"})

    return work


def test_the_second_of_two_alert_rules_that_are_given_one_name_at_once_is_refused_as_taken() -> None:
    owner = make_member()
    instance, acting = make_instance(owner.tenant), member_actor(owner)
    first, second = (
        alerts.create_rule(acting=acting, instance=instance, name=name, kind="storage_used", threshold=80)
        for name in ("one", "two")
    )
    assert refused_beside(changes_a_rule(owner, first), changes_a_rule(owner, second)).code == "name_taken"
    assert sorted(AlertRule.objects.values_list("name", flat=True)) == ["full", "two"]


def changes_a_budget(owner: Member, budget: Budget) -> Callable[[], object]:
    @transaction.atomic
    def work() -> None:
        locked = Budget.objects.select_for_update(of=("self",), no_key=True).get(pk=budget.pk)
        budgets.change_budget(acting=member_actor(owner), budget=locked, changes={"name": "all"})

    return work


def test_the_second_of_two_budgets_that_are_given_one_name_at_once_is_refused_as_taken() -> None:
    owner = make_member()
    first, second = (
        budgets.create_budget(acting=member_actor(owner), name=name, amount=Decimal(5)) for name in ("one", "two")
    )
    assert refused_beside(changes_a_budget(owner, first), changes_a_budget(owner, second)).code == "name_taken"


def changes_a_webhook(owner: Member, webhook: WebhookEndpoint) -> Callable[[], object]:
    @transaction.atomic
    def work() -> None:
        acting = member_actor(owner)
        locked = notifications_access.webhook(acting, webhook.pk, lock=True)
        webhooks.change_endpoint(acting=acting, endpoint=locked, changes={"url": "https://example.com/"})

    return work


def test_the_second_of_two_webhooks_that_are_given_one_address_at_once_is_refused_as_taken() -> None:
    owner = make_member()
    first, second = (
        webhooks.create_endpoint(acting=member_actor(owner), url=f"https://example.com/{number}")[0]
        for number in range(2)
    )
    assert refused_beside(changes_a_webhook(owner, first), changes_a_webhook(owner, second)).code == "name_taken"


def changed(owner: Member, instance: Instance, change: Callable[..., object], **given: int) -> Callable[[], object]:
    @transaction.atomic
    def work() -> None:
        acting = member_actor(owner)
        change(acting=acting, instance=instance_access.instance(acting, instance.pk, lock=True), **given)

    return work


def all_of_the_ceiling(owner: Member) -> Callable[[], object]:
    return lambda: instance_services.create_instance(acting=member_actor(owner), name="wide", **CEILING)


def retried(owner: Member) -> Callable[[], object]:
    failed = make_running(owner.tenant, phase="failed", first_running_at=None, **CEILING)
    return changed(owner, failed, instance_services.retry_instance)


def restored(owner: Member) -> Callable[[], object]:
    now = timezone.now()
    deleted = make_running(
        owner.tenant, phase="deleting", deleted_at=now, restorable_until=now + INSTANCE_RESTORE_PERIOD, storage_gb=1,
        bandwidth_mb_s=UNVERIFIED_BANDWIDTH_MB_S_MAX,
    )  # fmt: skip
    return changed(owner, deleted, instance_services.restore_instance)


class Room:
    """Implementation of `instances.interfaces.Capacity` with room for all."""

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        pass


@pytest.mark.parametrize(
    "first, second", [(retried, retried), (retried, restored), (restored, restored), (all_of_the_ceiling, retried)]
)
def test_instances_retried_or_restored_at_once_stay_within_the_ceiling_of_an_unverified_tenant(
    first: Callable[[Member], Callable[[], object]], second: Callable[[Member], Callable[[], object]], settings: Any
) -> None:
    settings.MAIL_IS_CONFIGURED = True
    owner = make_member()
    with (
        plugged(interfaces.plan_catalogue, catalogue),
        plugged(interfaces.reconcile, lambda _id: None),
        plugged(interfaces.capacity, Room()),
    ):
        assert refused_beside(first(owner), second(owner)).code == "unverified"
