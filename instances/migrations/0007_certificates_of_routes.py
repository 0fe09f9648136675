import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("instances", "0006_routes"),
    ]

    operations = [
        migrations.AddField(
            model_name="route",
            name="principal_mapping_rules",
            field=models.TextField(
                db_default="DEFAULT", default="DEFAULT", max_length=4096, verbose_name="names of users by certificate"
            ),
        ),
        migrations.AddField(
            model_name="route",
            name="certificate",
            field=models.JSONField(editable=False, null=True, verbose_name="certificate"),
        ),
        migrations.AddField(
            model_name="route",
            name="client_ca",
            field=models.JSONField(editable=False, null=True, verbose_name="authority of clients"),
        ),
        migrations.AddField(
            model_name="route",
            name="revocation",
            field=models.JSONField(editable=False, null=True, verbose_name="revoked certificates"),
        ),
        migrations.CreateModel(
            name="RouteCertificates",
            fields=[
                (
                    "route",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="certificates",
                        serialize=False,
                        to="instances.route",
                        verbose_name="route",
                    ),
                ),
                ("client_ca_pem", models.TextField(blank=True, default="")),
                ("revoked", models.BinaryField(default=bytes)),
                ("crl_numbers", models.JSONField(default=dict)),
                ("certificate_pem", models.TextField(blank=True, default="")),
                ("private_key_pem", models.TextField(blank=True, default="")),
                ("warned", models.JSONField(default=dict)),
            ],
            options={
                "verbose_name": "certificates of a route",
                "verbose_name_plural": "certificates of routes",
            },
        ),
    ]
