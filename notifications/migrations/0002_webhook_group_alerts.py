"""Webhooks are sent alerts about consumer groups if their address was set by an actor who may see groups."""

from __future__ import annotations


from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='webhookendpoint',
            name='has_group_alerts',
            field=models.BooleanField(db_default=True, default=True, editable=False, verbose_name='alerts about consumer groups'),
        ),
    ]
