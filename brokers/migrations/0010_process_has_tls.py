from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("brokers", "0009_ports_of_routes")]

    operations = [
        migrations.AddField(
            model_name="broker", name="process_has_tls", field=models.BooleanField(default=False, editable=False)
        ),
    ]
