"""Operations say which size the instance has once they succeeded; of those that are there, the size it has is known."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import OuterRef, Subquery

SIZE = ("plan", "bandwidth_mb_s", "storage_gb")


def fill(apps, schema_editor) -> None:
    instances = apps.get_model("instances", "Instance").objects.filter(pk=OuterRef("instance_id"))
    apps.get_model("instances", "Operation").objects.update(
        **{name: Subquery(instances.values(name)[:1]) for name in SIZE}
    )


class Migration(migrations.Migration):
    dependencies = [("instances", "0009_throttled_minute")]

    operations = [
        migrations.AddField(
            "operation",
            "plan",
            models.CharField(default="", editable=False, max_length=32, verbose_name="plan"),
            preserve_default=False,
        ),
        migrations.AddField(
            "operation",
            "bandwidth_mb_s",
            models.PositiveIntegerField(default=0, editable=False, verbose_name="bandwidth, MB/s"),
            preserve_default=False,
        ),
        migrations.AddField(
            "operation",
            "storage_gb",
            models.PositiveIntegerField(default=0, editable=False, verbose_name="storage, GB"),
            preserve_default=False,
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
