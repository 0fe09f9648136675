"""Archives remember whether they may read masked fields. Those that exist keep reading, so that no record is missed."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("archives", "0002_error_is_a_message")]

    operations = [
        migrations.AddField(
            model_name="archive",
            name="may_unmask",
            field=models.BooleanField(
                db_default=False, default=False, editable=False, verbose_name="may read masked fields"
            ),
        ),
        migrations.RunSQL("UPDATE billing_archive SET may_unmask = true", migrations.RunSQL.noop),
    ]
