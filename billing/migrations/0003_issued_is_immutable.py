"""The database itself refuses to rewrite what was issued: an invoice may be closed once, and nothing else."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION billing_invoice_is_issued() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    closed billing_invoice;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state = 'issued' THEN
        closed := NEW;
        closed.state := OLD.state;
        closed.closed_at := OLD.closed_at;
        closed.reference := OLD.reference;
        IF closed IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'an invoice that was issued stays as it is' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER invoice_is_issued BEFORE UPDATE OR DELETE ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION billing_invoice_is_issued();
CREATE FUNCTION billing_line_is_issued() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a line that was issued stays as it is' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER invoice_line_is_issued BEFORE UPDATE OR DELETE ON billing_invoiceline
    FOR EACH ROW EXECUTE FUNCTION billing_line_is_issued();
"""
BACKWARD = """
DROP TRIGGER invoice_line_is_issued ON billing_invoiceline;
DROP FUNCTION billing_line_is_issued();
DROP TRIGGER invoice_is_issued ON billing_invoice;
DROP FUNCTION billing_invoice_is_issued();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_money")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
