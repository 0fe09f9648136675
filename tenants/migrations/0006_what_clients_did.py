"""Rows of what Kafka clients did: a kind of actor, room for its name, and an end of their keeping."""

from django.db import migrations, models

# As `AUDIT_CLIENT_ROWS_KEPT_DAYS` when this was written.
_FORWARD = """
CREATE OR REPLACE FUNCTION tenants_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.actor_kind = 'client' AND OLD.time < now() - interval '365 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'restrict_violation';
END $$;
"""
_BACKWARD = """
CREATE OR REPLACE FUNCTION tenants_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'restrict_violation';
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_accounts_of_people")]

    operations = [
        migrations.AlterField(
            model_name="auditentry",
            name="actor_kind",
            field=models.CharField(
                choices=[
                    ("user", "User"), ("token", "API token"), ("operator", "Operator"), ("system", "System"),
                    ("client", "Kafka client"),
                ],
                max_length=8,
                verbose_name="kind of actor",
            ),
        ),
        migrations.AlterField(
            model_name="auditentry",
            name="actor_id",
            field=models.CharField(max_length=300, verbose_name="actor"),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="context",
            field=models.JSONField(blank=True, null=True, verbose_name="context"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(
                condition=models.Q(("actor_kind", "client")), fields=["time"], name="audit_of_clients"
            ),
        ),
        migrations.RunSQL(_FORWARD, _BACKWARD),
    ]
