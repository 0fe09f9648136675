"""Operations say whether the instance is suspended once they succeeded."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import OuterRef, Subquery

SUSPEND, RESUME = "instance.suspend", "instance.resume"


def fill(apps, schema_editor) -> None:
    """Of the operations that are there, by the last suspension or resumption before each."""
    operations = apps.get_model("instances", "Operation").objects
    suspensions = operations.filter(
        instance_id=OuterRef("instance_id"), created_at__lte=OuterRef("created_at"), type__in=(SUSPEND, RESUME)
    ).order_by("-created_at")
    operations.annotate(latest=Subquery(suspensions.values("type")[:1])).filter(latest=SUSPEND).update(
        is_suspended=True
    )


class Migration(migrations.Migration):
    dependencies = [("instances", "0010_sizes_of_operations")]

    operations = [
        migrations.AddField(
            "operation",
            "is_suspended",
            models.BooleanField(default=False, editable=False, verbose_name="suspended"),
            preserve_default=False,
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
