import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("brokers", "0010_process_has_tls")]

    operations = [
        migrations.CreateModel(
            name="AuditOffset",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("partition", models.IntegerField()),
                ("next_offset", models.BigIntegerField(default=0)),
                ("checked_below", models.BigIntegerField(default=0)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="audit_offsets", to="brokers.cluster"
                    ),
                ),
            ],
            options={"ordering": ("cluster", "partition")},
        ),
        migrations.AddConstraint(
            model_name="auditoffset",
            constraint=models.UniqueConstraint(fields=("cluster", "partition"), name="audit_offset_once"),
        ),
    ]
