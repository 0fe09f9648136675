"""Deleted topics that can be restored."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0014_closed_by_default'),
    ]

    operations = [
        migrations.CreateModel(
            name='DeletedTopic',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('topic', models.CharField(max_length=249, verbose_name='topic')),
                ('topic_id', models.CharField(max_length=36, verbose_name='id of the topic')),
                ('partitions', models.PositiveIntegerField(verbose_name='partitions')),
                ('deleted_at', models.DateTimeField(verbose_name='deleted')),
                ('expires_at', models.DateTimeField(db_index=True, verbose_name='kept until')),
                ('is_restored', models.BooleanField(default=False, verbose_name='restored')),
                ('instance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='deleted_topics', to='instances.instance')),
            ],
            options={
                'ordering': ('instance', '-deleted_at'),
                'constraints': [models.UniqueConstraint(fields=('instance', 'topic'), name='deleted_once_per_topic')],
            },
        ),
    ]
