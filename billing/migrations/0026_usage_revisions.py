"""Writes of hours in months that are over are counted by the database, whoever writes them. Checks of before are by
another digest: each invoice is compared once more.
"""

from django.db import migrations, models

FORWARD = """
CREATE FUNCTION billing_note_late_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_usagerevision AS known (instance_id, month, revision)
    SELECT instance_id, date_trunc('month', hour, 'UTC') AS month, 1 FROM written
    WHERE hour < date_trunc('month', now(), 'UTC') GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (instance_id, month) DO UPDATE SET revision = known.revision + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER usage_hour_inserted AFTER INSERT ON billing_usagehour REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION billing_note_late_usage();
CREATE TRIGGER usage_hour_updated AFTER UPDATE ON billing_usagehour REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION billing_note_late_usage();
CREATE TRIGGER usage_hour_deleted AFTER DELETE ON billing_usagehour REFERENCING OLD TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION billing_note_late_usage();
"""
BACKWARD = """
DROP TRIGGER usage_hour_inserted ON billing_usagehour;
DROP TRIGGER usage_hour_updated ON billing_usagehour;
DROP TRIGGER usage_hour_deleted ON billing_usagehour;
DROP FUNCTION billing_note_late_usage();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0025_billing_details")]
    operations = [
        migrations.CreateModel(
            name="UsageRevision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("instance_id", models.CharField(max_length=16)),
                ("month", models.DateTimeField()),
                ("revision", models.BigIntegerField()),
            ],
            options={"ordering": ("instance_id", "month")},
        ),
        migrations.AddConstraint(
            model_name="usagerevision",
            constraint=models.UniqueConstraint(fields=("instance_id", "month"), name="usage_revision_once"),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.RunSQL("DELETE FROM billing_usagecheck", migrations.RunSQL.noop),
    ]
