"""Sums of hours and counters know levels beside bytes: stored, partitions, connections."""

from __future__ import annotations

from django.db import migrations, models

COUNTED = [
    ("produce", "Produce"),
    ("consume", "Consume"),
    ("stored", "Stored"),
    ("partitions", "Partitions"),
    ("connections", "Connections"),
]


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_hours")]

    operations = [
        migrations.AlterField(
            "usageminute",
            "direction",
            models.CharField(
                verbose_name="direction", max_length=12, choices=[("produce", "Produce"), ("consume", "Consume")]
            ),
        ),
        migrations.AlterField(
            "usagehour", "direction", models.CharField(verbose_name="counted", max_length=12, choices=COUNTED)
        ),
        migrations.AlterField("usagecounter", "direction", models.CharField(max_length=12, choices=COUNTED)),
    ]
