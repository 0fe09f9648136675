"""Models of archives, which were created by migrations of billing; their tables stay."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import tenants.ids
from tenants.moved_models import moved_in

CREATED = [
    migrations.CreateModel(
        name='Archive',
        fields=[
            ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
            ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
            ('version', models.PositiveIntegerField(default=1, editable=False, verbose_name='version')),
            ('id', tenants.ids.TypedIdField('arc', 8, serialize=False)),
            ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='archives', to='tenants.tenant', verbose_name='tenant')),
            ('instance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='archives', to='instances.instance', verbose_name='instance')),
            ('topic', models.CharField(max_length=249, verbose_name='topic')),
            ('url', models.CharField(max_length=500, verbose_name='address')),
            ('state', models.CharField(choices=[('active', 'Active'), ('paused', 'Paused'), ('ended', 'Ended with its instance'), ('deleting', 'Being deleted')], default='active', max_length=10, verbose_name='state')),
            ('value_format', models.CharField(choices=[('raw', 'Bytes alone'), ('json', 'Columns of JSON'), ('avro', 'Columns of Avro'), ('framed_avro', "Columns of Avro behind a schema registry's five bytes")], default='raw', max_length=20, verbose_name='values as')),
            ('value_schema', models.JSONField(blank=True, default=None, null=True, verbose_name='columns')),
            ('interval_minutes', models.PositiveIntegerField(default=60, verbose_name='interval, minutes')),
            ('run_after_bytes', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='or after, bytes')),
            ('bytes_per_s_max', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='rate limit, bytes/s')),
            ('on_gap', models.CharField(choices=[('fail', 'Stop and say so'), ('skip', 'Skip and count them')], default='fail', max_length=4, verbose_name='records deleted before they were read')),
            ('on_bad_record', models.CharField(choices=[('fail', 'Stop and say so'), ('skip', 'Skip and count them')], default='skip', max_length=4, verbose_name='unreadable records')),
            ('username', models.CharField(blank=True, default='', max_length=200, verbose_name='reads as user')),
            ('password', models.CharField(blank=True, default='', editable=False, max_length=1000)),
            ('access_key_id', models.CharField(blank=True, default='', max_length=200, verbose_name='access key')),
            ('secret_access_key', models.CharField(blank=True, default='', editable=False, max_length=1000)),
            ('database_user', models.CharField(blank=True, db_default='', default='', max_length=200, verbose_name='user of the database')),
            ('database_password', models.CharField(blank=True, db_default='', default='', editable=False, max_length=1000)),
            ('error', models.CharField(blank=True, default='', editable=False, max_length=500, verbose_name='error')),
            ('topic_id', models.CharField(blank=True, db_default='', default='', editable=False, max_length=40)),
            ('topic_generation', models.PositiveIntegerField(db_default=0, default=0, editable=False)),
            ('last_run_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='last run')),
            ('next_run_at', models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name='next run')),
        ],
        options={
            'verbose_name': 'archive',
            'verbose_name_plural': 'archives',
            'db_table': 'billing_archive',
            'ordering': ('created_at', 'id'),
            'indexes': [models.Index(condition=models.Q(('state__in', ('active', 'deleting'))), fields=['next_run_at'], name='archive_is_due')],
            'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'deleting'), _negated=True), fields=('instance', 'topic', 'url'), name='archive_once')],
        },
    ),
    migrations.CreateModel(
        name='ArchivePartition',
        fields=[
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('archive', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='partitions', to='archives.archive')),
            ('partition', models.PositiveIntegerField(verbose_name='partition')),
            ('next_offset', models.BigIntegerField(verbose_name='next offset')),
            ('end_offset', models.BigIntegerField(verbose_name='end of the log')),
            ('planned_end', models.BigIntegerField(editable=False, null=True)),
            ('skipped_records', models.BigIntegerField(default=0, verbose_name='records skipped')),
            ('missed_offsets', models.BigIntegerField(default=0, verbose_name='offsets missed')),
            ('unfit_values', models.BigIntegerField(default=0, verbose_name='values without columns')),
            ('loaded_rows', models.BigIntegerField(db_default=0, default=0, verbose_name='rows loaded')),
            ('is_of_deleted', models.BooleanField(db_default=False, default=False, editable=False)),
            ('read_at', models.DateTimeField(editable=False, null=True)),
            ('error', models.CharField(blank=True, default='', max_length=500, verbose_name='error')),
            ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
        ],
        options={
            'verbose_name': 'partition of an archive',
            'verbose_name_plural': 'partitions of archives',
            'db_table': 'billing_archivepartition',
            'ordering': ('archive', 'partition'),
            'constraints': [models.UniqueConstraint(fields=('archive', 'partition'), name='archive_partition_once')],
        },
    ),
    migrations.CreateModel(
        name='ArchiveFile',
        fields=[
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('archive', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='files', to='archives.archive')),
            ('path', models.CharField(max_length=400, verbose_name='path')),
            ('partition', models.PositiveIntegerField(verbose_name='partition')),
            ('first_offset', models.BigIntegerField(verbose_name='first offset')),
            ('last_offset', models.BigIntegerField(verbose_name='last offset')),
            ('rows', models.BigIntegerField(verbose_name='rows')),
            ('bytes', models.BigIntegerField(verbose_name='bytes')),
            ('content_sum', models.BigIntegerField(verbose_name='sum of the content')),
            ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='written')),
        ],
        options={
            'verbose_name': 'file of an archive',
            'verbose_name_plural': 'files of archives',
            'db_table': 'billing_archivefile',
            'ordering': ('archive', 'id'),
            'constraints': [models.UniqueConstraint(fields=('archive', 'path'), name='archive_file_once')],
        },
    ),
]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("billing", "0033_archives_moved"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("instances", "0019_messages_and_labels"),
        ("tenants", "0007_messages_and_labels"),
    ]

    operations = moved_in(former_app="billing", app="archives", created=CREATED)
