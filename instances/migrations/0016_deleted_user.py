"""Deleted users that can be restored."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0015_deleted_topic'),
    ]

    operations = [
        migrations.CreateModel(
            name='DeletedUser',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255, verbose_name='user')),
                ('created_at_ms', models.BigIntegerField()),
                ('secret_ids', models.JSONField(default=list)),
                ('was_disabled', models.BooleanField(default=False)),
                ('deleted_at', models.DateTimeField(verbose_name='deleted')),
                ('expires_at', models.DateTimeField(db_index=True, verbose_name='kept until')),
                ('instance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='deleted_users', to='instances.instance')),
            ],
            options={
                'ordering': ('instance', '-deleted_at'),
                'constraints': [models.UniqueConstraint(fields=('instance', 'name'), name='deleted_once_per_user')],
            },
        ),
    ]
