"""Instances may be stopped because nobody used them."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0011_suspension_of_operations'),
    ]

    operations = [
        migrations.AlterField(
            model_name='instance',
            name='reason',
            field=models.CharField(blank=True, choices=[('', ''), ('no_room', 'No cluster has room for it'), ('brokers_silent', 'No broker confirmed it in time'), ('port_not_open', 'A broker could not open its port'), ('probe_failed', 'The first message did not come back'), ('unpaid', 'Unpaid invoice'), ('tenant_suspended', 'The tenant is suspended'), ('by_operator', 'Suspended by the operator'), ('idle', 'Stopped by its plan, because nobody used it'), ('deleted_by_user', 'Deleted, can be restored')], default='', max_length=24, verbose_name='reason'),
        ),
        migrations.AlterField(
            model_name='instance',
            name='suspended_for',
            field=models.CharField(blank=True, choices=[('', ''), ('no_room', 'No cluster has room for it'), ('brokers_silent', 'No broker confirmed it in time'), ('port_not_open', 'A broker could not open its port'), ('probe_failed', 'The first message did not come back'), ('unpaid', 'Unpaid invoice'), ('tenant_suspended', 'The tenant is suspended'), ('by_operator', 'Suspended by the operator'), ('idle', 'Stopped by its plan, because nobody used it'), ('deleted_by_user', 'Deleted, can be restored')], default='', max_length=24, verbose_name='suspended because'),
        ),
    ]
