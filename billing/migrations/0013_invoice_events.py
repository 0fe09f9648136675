"""Webhooks are told of all that becomes of an invoice."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0012_idle_stop'),
    ]

    operations = [
        migrations.AlterField(
            model_name='webhookdelivery',
            name='event',
            field=models.CharField(choices=[('budget.alert', 'A budget passed a mark'), ('invoice.issued', 'An invoice was issued'), ('invoice.credited', 'A credit note was issued'), ('invoice.overdue', 'An invoice is overdue'), ('invoice.paid', 'An invoice was paid'), ('invoice.written_off', 'An invoice was written off'), ('webhook.test', 'A test')], max_length=24, verbose_name='event'),
        ),
    ]
