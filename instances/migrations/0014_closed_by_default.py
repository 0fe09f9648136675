"""New instances are closed; those that are there stay open to every user until their owner closes them."""

from __future__ import annotations

from django.db import migrations, models

# Rows from before the setting have no value of their own, and would take the new default.
_KEEP_OPEN = """
UPDATE instances_instance
SET settings = settings || '{"allow_everyone_if_no_acl": true}'::jsonb
WHERE NOT settings ? 'allow_everyone_if_no_acl'
"""


class Migration(migrations.Migration):

    dependencies = [
        ('instances', '0013_purge'),
    ]

    operations = [
        migrations.RunSQL(_KEEP_OPEN, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='route',
            name='security',
            field=models.CharField(choices=[('plaintext', 'None: without users, not encrypted'), ('sasl_plaintext', 'Username and password, not encrypted'), ('tls', 'Encrypted, without users'), ('sasl_tls', 'Username and password, encrypted'), ('mtls', 'Encrypted, users by certificate')], max_length=16, verbose_name='security'),
        ),
    ]
