"""Schemas and masks of topics' messages."""

from __future__ import annotations

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import tenants.ids


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0017_topic_copy'),
    ]

    operations = [
        migrations.CreateModel(
            name='TopicSchema',
            fields=[
                ('id', tenants.ids.TypedIdField('sch', 8, serialize=False)),
                ('topic', models.CharField(max_length=249, verbose_name='topic')),
                ('part', models.CharField(choices=[('key', 'Key'), ('value', 'Value'), ('header', 'Header')], max_length=8, verbose_name='part')),
                ('format', models.CharField(choices=[('avro', 'Avro'), ('protobuf', 'Protobuf')], max_length=8, verbose_name='format')),
                ('framing', models.CharField(choices=[('plain', 'The value alone'), ('confluent', "Confluent's header, then the value")], max_length=10, verbose_name='framing')),
                ('schema_id', models.IntegerField(default=-1, verbose_name='id of the schema')),
                ('message', models.CharField(blank=True, default='', max_length=255, verbose_name='message')),
                ('text', models.TextField(verbose_name='schema')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='added')),
                ('instance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='topic_schemas', to='instances.instance')),
            ],
            options={
                'ordering': ('instance', 'topic', 'part', 'framing', 'schema_id'),
                'constraints': [models.UniqueConstraint(fields=('instance', 'topic', 'part', 'framing', 'schema_id'), name='schema_once_per_id')],
            },
        ),
        migrations.CreateModel(
            name='TopicMask',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('topic', models.CharField(max_length=249, verbose_name='topic')),
                ('part', models.CharField(choices=[('key', 'Key'), ('value', 'Value'), ('header', 'Header')], max_length=8, verbose_name='part')),
                ('path', models.CharField(max_length=250, verbose_name='path')),
                ('instance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='topic_masks', to='instances.instance')),
            ],
            options={
                'ordering': ('instance', 'topic', 'part', 'path'),
                'constraints': [models.UniqueConstraint(fields=('instance', 'topic', 'part', 'path'), name='mask_once_per_path')],
            },
        ),
    ]
