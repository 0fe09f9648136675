"""The database itself refuses to rewrite the audit log, whoever asks."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION tenants_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON tenants_auditentry
    FOR EACH ROW EXECUTE FUNCTION tenants_audit_append_only();
"""
BACKWARD = """
DROP TRIGGER audit_append_only ON tenants_auditentry;
DROP FUNCTION tenants_audit_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
