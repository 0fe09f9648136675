"""Summaries of a route's revocation lists by authority."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("instances", "0020_indexes_by_time")]

    operations = [
        migrations.AddField(
            model_name="routecertificates",
            name="crl_parts",
            field=models.JSONField(db_default={}, default=dict),
        ),
    ]
