"""Payments as a provider reported them."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0009_dunning'),
    ]

    operations = [
        migrations.CreateModel(
            name='Payment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('provider_id', models.CharField(max_length=100, unique=True, verbose_name="provider's id")),
                ('invoice_number', models.CharField(max_length=32, verbose_name='number of the invoice')),
                ('amount', models.DecimalField(decimal_places=2, max_digits=14, verbose_name='amount')),
                ('currency', models.CharField(max_length=3, verbose_name='currency')),
                ('problem', models.CharField(blank=True, choices=[('unknown_invoice', 'No such invoice'), ('closed', 'The invoice was closed'), ('other_currency', 'Another currency'), ('overpaid', 'More than was open')], db_index=True, default='', max_length=16, verbose_name='problem')),
                ('handled_at', models.DateTimeField(blank=True, null=True, verbose_name='looked after')),
                ('received_at', models.DateTimeField(verbose_name='received')),
                ('invoice', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='payments', to='billing.invoice', verbose_name='invoice')),
            ],
            options={
                'verbose_name': 'payment',
                'verbose_name_plural': 'payments',
                'ordering': ('-received_at', '-pk'),
                'constraints': [models.CheckConstraint(condition=models.Q(('amount__gt', 0)), name='payment_is_positive')],
            },
        ),
    ]
