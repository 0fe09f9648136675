"""Suspension of a tenant during changes of its instances: none is missed, and there is no deadlock."""

from __future__ import annotations

import pytest
from django.db import transaction

from brokers.provisioning import steps
from brokers.provisioning.publisher import Acks
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants import audit, services
from tenants.actors import system_actor
from tenants.choices import SuspensionReason
from tests.testkit.api_cases import make_member
from tests.testkit.beside import is_any_session_waiting, start_beside
from tests.testkit.instances import make_instance
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

PLATFORM = system_actor("payments")


def test_an_instance_that_starts_while_its_tenant_is_suspended_is_frozen() -> None:
    tenant = make_member().tenant
    instance = make_instance(tenant, phase=Phase.PROVISIONING.value, observed_generation=0)
    work = steps.ReconcileContext(system_actor("reconciler", tenant), instance, [])
    with transaction.atomic():
        services.suspend_tenant(acting=PLATFORM, tenant=tenant, reason=SuspensionReason.UNPAID)
        thread, failed = start_beside(lambda: steps.apply(work, Acks(confirmed=frozenset({1}))))
        eventually(
            lambda: is_any_session_waiting() or not thread.is_alive(), what="the reconciler to wait for the suspension"
        )
    thread.join(20)
    assert not failed
    assert Instance.objects.get(pk=instance.pk).wanted_state == "frozen"


def test_a_change_of_an_instance_and_a_suspension_do_not_wait_for_each_other() -> None:
    tenant = make_member().tenant
    instance = make_instance(tenant)
    with transaction.atomic():
        Instance.objects.select_for_update().get(pk=instance.pk)
        thread, failed = start_beside(
            lambda: services.suspend_tenant(acting=PLATFORM, tenant=tenant, reason=SuspensionReason.UNPAID)
        )
        eventually(is_any_session_waiting, what="the suspension to wait for the instance")
        audit.record(system_actor("tests", tenant), "instance.renamed", instance)
    thread.join(20)
    assert not failed
    assert Instance.objects.get(pk=instance.pk).wanted_state == "frozen"
