"""Archives whose records are loaded into a table of a tenant's database."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0031_messages_and_labels")]

    operations = [
        migrations.AddField(
            model_name="archive",
            name="database_user",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=200, verbose_name="user of the database"
            ),
        ),
        migrations.AddField(
            model_name="archive",
            name="database_password",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=1000),
        ),
        migrations.AddField(
            model_name="archivepartition",
            name="loaded_rows",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="rows loaded"),
        ),
    ]
