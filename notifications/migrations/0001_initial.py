"""Models of notifications, which were created by migrations of billing; their tables stay."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import tenants.ids
import tenants.money_field
from tenants.moved_models import moved_in

CREATED = [
    migrations.CreateModel(
        name='AlertRule',
        fields=[
            ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
            ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
            ('version', models.PositiveIntegerField(default=1, editable=False, verbose_name='version')),
            ('id', tenants.ids.TypedIdField('rul', 8, serialize=False)),
            ('tenant', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='alert_rules', to='tenants.tenant', verbose_name='tenant')),
            ('instance', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='alert_rules', to='instances.instance', verbose_name='instance')),
            ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='alert_rules', to='brokers.cluster', verbose_name='cluster')),
            ('name', models.CharField(max_length=64, verbose_name='name')),
            ('kind', models.CharField(choices=[('storage_used', 'Storage used'), ('throttled_share', 'Time in which clients are delayed'), ('consumer_lag', 'Lag of a consumer group'), ('brokers_silent', 'Silent brokers'), ('cluster_under_replicated', 'Under-replicated partitions of a cluster'), ('cluster_brokers_silent', 'Silent brokers of a cluster')], max_length=32, verbose_name='kind')),
            ('threshold', models.PositiveBigIntegerField(validators=[django.core.validators.MinValueValidator(1)], verbose_name='threshold')),
            ('for_minutes', models.PositiveIntegerField(default=5, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1440)], verbose_name='duration, minutes')),
            ('window_minutes', models.PositiveSmallIntegerField(blank=True, editable=False, null=True, validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(60)], verbose_name='window, minutes')),
            ('group_id', models.CharField(blank=True, default='', editable=False, max_length=255, verbose_name='group')),
            ('topic', models.CharField(blank=True, default='', editable=False, max_length=249, verbose_name='topic')),
            ('is_enabled', models.BooleanField(default=True, verbose_name='enabled')),
            ('state', models.CharField(choices=[('ok', 'Fine'), ('pending', 'About to fire'), ('firing', 'Firing'), ('resolved', 'Resolved')], default='ok', editable=False, max_length=10, verbose_name='state')),
            ('state_since', models.DateTimeField(editable=False, null=True, verbose_name='since')),
            ('held_ms', models.PositiveBigIntegerField(default=0, editable=False)),
            ('value', models.BigIntegerField(editable=False, null=True, verbose_name='figure')),
            ('is_unknown', models.BooleanField(default=True, editable=False, verbose_name='unknown')),
            ('evaluated_at', models.DateTimeField(editable=False, null=True, verbose_name='evaluated')),
            ('fired_at', models.DateTimeField(editable=False, null=True, verbose_name='fired')),
        ],
        options={
            'verbose_name': 'alert rule',
            'verbose_name_plural': 'alert rules',
            'db_table': 'billing_alertrule',
            'ordering': ('created_at', 'id'),
            'constraints': [models.UniqueConstraint(fields=('tenant', 'name'), name='alert_rule_name_once'), models.CheckConstraint(condition=models.Q(('threshold__gt', 0)), name='alert_rule_threshold_positive'), models.CheckConstraint(condition=models.Q(models.Q(('cluster', None), ('instance__isnull', False), ('kind__in', ('storage_used', 'throttled_share', 'consumer_lag', 'brokers_silent')), ('tenant__isnull', False)), models.Q(('cluster__isnull', False), ('instance', None), ('kind__in', ('cluster_under_replicated', 'cluster_brokers_silent')), ('tenant', None)), _connector='OR'), name='alert_rule_of_one')],
        },
    ),
    migrations.CreateModel(
        name='AlertFiring',
        fields=[
            ('id', tenants.ids.TypedIdField('fir', 16, serialize=False)),
            ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='alert_firings', to='tenants.tenant', verbose_name='tenant')),
            ('rule_id', models.CharField(max_length=16, verbose_name='rule')),
            ('rule_name', models.CharField(max_length=64, verbose_name='name')),
            ('kind', models.CharField(choices=[('storage_used', 'Storage used'), ('throttled_share', 'Time in which clients are delayed'), ('consumer_lag', 'Lag of a consumer group'), ('brokers_silent', 'Silent brokers'), ('cluster_under_replicated', 'Under-replicated partitions of a cluster'), ('cluster_brokers_silent', 'Silent brokers of a cluster')], max_length=32, verbose_name='kind')),
            ('instance_id', models.CharField(blank=True, default='', max_length=16, verbose_name='instance')),
            ('cluster_id', models.CharField(blank=True, default='', max_length=16, verbose_name='cluster')),
            ('of_name', models.CharField(blank=True, default='', max_length=64, verbose_name='of')),
            ('group_id', models.CharField(blank=True, default='', max_length=255, verbose_name='group')),
            ('topic', models.CharField(blank=True, default='', max_length=249, verbose_name='topic')),
            ('threshold', models.PositiveBigIntegerField(verbose_name='threshold')),
            ('for_minutes', models.PositiveIntegerField(verbose_name='duration, minutes')),
            ('window_minutes', models.PositiveSmallIntegerField(null=True, verbose_name='window, minutes')),
            ('value', models.BigIntegerField(verbose_name='figure')),
            ('pending_at', models.DateTimeField(verbose_name='reached')),
            ('fired_at', models.DateTimeField(verbose_name='fired')),
            ('resolved_at', models.DateTimeField(null=True, verbose_name='resolved')),
            ('resolved_value', models.BigIntegerField(null=True, verbose_name='figure at the end')),
            ('ended_by', models.CharField(blank=True, choices=[('resolved', 'The figure went down'), ('changed', 'The rule was changed'), ('paused', 'The rule was paused'), ('deleted', 'The rule was deleted')], default='', max_length=10, verbose_name='ended by')),
        ],
        options={
            'verbose_name': 'alert',
            'verbose_name_plural': 'alerts',
            'db_table': 'billing_alertfiring',
            'ordering': ('-fired_at', 'id'),
            'indexes': [models.Index(fields=['tenant', '-fired_at'], name='alert_firing_by_tenant'), models.Index(fields=['rule_id', '-fired_at'], name='alert_firing_by_rule'), models.Index(fields=['resolved_at'], name='alert_firing_by_end')],
            'constraints': [models.UniqueConstraint(condition=models.Q(('resolved_at', None)), fields=('rule_id',), name='alert_firing_open_once')],
        },
    ),
    migrations.CreateModel(
        name='BudgetAlert',
        fields=[
            ('id', tenants.ids.TypedIdField('alr', 8, serialize=False)),
            ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='budget_alerts', to='tenants.tenant', verbose_name='tenant')),
            ('budget_id', models.CharField(max_length=16, verbose_name='budget')),
            ('budget_name', models.CharField(max_length=64, verbose_name='name')),
            ('instance_id', models.CharField(blank=True, default='', max_length=16, verbose_name='instance')),
            ('month', models.DateTimeField(verbose_name='month')),
            ('mark', models.PositiveSmallIntegerField(verbose_name='mark')),
            ('amount', tenants.money_field.MoneyField(decimal_places=3, max_digits=13, verbose_name='budget')),
            ('spent', tenants.money_field.MoneyField(decimal_places=3, max_digits=15, verbose_name='spent')),
            ('forecast', tenants.money_field.MoneyField(decimal_places=3, max_digits=15, verbose_name='forecast')),
            ('at', models.DateTimeField(verbose_name='time')),
            ('sent_to', models.PositiveSmallIntegerField(default=0, verbose_name='mails sent')),
        ],
        options={
            'verbose_name': 'budget alert',
            'verbose_name_plural': 'budget alerts',
            'db_table': 'billing_budgetalert',
            'ordering': ('-at', 'id'),
            'indexes': [models.Index(fields=['tenant', '-at'], name='budget_alert_by_tenant')],
            'constraints': [models.UniqueConstraint(fields=('budget_id', 'amount', 'month', 'mark'), name='budget_alert_once')],
        },
    ),
    migrations.CreateModel(
        name='MailNotice',
        fields=[
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='mail_notices', to='tenants.tenant', verbose_name='tenant')),
            ('kind', models.CharField(choices=[('budget', 'A budget passed a mark'), ('firing', 'An alert fires'), ('resolved', 'An alert is resolved')], max_length=10, verbose_name='kind')),
            ('budget_alert', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='notifications.budgetalert')),
            ('firing', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notices', to='notifications.alertfiring')),
            ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created')),
            ('next_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='next try')),
            ('attempts', models.PositiveSmallIntegerField(default=0, verbose_name='tries')),
            ('finished_at', models.DateTimeField(null=True, verbose_name='finished')),
            ('sent_to', models.PositiveSmallIntegerField(default=0, verbose_name='mails sent')),
        ],
        options={
            'verbose_name': 'mail to be sent',
            'verbose_name_plural': 'mails to be sent',
            'db_table': 'billing_mailnotice',
            'ordering': ('id',),
            'indexes': [models.Index(condition=models.Q(('finished_at', None)), fields=['next_at'], name='mail_notice_due'), models.Index(fields=['tenant', 'finished_at'], name='mail_notice_by_tenant')],
            'constraints': [models.UniqueConstraint(fields=('firing', 'kind'), name='mail_notice_once_per_firing'), models.UniqueConstraint(fields=('budget_alert',), name='mail_notice_once_per_budget_alert')],
        },
    ),
    migrations.CreateModel(
        name='WebhookEndpoint',
        fields=[
            ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
            ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
            ('version', models.PositiveIntegerField(default=1, editable=False, verbose_name='version')),
            ('id', tenants.ids.TypedIdField('whk', 8, serialize=False)),
            ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='webhooks', to='tenants.tenant', verbose_name='tenant')),
            ('url', models.CharField(max_length=500, verbose_name='address')),
            ('secret', models.CharField(editable=False, max_length=400)),
            ('former_secret', models.CharField(blank=True, default='', editable=False, max_length=400)),
            ('former_until', models.DateTimeField(blank=True, editable=False, null=True)),
            ('is_enabled', models.BooleanField(default=True, verbose_name='enabled')),
            ('failed_in_a_row', models.PositiveSmallIntegerField(default=0, editable=False, verbose_name='failed in a row')),
            ('tried_at', models.DateTimeField(editable=False, null=True, verbose_name='last try')),
            ('is_slow', models.BooleanField(db_default=False, default=False, editable=False, verbose_name='answers slowly')),
        ],
        options={
            'verbose_name': 'webhook',
            'verbose_name_plural': 'webhooks',
            'db_table': 'billing_webhookendpoint',
            'ordering': ('created_at', 'id'),
            'constraints': [models.UniqueConstraint(fields=('tenant', 'url'), name='webhook_once')],
        },
    ),
    migrations.CreateModel(
        name='WebhookDelivery',
        fields=[
            ('id', tenants.ids.TypedIdField('whd', 8, serialize=False)),
            ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='notifications.webhookendpoint', verbose_name='webhook')),
            ('event', models.CharField(choices=[('alert.firing', 'An alert fires'), ('alert.resolved', 'An alert is resolved'), ('budget.alert', 'A budget passed a mark'), ('invoice.issued', 'An invoice was issued'), ('invoice.credited', 'A credit note was issued'), ('invoice.overdue', 'An invoice is overdue'), ('invoice.paid', 'An invoice was paid'), ('invoice.settled', 'An invoice was settled'), ('invoice.written_off', 'An invoice was written off'), ('webhook.test', 'A test')], max_length=24, verbose_name='event')),
            ('payload', models.JSONField(verbose_name='payload')),
            ('state', models.CharField(choices=[('pending', 'Waiting'), ('delivered', 'Delivered'), ('failed', 'Given up')], default='pending', max_length=10, verbose_name='state')),
            ('attempts', models.PositiveSmallIntegerField(default=0, verbose_name='tries')),
            ('next_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='next try')),
            ('status', models.PositiveSmallIntegerField(blank=True, null=True, verbose_name='status')),
            ('answer', models.CharField(blank=True, default='', max_length=1000, verbose_name='answer')),
            ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created')),
            ('finished_at', models.DateTimeField(blank=True, null=True, verbose_name='finished')),
        ],
        options={
            'verbose_name': 'delivery',
            'verbose_name_plural': 'deliveries',
            'db_table': 'billing_webhookdelivery',
            'ordering': ('-created_at', 'id'),
            'indexes': [models.Index(condition=models.Q(('state', 'pending')), fields=['endpoint', 'next_at'], name='webhook_delivery_waiting'), models.Index(fields=['endpoint', '-created_at'], name='webhook_delivery_by_endpoint')],
        },
    ),
    migrations.CreateModel(
        name='QueueTurn',
        fields=[
            ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant', verbose_name='tenant')),
            ('queue', models.CharField(choices=[('webhooks', 'Webhooks'), ('archives', 'Archives'), ('mails', 'Mails')], max_length=10, verbose_name='queue')),
            ('served_at', models.DateTimeField(verbose_name='served')),
        ],
        options={
            'verbose_name': 'turn in a queue',
            'verbose_name_plural': 'turns in queues',
            'db_table': 'billing_queueturn',
            'constraints': [models.UniqueConstraint(fields=('queue', 'tenant'), name='queue_turn_once')],
        },
    ),
]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("billing", "0034_notifications_moved"),
        ("brokers", "0015_cluster_caps"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("instances", "0019_messages_and_labels"),
        ("tenants", "0007_messages_and_labels"),
    ]

    operations = moved_in(former_app="billing", app="notifications", created=CREATED)
