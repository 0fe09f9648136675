from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0017_revocation_and_machines"),
    ]

    operations = [
        migrations.AlterField(
            model_name="broker",
            name="process_has_tls",
            field=models.BooleanField(editable=False, null=True),
        ),
        # Brokers of which no agent has reported anything.
        migrations.RunSQL(
            "UPDATE brokers_broker SET process_has_tls = NULL WHERE process_state = 'unknown' AND NOT process_has_tls",
            "UPDATE brokers_broker SET process_has_tls = FALSE WHERE process_has_tls IS NULL",
        ),
    ]
