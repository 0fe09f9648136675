"""Creations without capacity: the page names what is missing, and one click deletes the instance."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances.models import Instance
from tenants.models import AuditEntry
from tests.component.console.test_acts import text_of


@pytest.mark.parametrize(
    ("data", "english", "chinese"),
    [
        (
            {"missing": ["storage"], "largest_storage_gb": 40},
            "No cluster has 100 GB free. Take 40 GB or less.",
            "没有集群有 100 GB 的余量。请选择不超过 40 GB。",
        ),
        ({"missing": ["broker"]}, "No broker takes a new instance.", "没有 Broker 接收新实例。"),
        ({"missing": ["cluster"]}, "No cluster takes a new instance.", "没有集群接收新实例。"),
        ({"missing": ["ports"]}, "No port is left for it", "Broker 所在的主机已没有可用端口。"),
        ({"missing": ["both"]}, "20 MB/s and 100 GB free on the same brokers", "在同一组 Broker 上"),
        ({"missing": ["bandwidth", "storage"]}, "20 MB/s and 100 GB free.", "20 MB/s 和 100 GB 的余量。"),
    ],
)
def test_a_failed_instance_names_what_there_was_not(
    data: dict[str, object], english: str, chinese: str, ida: Client, instance: Instance
) -> None:
    _fail(instance, data)
    address = reverse("page-instance", args=[instance.pk])
    assert english in text_of(ida.get(address))
    ida.post("/preferences/", {"language": "zh-hans"})
    assert chinese in text_of(ida.get(address))


def _fail(instance: Instance, data: dict[str, object]) -> None:
    operation = instance.operations.get()
    operation.state, operation.error = "failed", {"code": "no_room", "data": data}
    operation.steps[1] |= {"state": "failed", "at_ms": 48, "fact": "No shared cluster has it."}
    operation.save()
    never = {"phase": "failed", "reason": "no_room", "first_running_at": None, "storage_gb": 100}
    Instance.objects.filter(pk=instance.pk).update(**never)


def test_an_instance_that_failed_before_it_ran_is_deleted_at_one_click(
    ida: Client, instance: Instance, reconciled: list[str], django_capture_on_commit_callbacks: object
) -> None:
    _fail(instance, {"missing": ["cluster"]})
    address = reverse("page-instance-delete", args=[instance.pk])
    button = f'<form method="post" action="{address}">'
    assert button in ida.get(reverse("page-instance", args=[instance.pk])).content.decode()
    assert button in ida.get(reverse("page-instances")).content.decode()
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        page = text_of(ida.post(address, follow=True))
    assert "orders-prod is deleted. It never ran, so there was nothing to keep." in page
    assert 'class="undo"' not in page
    assert reconciled == [instance.pk]
    instance.refresh_from_db()
    assert instance.restorable_until is not None
    assert instance.restorable_until <= timezone.now()
    assert AuditEntry.objects.filter(action="instance.deleted", target_id=instance.pk).count() == 1


def test_an_instance_that_ran_is_not_deleted_without_its_name(ida: Client, instance: Instance) -> None:
    ida.post(reverse("page-instance-delete", args=[instance.pk]))
    instance.refresh_from_db()
    assert not instance.is_deleted
