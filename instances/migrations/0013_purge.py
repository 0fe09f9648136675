"""Deleted instances may be purged before their time."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0012_reason_idle'),
    ]

    operations = [
        migrations.AlterField(
            model_name='instance',
            name='reason',
            field=models.CharField(blank=True, choices=[('', ''), ('no_room', 'No cluster has room for it'), ('brokers_silent', 'No broker confirmed it in time'), ('port_not_open', 'A broker could not open its port'), ('probe_failed', 'The first message did not come back'), ('unpaid', 'Unpaid invoice'), ('tenant_suspended', 'The tenant is suspended'), ('by_operator', 'Suspended by the operator'), ('idle', 'Stopped by its plan, because nobody used it'), ('deleted_by_user', 'Deleted, can be restored'), ('deleted_for_good', 'Deleted for good')], default='', max_length=24, verbose_name='reason'),
        ),
        migrations.AlterField(
            model_name='instance',
            name='suspended_for',
            field=models.CharField(blank=True, choices=[('', ''), ('no_room', 'No cluster has room for it'), ('brokers_silent', 'No broker confirmed it in time'), ('port_not_open', 'A broker could not open its port'), ('probe_failed', 'The first message did not come back'), ('unpaid', 'Unpaid invoice'), ('tenant_suspended', 'The tenant is suspended'), ('by_operator', 'Suspended by the operator'), ('idle', 'Stopped by its plan, because nobody used it'), ('deleted_by_user', 'Deleted, can be restored'), ('deleted_for_good', 'Deleted for good')], default='', max_length=24, verbose_name='suspended because'),
        ),
        migrations.AlterField(
            model_name='operation',
            name='type',
            field=models.CharField(choices=[('instance.create', 'Create instance'), ('instance.resize', 'Resize instance'), ('instance.configure', 'Change settings'), ('instance.routes', 'Change routes'), ('instance.suspend', 'Suspend instance'), ('instance.resume', 'Resume instance'), ('instance.delete', 'Delete instance'), ('instance.restore', 'Restore instance'), ('instance.purge', 'Purge instance')], max_length=32, verbose_name='type'),
        ),
    ]
