"""Fields that agents fill in, and rows of agents that joined by a token (decision 163); part of `brokers.models`."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from brokers.contract import process_identity
from brokers.contract.agent_requests import REPORT_ID_CHARS_MAX
from brokers.contract.process_identity import ProcessIdentity


class JoinedAgent(models.Model):
    """Fields of a host whose agent joins by a token."""

    # Microseconds in the last accepted request of the agent.
    agent_sequence = models.BigIntegerField(default=0, editable=False)
    agent_joined_at = models.DateTimeField(_("agent joined"), null=True, blank=True, editable=False)
    join_token_hash = models.CharField(max_length=64, blank=True, default="", db_index=True, editable=False)
    join_token_expires_at = models.DateTimeField(_("join token valid until"), null=True, blank=True, editable=False)
    join_token_used_at = models.DateTimeField(_("join token used"), null=True, blank=True, editable=False)
    # Id of the last report that was stored: the agent repeats a report whose answer it did not get.
    agent_report_id = models.CharField(max_length=REPORT_ID_CHARS_MAX, blank=True, default="", editable=False)

    class Meta:
        abstract = True


class ReportedHost(JoinedAgent):
    """Fields of a host that its agent reports, whichever way it reaches the control plane."""

    # Use of processors and memory (`brokers.agent.machine.MachineMeter`); empty before the first check.
    machine = models.JSONField(_("machine"), default=dict, editable=False)

    class Meta:
        abstract = True


class CertifiedBroker(models.Model):
    """Fields of a broker about its certificates: whether its process shows one (decision 106), and which are revoked
    (decision 168).
    """

    cluster_id: str
    number: models.PositiveIntegerField[int, int]

    # True if the process accepts mutual TLS on its internal and admin ports; None before its first start.
    process_has_tls = models.BooleanField(null=True, editable=False)
    # Certificates for other processes that were issued before this moment are not accepted.
    certificates_void_before = models.DateTimeField(
        _("certificates void before"), null=True, blank=True, editable=False
    )

    class Meta:
        abstract = True

    @property
    def certified_as(self) -> ProcessIdentity | None:
        """Returns the identity in the process's certificate; None if it has none, and uses the cluster's secret.

        The setting of the installation decides about a broker that no agent has started yet: any program on the host
        may have bound its ports, and must not be sent the secret.
        """
        has_tls = self.process_has_tls
        if has_tls is None:
            has_tls = settings.INTERNAL_SECURITY != process_identity.PLAINTEXT
        return process_identity.broker(self.cluster_id, self.number) if has_tls else None


class AgentCertificate(models.Model):
    """Certificate of the agent of a host, whose key signs the agent's requests. The key is on the host only.

    Two are valid while it is renewed: the first use of the newer one revokes the older one.
    """

    host = models.ForeignKey(
        "brokers.Host",
        on_delete=models.CASCADE,
        related_name="agent_certificates",
        verbose_name=_("host"),
        editable=False,
    )
    serial = models.CharField(_("serial number"), max_length=40, unique=True, editable=False)
    certificate_pem = models.TextField(editable=False)
    issued_at = models.DateTimeField(_("issued"), editable=False)
    expires_at = models.DateTimeField(_("valid until"), editable=False)
    first_used_at = models.DateTimeField(_("first used"), null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-issued_at", "-id")
        verbose_name = _("certificate of an agent")
        verbose_name_plural = _("certificates of agents")

    def __str__(self) -> str:
        return f"{self.host_id} {self.serial}"
