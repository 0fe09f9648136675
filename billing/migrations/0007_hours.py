"""Hours beside the minutes they are the sum of, those that are there included."""

from django.db import migrations, models

SUM_UP = """
INSERT INTO billing_usagehour (instance_id, hour, direction, bytes, requests)
SELECT instance_id, date_trunc('hour', minute, 'UTC'), direction, sum(bytes), sum(requests)
FROM billing_usageminute GROUP BY 1, 2, 3
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0006_webhooks'),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('instance_id', models.CharField(max_length=16, verbose_name='instance')),
                ('hour', models.DateTimeField(verbose_name='hour')),
                ('direction', models.CharField(choices=[('produce', 'Produce'), ('consume', 'Consume')], max_length=8, verbose_name='direction')),
                ('bytes', models.BigIntegerField(verbose_name='bytes')),
                ('requests', models.BigIntegerField(verbose_name='requests')),
            ],
            options={
                'verbose_name': 'usage by hour',
                'verbose_name_plural': 'usage by hour',
                'ordering': ('instance_id', 'hour'),
                'constraints': [models.UniqueConstraint(fields=('instance_id', 'hour', 'direction'), name='usage_hour_once')],
            },
        ),
        migrations.RunSQL(SUM_UP, migrations.RunSQL.noop),
    ]
