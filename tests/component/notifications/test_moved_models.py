"""Models that moved from billing to archives and notifications: what an installation of before has, goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from archives.models import Archive, ArchiveFile
from notifications.alerts import firings
from notifications.models import AlertFiring, AlertRule, MailNotice, QueueTurn, WebhookDelivery
from tenants.models import User
from tests.testkit.api_cases import Api, make_member
from tests.testkit.instances import make_instance

BEFORE = ("billing", "0032_archives_in_databases")
MOVED = {
    "archives": {"archive", "archivefile", "archivepartition"},
    "notifications": {
        "alertfiring", "alertrule", "budgetalert", "mailnotice", "queueturn", "webhookdelivery", "webhookendpoint",
    },
}  # fmt: skip


def migrate(*targets: tuple[str, str | None]) -> MigrationExecutor:
    executor = MigrationExecutor(connection)
    executor.migrate(list(targets) or executor.loader.graph.leaf_nodes())
    return MigrationExecutor(connection)


def labels() -> dict[str, set[str]]:
    """Returns the content types of models that moved, by the app that has them."""
    names = set().union(*MOVED.values())
    rows = ContentType.objects.filter(model__in=names).values_list("app_label", "model")
    return {label: {model for of, model in rows if of == label} for label, _model in rows}


@pytest.mark.django_db(transaction=True)
def test_rows_and_permissions_of_before_are_those_of_the_new_apps() -> None:
    now = timezone.now()
    owner = make_member()
    instance = make_instance(owner.tenant)
    staff = User.objects.create_user("ops@example.com", "a long enough passphrase", is_staff=True)
    try:
        executor = migrate(("notifications", None), ("archives", None), BEFORE)
        assert labels() == {"billing": set().union(*MOVED.values())}
        staff.user_permissions.add(Permission.objects.get(codename="view_alertrule"))
        model = executor.loader.project_state([BEFORE]).apps.get_model
        of_tenant = {"tenant_id": owner.tenant.pk}
        archive = model("billing", "Archive").objects.create(
            id="arc-00000001", instance_id=instance.pk, topic="orders", url="file:orders", **of_tenant
        )
        model("billing", "ArchiveFile").objects.create(
            archive=archive, path="a.parquet", partition=0, first_offset=0, last_offset=9, rows=10, bytes=99,
            content_sum=7,
        )  # fmt: skip
        rule = model("billing", "AlertRule").objects.create(
            id="rul-00000001", instance_id=instance.pk, name="full soon", kind="storage_used", threshold=80, **of_tenant
        )
        firing = model("billing", "AlertFiring").objects.create(
            id="fir-0000000000000001", rule_id=rule.pk, rule_name=rule.name, kind=rule.kind, threshold=80,
            for_minutes=5, value=85, pending_at=now, fired_at=now - timedelta(days=1), **of_tenant,
        )  # fmt: skip
        model("billing", "MailNotice").objects.create(kind="firing", firing=firing, **of_tenant)
        endpoint = model("billing", "WebhookEndpoint").objects.create(
            id="whk-00000001", url="https://example.com/", secret="sealed", **of_tenant
        )
        model("billing", "WebhookDelivery").objects.create(
            id="whd-00000001", endpoint=endpoint, event="alert.firing", payload={}
        )
        model("billing", "QueueTurn").objects.create(queue="mails", served_at=now, **of_tenant)
    finally:
        migrate()
    assert labels() == MOVED
    assert User.objects.get(pk=staff.pk).has_perm("notifications.view_alertrule")
    assert ArchiveFile.objects.get(archive__tenant=owner.tenant).archive == Archive.objects.get(pk="arc-00000001")
    api = Api.of(owner)
    for path, id in (("archives", "arc-00000001"), ("alert-rules", "rul-00000001"), ("webhooks", "whk-00000001")):
        assert api.get(f"/{path}/{id}").json()["id"] == id
    assert QueueTurn.objects.get().tenant == owner.tenant
    assert WebhookDelivery.objects.get().endpoint.tenant == owner.tenant
    assert MailNotice.objects.get().firing == AlertFiring.objects.get()
    assert firings.delete(["fir-0000000000000001"]) == 1
    assert not MailNotice.objects.exists()
    assert AlertRule.objects.get().state == "ok"
