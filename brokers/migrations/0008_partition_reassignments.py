"""Names of the code alone: the tables and columns stay as they are."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('brokers', '0007_former_ports'),
    ]

    operations = [
        migrations.AlterModelTable(name='replicamove', table='brokers_replicamove'),
        migrations.RenameModel(old_name='ReplicaMove', new_name='PartitionReassignment'),
        migrations.AlterField(
            model_name='rebalance',
            name='homes',
            field=models.JSONField(db_column='homes', default=list, verbose_name='homes of instances'),
        ),
        migrations.RenameField(model_name='rebalance', old_name='homes', new_name='placements'),
        migrations.AlterField(
            model_name='rebalance',
            name='pace',
            field=models.JSONField(default=dict, editable=False, help_text='What `brokers.rebalancing.throttle` has set, and what was there before.'),
        ),
    ]
