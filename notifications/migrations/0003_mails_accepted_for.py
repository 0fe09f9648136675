"""Notices of mails have the people whose mail was accepted, and the time of the first one."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0002_webhook_group_alerts'),
    ]

    operations = [
        migrations.AddField(
            model_name='mailnotice',
            name='accepted_for',
            field=models.JSONField(db_default=[], default=list, editable=False),
        ),
        migrations.AddField(
            model_name='mailnotice',
            name='sent_at',
            field=models.DateTimeField(editable=False, null=True, verbose_name='first sent'),
        ),
        migrations.AddIndex(
            model_name='mailnotice',
            index=models.Index(fields=['tenant', 'sent_at'], name='mail_notice_by_sending'),
        ),
    ]
