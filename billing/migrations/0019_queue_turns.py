"""When queues served each tenant last, and how webhooks answered."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0018_coupons'),
        ('tenants', '0006_what_clients_did'),
    ]

    operations = [
        migrations.CreateModel(
            name='QueueTurn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('queue', models.CharField(choices=[('webhooks', 'Webhooks'), ('archives', 'Archives'), ('mails', 'Mails')], max_length=10, verbose_name='queue')),
                ('served_at', models.DateTimeField(verbose_name='served')),
            ],
            options={
                'verbose_name': 'turn in a queue',
                'verbose_name_plural': 'turns in queues',
            },
        ),
        migrations.RemoveIndex(
            model_name='webhookdelivery',
            name='webhook_delivery_due',
        ),
        migrations.AddField(
            model_name='webhookendpoint',
            name='is_slow',
            field=models.BooleanField(db_default=False, default=False, editable=False, verbose_name='answers slowly'),
        ),
        migrations.AddField(
            model_name='webhookendpoint',
            name='tried_at',
            field=models.DateTimeField(editable=False, null=True, verbose_name='last try'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['endpoint', 'next_at'], name='webhook_delivery_waiting'),
        ),
        migrations.AddField(
            model_name='queueturn',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant', verbose_name='tenant'),
        ),
        migrations.AddConstraint(
            model_name='queueturn',
            constraint=models.UniqueConstraint(fields=('queue', 'tenant'), name='queue_turn_once'),
        ),
    ]
