"""Reminders of overdue invoices, and who was suspended for them."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0008_levels'),
        ('tenants', '0006_what_clients_did'),
    ]

    operations = [
        migrations.CreateModel(
            name='UnpaidSuspension',
            fields=[
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='tenants.tenant', verbose_name='tenant')),
                ('made_at', models.DateTimeField(verbose_name='suspended')),
            ],
            options={
                'verbose_name': 'suspension for an unpaid invoice',
                'verbose_name_plural': 'suspensions for unpaid invoices',
            },
        ),
        migrations.AddField(
            model_name='seller',
            name='first_reminder_days',
            field=models.PositiveSmallIntegerField(default=3, help_text='0: none', verbose_name='first reminder, days overdue'),
        ),
        migrations.AddField(
            model_name='seller',
            name='second_reminder_days',
            field=models.PositiveSmallIntegerField(default=10, help_text='0: none', verbose_name='second reminder, days overdue'),
        ),
        migrations.AddField(
            model_name='seller',
            name='suspend_days',
            field=models.PositiveSmallIntegerField(default=0, help_text='0: never. It ends when nothing is overdue.', verbose_name='suspension, days overdue'),
        ),
        migrations.CreateModel(
            name='InvoiceReminder',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveSmallIntegerField(verbose_name='number')),
                ('sent_at', models.DateTimeField(verbose_name='sent')),
                ('invoice', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='reminders', to='billing.invoice', verbose_name='invoice')),
            ],
            options={
                'verbose_name': 'reminder',
                'verbose_name_plural': 'reminders',
                'ordering': ('invoice', 'number'),
                'constraints': [models.UniqueConstraint(fields=('invoice', 'number'), name='invoice_reminder_once')],
            },
        ),
    ]
