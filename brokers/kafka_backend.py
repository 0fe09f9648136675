"""Upstream Kafka of a cluster whose brokers are gateways (decision 172); part of `brokers.models`."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from brokers.choices import ClusterBackend, SaslMechanism, SecurityProtocol


class BackedCluster(models.Model):
    """Fields of a cluster about where the records of its instances are, and whose instances it takes."""

    backend = models.CharField(
        _("backend"), max_length=8, choices=ClusterBackend.choices, default=ClusterBackend.PENSTOCK, editable=False
    )
    tenant_ids = models.JSONField(
        _("tenants"), default=list, blank=True,
        help_text=_("Ids of tenants whose instances it takes before other clusters, and takes alone; empty = all."),
    )  # fmt: skip

    class Meta:
        abstract = True

    @property
    def is_kafka(self) -> bool:
        """True if its brokers are gateways in front of an upstream Kafka."""
        return self.backend == ClusterBackend.KAFKA


class KafkaBackend(models.Model):
    """Addresses of the upstream of one cluster, and the login for it. `nodes` lists `{id, host, port, rack}` as last
    reported by the upstream.
    """

    cluster = models.OneToOneField(
        "brokers.Cluster", on_delete=models.CASCADE, primary_key=True, related_name="kafka", verbose_name=_("cluster")
    )
    bootstrap_servers = models.CharField(_("bootstrap servers"), max_length=1_000)
    security_protocol = models.CharField(
        _("security protocol"), max_length=16, choices=SecurityProtocol.choices, default=SecurityProtocol.PLAINTEXT
    )
    sasl_mechanism = models.CharField(
        _("SASL mechanism"), max_length=16, choices=SaslMechanism.choices, default=SaslMechanism.PLAIN
    )
    username = models.CharField(_("user name"), max_length=255, blank=True, default="")
    # Encrypted (`brokers.infra.upstream_login`): both are used for a login, so they cannot be hashed.
    password_sealed = models.TextField(blank=True, default="", editable=False)
    client_certificate_sealed = models.TextField(blank=True, default="", editable=False)
    ca_pem = models.TextField(_("certificate authority"), blank=True, default="")
    upstream_cluster_id = models.CharField(
        _("id of the upstream"), max_length=255, blank=True, default="", editable=False
    )
    nodes = models.JSONField(_("nodes"), default=list, editable=False)
    probed_at = models.DateTimeField(_("probed"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("upstream Kafka")
        verbose_name_plural = _("upstream Kafkas")

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.bootstrap_servers}"

    def public(self) -> dict[str, Any]:
        """Returns the fields that may be shown, without the secrets."""
        has_tls = self.security_protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
        has_sasl = self.security_protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
            "sasl_mechanism": self.sasl_mechanism if has_sasl else None,
            "username": self.username if has_sasl else None,
            "ca_pem": (self.ca_pem or None) if has_tls else None,
            "has_client_certificate": bool(self.client_certificate_sealed),
            "upstream_cluster_id": self.upstream_cluster_id,
            "nodes": self.nodes,
        }
