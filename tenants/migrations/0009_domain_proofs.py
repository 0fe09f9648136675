import secrets
from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def challenge(apps: Any, schema_editor: Any) -> None:
    """Makes challenges for the domains of existing configurations; they are unproved."""
    proof = apps.get_model("tenants", "DomainProof")
    for sso in apps.get_model("tenants", "SsoConfiguration").objects.all():
        proof.objects.bulk_create(
            proof(tenant_id=sso.tenant_id, domain=domain, challenge=secrets.token_hex(16)) for domain in sso.domains
        )


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0008_sso"),
    ]

    operations = [
        migrations.AddField(
            model_name="ssoconfiguration",
            name="assume_email_verified",
            field=models.BooleanField(
                default=False, verbose_name="addresses without `email_verified` count as verified"
            ),
        ),
        migrations.CreateModel(
            name="DomainProof",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("domain", models.CharField(max_length=253, verbose_name="domain")),
                ("challenge", models.CharField(editable=False, max_length=64, verbose_name="challenge")),
                ("proved_at", models.DateTimeField(blank=True, null=True, verbose_name="proved")),
                ("checked_at", models.DateTimeField(blank=True, null=True, verbose_name="checked")),
                ("missing_since", models.DateTimeField(blank=True, null=True, verbose_name="missing since")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.tenant",
                        verbose_name="tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "proof of a domain",
                "verbose_name_plural": "proofs of domains",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "domain"), name="domain_once_per_tenant")
                ],
            },
        ),
        migrations.RunPython(challenge, migrations.RunPython.noop),
    ]
