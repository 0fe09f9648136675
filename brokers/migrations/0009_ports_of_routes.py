import django.db.models.deletion
from django.db import migrations, models

# Every instance has one route by now.
_PORTS_OF_ROUTES = """
UPDATE brokers_portlease SET route_id = route.id
    FROM instances_route route WHERE route.instance_id = brokers_portlease.instance_id;
UPDATE brokers_formerport SET route_id = route.id
    FROM instances_route route WHERE route.instance_id = brokers_formerport.instance_id;
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("brokers", "0008_field_words"),
        ("instances", "0006_routes"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="portlease", name="port_lease_once_per_broker"),
        migrations.RemoveConstraint(model_name="formerport", name="former_port_once_per_broker"),
        migrations.AddField(
            model_name="portlease",
            name="route",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="port_leases",
                to="instances.route",
                verbose_name="route",
            ),
        ),
        migrations.AddField(
            model_name="formerport",
            name="route",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="instances.route"
            ),
        ),
        migrations.RunSQL(_PORTS_OF_ROUTES, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="formerport",
            name="route",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="instances.route"
            ),
        ),
        migrations.AddConstraint(
            model_name="portlease",
            constraint=models.UniqueConstraint(fields=("route", "broker"), name="port_lease_once_per_route"),
        ),
        migrations.AddConstraint(
            model_name="formerport",
            constraint=models.UniqueConstraint(fields=("route", "broker"), name="former_port_once_per_route"),
        ),
    ]
