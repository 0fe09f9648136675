from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0016_joined_agents"),
    ]

    operations = [
        migrations.AddField(
            model_name="broker",
            name="certificates_void_before",
            field=models.DateTimeField(blank=True, editable=False, null=True, verbose_name="certificates void before"),
        ),
        migrations.AddField(
            model_name="host",
            name="agent_report_id",
            field=models.CharField(blank=True, default="", editable=False, max_length=32),
        ),
        migrations.AddField(
            model_name="host",
            name="machine",
            field=models.JSONField(default=dict, editable=False, verbose_name="machine"),
        ),
    ]
