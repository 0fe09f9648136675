"""Copies of topics."""

from __future__ import annotations

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import tenants.ids


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0016_deleted_user'),
    ]

    operations = [
        migrations.CreateModel(
            name='TopicCopy',
            fields=[
                ('id', tenants.ids.TypedIdField('cpy', 8, serialize=False)),
                ('source', models.CharField(max_length=249, verbose_name='source')),
                ('source_id', models.CharField(editable=False, max_length=36)),
                ('target', models.CharField(max_length=249, verbose_name='target')),
                ('target_id', models.CharField(blank=True, default='', editable=False, max_length=36)),
                ('state', models.CharField(choices=[('running', 'Running'), ('succeeded', 'Done'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='running', max_length=10, verbose_name='state')),
                ('partitions', models.JSONField(default=dict, editable=False)),
                ('in_flight', models.JSONField(default=None, editable=False, null=True)),
                ('total_offsets', models.BigIntegerField(editable=False, verbose_name='offsets')),
                ('copied_records', models.BigIntegerField(default=0, editable=False, verbose_name='messages copied')),
                ('copied_bytes', models.BigIntegerField(default=0, editable=False, verbose_name='bytes copied')),
                ('skipped_records', models.BigIntegerField(default=0, editable=False, verbose_name='messages left out')),
                ('missed_offsets', models.BigIntegerField(default=0, editable=False, verbose_name='offsets missed')),
                ('error_code', models.CharField(blank=True, default='', editable=False, max_length=40)),
                ('error', models.CharField(blank=True, default='', editable=False, max_length=500, verbose_name='error')),
                ('asked_by', models.CharField(max_length=254, verbose_name='asked by')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created')),
                ('progress_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='last progress')),
                ('finished_at', models.DateTimeField(blank=True, null=True, verbose_name='finished')),
                ('instance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='topic_copies', to='instances.instance')),
            ],
            options={
                'verbose_name': 'copy of a topic',
                'verbose_name_plural': 'copies of topics',
                'ordering': ('-created_at', 'id'),
                'indexes': [models.Index(fields=['state', 'progress_at'], name='topic_copy_by_state')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['running', 'succeeded', 'failed', 'cancelled'])), name='topic_copy_state_known')],
            },
        ),
    ]
