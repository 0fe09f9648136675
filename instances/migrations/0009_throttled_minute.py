import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0008_oauth_configuration'),
    ]

    operations = [
        migrations.CreateModel(
            name='ThrottledMinute',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('minute', models.DateTimeField(verbose_name='minute')),
                ('broker_number', models.PositiveIntegerField(verbose_name='broker')),
                ('incarnation_ms', models.BigIntegerField(verbose_name="start of the broker's process")),
                ('count', models.PositiveBigIntegerField(verbose_name='requests')),
                ('causes', models.JSONField(verbose_name='causes')),
                ('instance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='throttled_minutes', to='instances.instance', verbose_name='instance')),
            ],
            options={
                'verbose_name': 'throttled minute',
                'verbose_name_plural': 'throttled minutes',
                'ordering': ('instance', 'minute'),
                'indexes': [models.Index(fields=['minute'], name='throttled_minute_by_time')],
                'constraints': [models.UniqueConstraint(fields=('instance', 'minute', 'broker_number', 'incarnation_ms'), name='throttled_minute_once')],
            },
        ),
    ]
