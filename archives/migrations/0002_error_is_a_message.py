"""Errors of archives keep the id of their message, so that pages can translate them."""

from __future__ import annotations

from django.db import migrations

import tenants.message_field


class Migration(migrations.Migration):
    dependencies = [("archives", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="archive",
            name="error",
            field=tenants.message_field.MessageField(
                blank=True, default="", editable=False, max_length=500, verbose_name="error"
            ),
        ),
    ]
