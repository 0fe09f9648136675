from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('brokers', '0014_messages_and_labels'),
    ]

    operations = [
        migrations.AddField(
            model_name='cluster',
            name='max_bandwidth_mb_s',
            field=models.PositiveIntegerField(blank=True, help_text='What all its instances together may have bought; empty = what its brokers may sell.', null=True, verbose_name='bandwidth sold, MB/s, at most'),
        ),
        migrations.AddField(
            model_name='cluster',
            name='max_storage_gb',
            field=models.PositiveIntegerField(blank=True, help_text='What all its instances together may have bought; empty = what its brokers may sell.', null=True, verbose_name='storage sold, GB, at most'),
        ),
    ]
