from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("instances", "0004_delayed_minute"),
    ]

    operations = [
        migrations.AddField(
            model_name="topicallowlist",
            name="administer_ips",
            field=models.JSONField(default=list, verbose_name="may administer"),
        ),
    ]
