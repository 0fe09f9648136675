"""REST resources for agents that join by a token (decision 163). Joined agents sign requests, about their own host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.http import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers.choices import HostCheck, HostCheckState, ProcessState
from brokers.contract.agent_requests import REPORT_ID_CHARS_MAX, TIME_HEADER, Purpose
from brokers.limits import (
    AGENT_CHECKS_MAX,
    AGENT_CSR_CHARS_MAX,
    AGENT_REPORT_BYTES_MAX,
    AGENT_REPORT_ENDS_MAX,
    AGENT_REQUESTS_PER_ADDRESS_AND_MINUTE_MAX,
    AGENT_REQUESTS_PER_MINUTE_MAX,
    AGENT_VERSION_CHARS_MAX,
    BROKERS_PER_HOST_MAX,
    HOST_NAME_CHARS_MAX,
    JOIN_TOKEN_CHARS_MAX,
)
from brokers.models import Host
from brokers.operations import agent_documents, agent_reports, joining
from brokers.operations.agent_access import AgentRefused, agent_actor, authenticate, record_refusal
from tenants.actors import Actor
from tenants.api import rates
from tenants.api.base import ANYBODY, ApiView, endpoint
from tenants.api.endpoint import Endpoint
from tenants.api.etags import require_no_version
from tenants.api.schema_components import AGENT_SIGNATURE_SCHEME
from tenants.api.strict import Choice, Flag, Instant, Integer, StrictSerializer, Text
from tenants.counting import network_of
from tenants.errors import RateLimited
from tenants.requests import client_ip

GENERATION_MAX = 2**31 - 1
MEMORY_BYTES_MAX = 2**53 - 1
BROKER_ID_CHARS_MAX = 32
ERROR_CHARS_MAX = 500
CHECK_TEXT_CHARS_MAX = 500
CHECK_ITEMS_MAX = 64


class JoinIn(StrictSerializer):
    token = Text(max_length=JOIN_TOKEN_CHARS_MAX)
    csr_pem = Text(max_length=AGENT_CSR_CHARS_MAX, help_text="Certificate signing request, for a key of curve P-256.")
    host = Text(
        max_length=HOST_NAME_CHARS_MAX, required=False, help_text="Name of the host, where the token must be its."
    )


class JoinOut(serializers.Serializer):
    host_id = serializers.CharField()
    host_name = serializers.CharField()
    certificate_pem = serializers.CharField()
    authority_pem = serializers.CharField()


class AuthorityOut(serializers.Serializer):
    authority_pem = serializers.CharField(
        help_text="Certificate of the internal authority, which signs those of agents."
    )


class AgentCertificateIn(StrictSerializer):
    purpose = Choice(
        choices=Purpose.ALL,
        help_text="`agent` renews the agent's own; `internal` and `routes` are the two certificates of a broker.",
    )
    broker_id = Text(max_length=BROKER_ID_CHARS_MAX, required=False)
    csr_pem = Text(max_length=AGENT_CSR_CHARS_MAX)


class AgentCertificateOut(serializers.Serializer):
    certificate_pem = serializers.CharField()
    authority_pem = serializers.CharField()


class ReportedBrokerIn(StrictSerializer):
    id = Text(max_length=BROKER_ID_CHARS_MAX)
    process_state = Choice(choices=ProcessState.choices, required=False)
    process_pid = Integer(min_value=1, max_value=GENERATION_MAX, required=False, allow_null=True)
    process_since = Instant(required=False)
    process_restart_generation = Integer(min_value=0, max_value=GENERATION_MAX, required=False)
    process_has_tls = Flag(required=False)
    process_error = Text(max_length=ERROR_CHARS_MAX, required=False, allow_blank=True)
    ends = Integer(
        min_value=0, max_value=AGENT_REPORT_ENDS_MAX, required=False, help_text="Unexpected ends since then."
    )


class ReportedCheckIn(StrictSerializer):
    name = Choice(choices=HostCheck.choices)
    state = Choice(choices=HostCheckState.choices)
    data = serializers.DictField()

    def validate_data(self, value: dict[str, Any]) -> dict[str, Any]:
        """Accepts values that can be shown as text: short texts, integers, booleans, null, and collections of them."""
        if len(value) > CHECK_ITEMS_MAX or not all(_is_plain(item, depth=0) for item in value.values()):
            raise serializers.ValidationError("Short texts and whole numbers, and lists of them.")
        return value


def _is_plain(value: Any, *, depth: int) -> bool:
    if isinstance(value, str):
        return len(value) <= CHECK_TEXT_CHARS_MAX
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int):
        return abs(value) <= GENERATION_MAX
    if isinstance(value, list | dict) and depth < 2 and len(value) <= CHECK_ITEMS_MAX:
        items = value.values() if isinstance(value, dict) else value
        return all(_is_plain(item, depth=depth + 1) for item in items)
    return False


class ReportedMachineIn(StrictSerializer):
    cpus = Integer(min_value=0, max_value=GENERATION_MAX)
    cpu_percent = Integer(
        min_value=0, max_value=100, allow_null=True, help_text="Of all processors since the check before."
    )
    memory_bytes = Integer(min_value=0, max_value=MEMORY_BYTES_MAX)
    memory_available_bytes = Integer(min_value=0, max_value=MEMORY_BYTES_MAX)


class ReportIn(StrictSerializer):
    agent_version = Text(max_length=AGENT_VERSION_CHARS_MAX)
    report_id = Text(
        max_length=REPORT_ID_CHARS_MAX,
        required=False,
        help_text="Of this report. One that is sent again with the id of the last stored one changes nothing.",
    )
    brokers = ReportedBrokerIn(many=True, max_length=BROKERS_PER_HOST_MAX)
    checks = ReportedCheckIn(many=True, required=False, max_length=AGENT_CHECKS_MAX)
    machine = ReportedMachineIn(required=False, help_text="Stored with `checks`.")


class _AgentApiView(ApiView):
    """Base of the resources for agents: they accept no API token and no session, and refusals are audited."""

    tag = "Agents"
    authentication_classes = ()

    def run_endpoint(self, declared: Endpoint, handle: Callable[[], Response]) -> Response:
        if self.request.method != "GET":
            require_no_version(self.request.headers.get("If-Match"))
        try:
            return self.run_for_agent(declared, handle)
        except AgentRefused as refusal:
            http = self.request._request
            record_refusal(refusal, ip=client_ip(http), request_id=getattr(http, "request_id", None))
            raise

    def run_for_agent(self, declared: Endpoint, handle: Callable[[], Response]) -> Response:
        return super().run_endpoint(declared, handle)

    def finalize_response(
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        final_response = super().finalize_response(request, response, *args, **kwargs)
        final_response[TIME_HEADER] = str(time.time_ns() // 1_000_000)
        return final_response


class AgentView(_AgentApiView):
    """Base of the resources that require a signature; `host` is the host of the agent that signed the request."""

    signature_scheme = AGENT_SIGNATURE_SCHEME
    host: Host

    @property
    def actor(self) -> Actor:
        http = self.request._request
        return agent_actor(self.host, ip=client_ip(http), request_id=getattr(http, "request_id", None))

    def _charge(self, request: Request, actor: Actor | None) -> None:
        """Charges the rate limit of the client's network; that of the host is charged after authentication."""
        self._require_rate(f"agent-address:{network_of(request._request)}", AGENT_REQUESTS_PER_ADDRESS_AND_MINUTE_MAX)

    def _require_rate(self, name: str, limit: int) -> None:
        self.rate = rates.charge_counter(name, limit)
        if self.rate is not None and self.rate.is_exceeded:
            raise RateLimited("Wait before the next request.", retry_after_s=self.rate.reset_s)

    def run_for_agent(self, declared: Endpoint, handle: Callable[[], Response]) -> Response:
        http = self.request._request
        body = http.body
        assert isinstance(body, bytes)
        self.host = authenticate(
            header=http.headers.get("Authorization", ""),
            method=http.method or "",
            target=http.get_full_path(),
            body=body,
            now=timezone.now(),
        )
        self._require_rate(f"agent:{self.host.pk}", AGENT_REQUESTS_PER_MINUTE_MAX)
        if len(body) > AGENT_REPORT_BYTES_MAX:
            raise AgentRefused(
                f"At most {AGENT_REPORT_BYTES_MAX:,} bytes.", code="body_too_large", host=self.host, http_status=413
            )
        return super().run_for_agent(declared, handle)


class AgentAuthority(_AgentApiView):
    @endpoint("get_agent_authority", ANYBODY, returns=AuthorityOut, errors=(404,))
    def get(self, request: Request) -> Response:
        """Read the authority that signs certificates of agents.

        An agent compares its SHA-256 with that in its command line before it sends the token.
        """
        return Response({"authority_pem": joining.authority_pem()})


class AgentJoin(_AgentApiView):
    @property
    def actor(self) -> Actor:
        """Sender of a join: with one Idempotency-Key, the same token and signing request get the same certificate."""
        http = self.request._request
        return joining.joining_actor(
            self.body["token"], ip=client_ip(http), request_id=getattr(http, "request_id", None)
        )

    @endpoint("join_host", ANYBODY, body=JoinIn, returns=JoinOut, status=201, dry_run=False, errors=(401, 403, 503))
    def post(self, request: Request) -> Response:
        """Use a join token: get a certificate for a key of the host.

        The token is used up. Requests of the agent are signed with the key from then on. Repeated with the same
        Idempotency-Key, because the answer was lost, the request gets the same certificate.
        """
        http = request._request
        joined = joining.join(
            token=self.body["token"],
            csr_pem=self.body["csr_pem"],
            host_name=self.body.get("host", ""),
            ip=client_ip(http),
            request_id=getattr(http, "request_id", None),
        )
        body = {
            "host_id": joined.host.pk,
            "host_name": joined.host.name,
            "certificate_pem": joined.certificate_pem,
            "authority_pem": joined.authority_pem,
        }
        return Response(body, status=201)


class WantedOut(serializers.Serializer):
    version = serializers.IntegerField(help_text="Of this document's form.")
    product_version = serializers.CharField()
    host = serializers.DictField()
    brokers = serializers.ListField(child=serializers.DictField(), help_text="With the settings of their processes.")
    files = serializers.DictField(help_text="Secrets that these settings name, by file name.")
    poll_after_s = serializers.FloatField(help_text="Pause before the next poll.")


class AgentWanted(AgentView):
    @endpoint("get_wanted_of_host", ANYBODY, returns=WantedOut, errors=(401, 503))
    def get(self, request: Request) -> Response:
        """Read what is wanted of the agent's host.

        304 if it is what `If-None-Match` names. It is answered at once: the answer names the pause before the next
        request.
        """
        document = agent_documents.wanted_document(self.host)
        tag = agent_documents.tag_of(document)
        if request.headers.get("If-None-Match") == tag:
            return Response(status=304, headers={"ETag": tag})
        return Response(document, headers={"ETag": tag})


class AgentReport(AgentView):
    @endpoint("report_host", ANYBODY, body=ReportIn, status=204, dry_run=False, errors=(401, 403, 413))
    def post(self, request: Request) -> Response:
        """Report processes of brokers, and checks of the machine.

        A report whose answer was lost is sent again with the same `report_id`, before the next one.
        """
        agent_reports.apply_report(
            host=self.host,
            brokers=self.body["brokers"],
            checks=self.body.get("checks"),
            machine=self.body.get("machine"),
            agent_version=self.body["agent_version"],
            report_id=self.body.get("report_id", ""),
        )
        return self.nothing()


class AgentCertificates(AgentView):
    @endpoint(
        "issue_host_certificate",
        ANYBODY,
        body=AgentCertificateIn,
        returns=AgentCertificateOut,
        status=201,
        dry_run=False,
        errors=(401, 403, 409, 503),
    )
    def post(self, request: Request) -> Response:
        """Issue the next certificate of the agent, or one of a broker of its host."""
        purpose, csr_pem = self.body["purpose"], self.body["csr_pem"]
        if purpose == Purpose.AGENT:
            certificate_pem = joining.renew(acting=self.actor, host=self.host, csr_pem=csr_pem)
        else:
            certificate_pem = agent_documents.issue_for_broker(
                acting=self.actor,
                host=self.host,
                broker_id=self.body.get("broker_id", ""),
                purpose=purpose,
                csr_pem=csr_pem,
                now=timezone.now(),
            )
        return Response({"certificate_pem": certificate_pem, "authority_pem": joining.authority_pem()}, status=201)
