from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0019_messages_and_labels'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='instance',
            index=models.Index(fields=['-created_at', 'id'], name='instance_by_time'),
        ),
        migrations.AddIndex(
            model_name='operation',
            index=models.Index(fields=['-created_at', 'id'], name='operation_by_time'),
        ),
    ]
