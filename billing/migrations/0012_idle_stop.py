"""Plans may stop instances that nobody uses."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0011_archives")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="idle_stop_days",
            field=models.PositiveSmallIntegerField(
                default=0,
                help_text="An instance that moved no byte for so long is suspended until its tenant resumes it. 0: never.",
                verbose_name="idle stop, days",
            ),
        ),
        migrations.CreateModel(
            name="IdleWarning",
            fields=[
                (
                    "instance_id",
                    models.CharField(max_length=16, primary_key=True, serialize=False, verbose_name="instance"),
                ),
                ("idle_since", models.DateTimeField(verbose_name="idle since")),
                ("warned_at", models.DateTimeField(verbose_name="warned")),
            ],
            options={"verbose_name": "warning of an idle stop", "verbose_name_plural": "warnings of idle stops"},
        ),
    ]
