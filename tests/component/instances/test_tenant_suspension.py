"""Suspension of a tenant's instances with the tenant, and their resumption."""

from __future__ import annotations

import re

import pytest

from instances import services
from instances.choices import Reason
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants import services as tenant_services
from tenants.actors import Actor, operator_actor, system_actor
from tenants.choices import SuspensionReason
from tenants.errors import Invalid
from tenants.models import AuditEntry, Tenant
from tests.testkit.api_cases import make_member, make_user
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fleet import make_instance, make_running

pytestmark = pytest.mark.django_db


@pytest.fixture()
def operator() -> Actor:
    return operator_actor(make_user(is_staff=True))


@pytest.fixture()
def tenant() -> Tenant:
    return make_member().tenant


def look(instance: Instance) -> Instance:
    return Instance.objects.get(pk=instance.pk)


def suspend(operator: Actor, tenant: Tenant, reason: SuspensionReason = SuspensionReason.UNPAID) -> None:
    tenant_services.suspend_tenant(acting=operator, tenant=tenant, reason=reason)


@pytest.mark.parametrize(("note", "reason"), [("a\0b", "U+0000"), ("a" * 10_000, "at most")])
def test_a_note_that_cannot_be_kept_is_refused_with_its_own_reason(
    operator: Actor, tenant: Tenant, note: str, reason: str
) -> None:
    with pytest.raises(Invalid, match=re.escape(reason)):
        tenant_services.suspend_tenant(acting=operator, tenant=tenant, reason=SuspensionReason.ABUSE, note=note)


@pytest.mark.parametrize(
    ("why", "message"),
    [
        (SuspensionReason.UNPAID, Reason.UNPAID),
        (SuspensionReason.ABUSE, Reason.TENANT_SUSPENDED),
        (SuspensionReason.REQUESTED, Reason.TENANT_SUSPENDED),
    ],
)
def test_the_instances_of_a_suspended_tenant_are_frozen_and_thawed(
    operator: Actor, tenant: Tenant, why: SuspensionReason, message: Reason
) -> None:
    mine = [make_running(tenant), make_running(tenant, phase=Phase.UPDATING.value, generation=2)]
    others = make_running(make_member().tenant)
    suspend(operator, tenant, why)
    for instance in mine:
        seen = look(instance)
        assert (seen.current_phase, seen.reason, seen.wanted_state) == (Phase.SUSPENDED, message, "frozen")
        assert seen.generation == instance.generation + 1
    assert look(others).wanted_state == "active"
    tenant_services.resume_tenant(acting=system_actor("payments"), tenant=tenant)
    assert {look(instance).wanted_state for instance in mine} == {"active"}
    assert {look(instance).current_phase for instance in mine} == {Phase.UPDATING}
    reported_of = AuditEntry.objects.filter(tenant=tenant, action="instance.suspended").values_list(
        "target_id", flat=True
    )
    assert set(reported_of) == {instance.pk for instance in mine}


def test_an_instance_suspended_by_an_operator_stays_so(operator: Actor, tenant: Tenant) -> None:
    instance = make_running(tenant)
    services.suspend_instance(acting=operator, instance=instance)
    suspend(operator, tenant)
    tenant_services.resume_tenant(acting=operator, tenant=tenant)
    assert look(instance).suspended_for == Reason.BY_OPERATOR


def test_an_instance_deleted_meanwhile_comes_back_running(
    operator: Actor, tenant: Tenant, data_plane: FakeDataPlane
) -> None:
    instance = make_running(tenant)
    data_plane.add(instance.pk, "orders")
    suspend(operator, tenant)
    owner = system_actor("tests", tenant)
    services.delete_instance(acting=owner, instance=look(instance))
    tenant_services.resume_tenant(acting=operator, tenant=tenant)
    services.restore_instance(acting=owner, instance=look(instance))
    assert look(instance).wanted_state == "active"


def test_an_instance_that_does_not_run_is_left_to_the_reconciler(operator: Actor, tenant: Tenant) -> None:
    begun = make_instance(tenant, phase=Phase.PROVISIONING.value)
    failed = make_instance(tenant, phase=Phase.FAILED.value, reason=Reason.NO_ROOM)
    suspend(operator, tenant)
    assert (look(begun).phase, look(failed).phase) == ("provisioning", "failed")
