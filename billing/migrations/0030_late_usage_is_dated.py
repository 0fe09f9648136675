"""Dates the last write of hours in past months, and the minimums that were agreed before they had a first month."""

import django.db.models.functions.datetime
from django.db import migrations, models

FUNCTION = """
CREATE OR REPLACE FUNCTION billing_note_late_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO billing_usagerevision AS known (instance_id, month, revision{column})
    SELECT instance_id, date_trunc('month', hour, 'UTC') AS month, 1{value} FROM written
    WHERE hour < date_trunc('month', now(), 'UTC') GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (instance_id, month) DO UPDATE SET revision = known.revision + 1{update};
    RETURN NULL;
END $$;
"""
FORWARD = FUNCTION.format(column=", noted_at", value=", now()", update=", noted_at = now()")
BACKWARD = FUNCTION.format(column="", value="", update="")
MINIMUMS = """
UPDATE billing_billingprofile AS profile SET minimum_from = date_trunc('month', tenant.created_at, 'UTC')::date
FROM tenants_tenant AS tenant
WHERE tenant.id = profile.tenant_id AND profile.minimum > 0 AND profile.minimum_from IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0029_country")]

    operations = [
        migrations.AddField(
            model_name="usagerevision",
            name="noted_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AddIndex(
            model_name="usagerevision",
            index=models.Index(fields=["noted_at"], name="usage_revision_by_time"),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.RunSQL(MINIMUMS, migrations.RunSQL.noop),
    ]
