import django.db.models.deletion
from django.db import migrations, models

# Every instance was reached by one way without security.
_DEFAULT_ROUTES = """
INSERT INTO instances_route
    (instance_id, name, security, allow_list, advertised_host, connections_max, proxies, endpoints, created_at)
SELECT id, 'default', 'plaintext', '[]', '', NULL, '[]', endpoints, created_at FROM instances_instance ORDER BY id;
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("instances", "0005_topic_administer_list"),
    ]

    operations = [
        migrations.CreateModel(
            name="Route",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=40, verbose_name="name")),
                (
                    "security",
                    models.CharField(
                        choices=[
                            ("plaintext", "None: whoever reaches the port may do everything"),
                            ("sasl_plaintext", "Username and password, not encrypted"),
                            ("tls", "Encrypted, without users"),
                            ("sasl_tls", "Username and password, encrypted"),
                            ("mtls", "Encrypted, users by certificate"),
                        ],
                        max_length=16,
                        verbose_name="security",
                    ),
                ),
                ("allow_list", models.JSONField(default=list, verbose_name="may connect")),
                (
                    "advertised_host",
                    models.CharField(blank=True, default="", max_length=253, verbose_name="advertised host"),
                ),
                (
                    "connections_max",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="connections, at most"),
                ),
                ("proxies", models.JSONField(default=list, verbose_name="proxies")),
                ("endpoints", models.JSONField(default=dict, editable=False, verbose_name="addresses")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                (
                    "instance",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="routes",
                        to="instances.instance",
                        verbose_name="instance",
                    ),
                ),
            ],
            options={
                "verbose_name": "route",
                "verbose_name_plural": "routes",
                "ordering": ("instance", "pk"),
                "constraints": [
                    models.UniqueConstraint(fields=("instance", "name"), name="route_name_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            security__in=["plaintext", "sasl_plaintext", "tls", "sasl_tls", "mtls"]
                        ),
                        name="route_security_known",
                    ),
                ],
            },
        ),
        migrations.AlterField(
            model_name="operation",
            name="type",
            field=models.CharField(
                choices=[
                    ("instance.create", "Create instance"),
                    ("instance.resize", "Resize instance"),
                    ("instance.configure", "Change settings"),
                    ("instance.routes", "Change routes"),
                    ("instance.suspend", "Suspend instance"),
                    ("instance.resume", "Resume instance"),
                    ("instance.delete", "Delete instance"),
                    ("instance.restore", "Restore instance"),
                ],
                max_length=32,
                verbose_name="type",
            ),
        ),
        migrations.RunSQL(_DEFAULT_ROUTES, migrations.RunSQL.noop),
    ]
