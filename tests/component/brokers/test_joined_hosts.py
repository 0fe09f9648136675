"""Hosts whose agents joined by a token: tokens, certificates, documents, and every refusal with its audit row."""

from __future__ import annotations

import json
import ssl
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from brokers import services
from brokers.choices import ProcessState
from brokers.contract import process_identity
from brokers.contract.agent_requests import CERTIFICATES_PATH, REPORT_PATH, WANTED_PATH
from brokers.infra.certificates import CA_FILE, ensure_ca, ensure_internal_ca, ensure_process_certificate
from brokers.infra.request_signatures import key_pem, new_key, request_pem
from brokers.limits import AGENT_CLOCK_S_MAX, AGENT_REFUSALS_AUDITED_PER_MINUTE_MAX, AGENT_REPORT_BYTES_MAX
from brokers.models import AgentCertificate, Broker, Cluster, Host, PortLease
from brokers.operations import agent_access, hosts
from brokers.operations.agent_documents import poll_after_s
from brokers.operations.check_texts import shown_checks
from instances.models import Route
from tenants.actors import system_actor
from tenants.models import AuditEntry
from tests.testkit.api_cases import Api, assert_problem, make_tenant
from tests.testkit.fleet import make_fleet, make_instance
from tests.testkit.joined_hosts import SigningAgent, join_with, send, token_for

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def authorities(tmp_path: Path, settings: Any) -> Path:
    """An installation with authorities, and secrets of ZooKeeper and of its cluster."""
    settings.INTERNAL_TLS_DIR, settings.TLS_DIR = tmp_path / "internal_tls", tmp_path / "tls"
    ensure_internal_ca(settings.INTERNAL_TLS_DIR)
    ensure_ca(settings.TLS_DIR)
    for role in ("control", "broker"):
        (tmp_path / role).write_text(f"{role}:password-of-{role}")
    settings.ZOOKEEPER_CONTROL_FILE, settings.ZOOKEEPER_BROKER_FILE = (
        str(tmp_path / "control"), str(tmp_path / "broker"),
    )  # fmt: skip
    settings.PUBLIC_URL = "https://console.example.com"
    return Path(settings.INTERNAL_TLS_DIR)


@pytest.fixture()
def cluster(tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path, brokers=2)


@pytest.fixture()
def host(cluster: Cluster) -> Host:
    """Host of the cluster's two brokers."""
    return cluster.brokers.all()[0].host


@pytest.fixture()
def other(tmp_path: Path) -> Broker:
    """Broker of another host and cluster."""
    return make_fleet(tmp_path, brokers=1).brokers.get()


@pytest.fixture()
def agent(host: Host) -> SigningAgent:
    return SigningAgent.of(host)


def refusals(host: Host) -> list[str]:
    rows = AuditEntry.objects.filter(action=agent_access.REFUSED, target_id=host.pk).order_by("time")
    return [row.after["reason"] for row in rows]


class TestTokens:
    def test_an_added_host_comes_with_a_line_to_run_whose_token_is_stored_as_a_hash(
        self, operator: Api, authorities: Path
    ) -> None:
        body = {"name": "kafka-9", "advertised_host": "127.0.0.9", "port_first": 26_000, "port_last": 26_099}
        made = operator.post("/operator/hosts", body).json()
        assert made["join_command"].startswith(
            f"manage.py agent --join https://console.example.com --token {made['join_token']} --ca-sha256 "
        )
        row = Host.objects.get(pk=made["id"])
        assert made["join_token"] not in str(row.__dict__)
        assert timedelta(minutes=59) < row.join_token_expires_at - timezone.now() <= timedelta(hours=1)
        assert "join_token" not in operator.get(f"/operator/hosts/{row.pk}").json()
        assert made["join_token"] not in str(list(AuditEntry.objects.values_list("after", flat=True)))
        assert join_with(made["join_token"]).status_code == 201

    def test_a_repeated_request_and_a_dry_run_show_no_token(self, operator: Api, host: Host) -> None:
        at = f"/operator/hosts/{host.pk}/join_token"
        first, again = (operator.post(at, Idempotency_Key="once").json() for _ in range(2))
        assert (first["join_token"][:4], again["join_token"], again["join_command"]) == ("psj_", None, None)
        assert operator.post(f"{at}?dry_run=true").json()["join_token"] is None
        assert join_with(first["join_token"]).status_code == 201

    def test_a_token_is_used_once(self, host: Host) -> None:
        token = token_for(host)
        assert join_with(token).status_code == 201
        assert_problem(join_with(token), 401, "join_token_used")
        assert refusals(host) == ["join_token_used"]
        assert AgentCertificate.objects.filter(host=host).count() == 1
        assert AuditEntry.objects.get(action="host.joined").target_id == host.pk

    def test_a_join_repeated_with_its_idempotency_key_gets_the_same_certificate_and_no_other_one(
        self, host: Host, other: Broker
    ) -> None:
        token, key = token_for(host), new_key()
        body = json.dumps({"token": token, "csr_pem": request_pem(key, "agent")})

        def ask(content: str, once: str) -> Any:
            headers = {"Idempotency-Key": once}
            return Client().post("/api/v1/agent/join", content, content_type="application/json", headers=headers)

        first, again = ask(body, "a"), ask(body, "a")
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json() == first.json()
        assert again["Idempotency-Replayed"] == "true"
        another = json.dumps({"token": token, "csr_pem": request_pem(new_key(), "agent")})
        assert_problem(ask(another, "a"), 422, "idempotency_key_reused")
        assert_problem(ask(body, "b"), 401, "join_token_used")
        assert_problem(ask(body, "x" * 129), 400)
        # The key of one token says nothing of that of another one.
        elsewhere = json.dumps({"token": token_for(other.host), "csr_pem": request_pem(key, "agent")})
        assert ask(elsewhere, "a").json()["host_id"] == other.host_id
        assert AgentCertificate.objects.filter(host=host).count() == 1

    def test_an_expired_token_is_refused(self, host: Host) -> None:
        token = token_for(host)
        Host.objects.filter(pk=host.pk).update(join_token_expires_at=timezone.now())
        assert_problem(join_with(token), 401, "join_token_expired")
        assert refusals(host) == ["join_token_expired"]

    def test_an_unknown_token_leaves_no_audit_row(self, host: Host) -> None:
        assert_problem(join_with("psj_unknown"), 401, "join_token_unknown")
        assert not AuditEntry.objects.filter(action=agent_access.REFUSED).exists()

    def test_a_token_of_another_host_is_refused_and_still_good_there(self, host: Host, other: Broker) -> None:
        token = token_for(host)
        assert_problem(join_with(token, host=other.host.name), 403, "other_host")
        assert refusals(host) == ["other_host"]
        assert join_with(token, host=host.name).status_code == 201

    def test_a_signing_request_that_is_none_leaves_the_token_as_it_is(self, host: Host) -> None:
        token = token_for(host)
        pem = request_pem(new_key(), "agent")
        for wrong in ("no request", pem.replace("A", "B"), pem[:200]):
            body = json.dumps({"token": token, "csr_pem": wrong})
            answer = Client().post("/api/v1/agent/join", body, content_type="application/json")
            assert assert_problem(answer, 400)["errors"][0]["pointer"] == "/csr_pem"
        assert join_with(token).status_code == 201

    def test_a_new_token_revokes_the_certificate_of_the_agent(self, agent: SigningAgent, host: Host) -> None:
        assert agent.get().status_code == 200
        token = token_for(host)
        assert_problem(agent.get(), 401, "certificate_revoked")
        assert refusals(host) == ["certificate_revoked"]
        row = AuditEntry.objects.filter(action="host.join_token_made").latest("time")
        assert row.after["revoked_certificates"] == 1
        assert join_with(token).status_code == 201

    def test_a_removed_host_has_no_agent_and_no_token(self, operator: Api) -> None:
        body = {"name": "kafka-9", "advertised_host": "127.0.0.9", "port_first": 26_000, "port_last": 26_099}
        row = Host.objects.get(pk=operator.post("/operator/hosts", body).json()["id"])
        agent = SigningAgent.of(row)
        hosts.remove_host(acting=system_actor("tests"), host=row)
        assert_problem(agent.get(), 401, "host_removed")
        assert_problem(operator.post(f"/operator/hosts/{row.pk}/join_token"), 404)


class TestWanted:
    def test_an_agent_is_given_its_brokers_and_their_secrets_and_nothing_of_others(
        self, agent: SigningAgent, cluster: Cluster, other: Broker
    ) -> None:
        answer = agent.get()
        document = answer.json()
        assert [broker["number"] for broker in document["brokers"]] == [1, 2]
        assert document["files"]["zookeeper_broker"] == "broker:password-of-broker"
        assert document["files"][f"control_secret-{cluster.pk}"] == "not much of a secret"
        for foreign in ("password-of-control", other.pk, other.cluster_id, other.host.name):
            assert foreign not in answer.content.decode()

    def test_a_host_without_brokers_is_given_no_secret(self, other: Broker) -> None:
        agent = SigningAgent.of(other.host)
        Broker.objects.filter(pk=other.pk).update(removed_at=timezone.now(), process_state=ProcessState.RUNNING)
        document = agent.get().json()
        assert document["files"] == {}
        assert [(broker["id"], broker["settings"]) for broker in document["brokers"]] == [(other.pk, None)]

    def test_an_unchanged_document_is_not_sent_again(self, agent: SigningAgent, cluster: Cluster) -> None:
        tag = agent.get()["ETag"]
        same = agent.get(tag=tag)
        assert (same.status_code, same.content) == (304, b"")
        services.restart_broker(acting=system_actor("tests"), broker=cluster.brokers.get(number=1))
        changed = agent.get(tag=tag)
        assert changed.status_code == 200
        assert changed.json()["brokers"][0]["restart_generation"] == 1

    def test_a_poll_takes_as_many_queries_for_many_brokers_as_for_few(
        self, agent: SigningAgent, cluster: Cluster, host: Host
    ) -> None:
        def queries() -> int:
            agent.get()
            with CaptureQueriesContext(connection) as captured:
                assert agent.get().status_code == 200
            return len(captured)

        few = queries()
        for number in range(3, 13):
            Broker.objects.create(
                cluster=cluster, host=host, number=number, internal_port=30_000 + number, admin_port=31_000 + number,
                data_dirs=["/srv/kafka"],
            )  # fmt: skip
        assert len(agent.get().json()["brokers"]) == 12
        assert queries() == few

    def test_a_document_has_the_hosts_of_each_brokers_own_routes(self, agent: SigningAgent, cluster: Cluster) -> None:
        first, second = cluster.brokers.select_related("host").order_by("number")
        instance = make_instance(make_tenant())
        for broker, name in ((first, "a.example"), (second, "b.example")):
            route = Route.objects.create(instance=instance, name=name[0], security="tls", advertised_host=name)
            port = broker.host.port_first + broker.number
            PortLease.objects.create(instance=instance, broker=broker, route=route, host=broker.host, port=port)
        named = {broker["number"]: broker["route_hosts"] for broker in agent.get().json()["brokers"]}
        assert named == {1: ["127.0.0.1", "a.example"], 2: ["127.0.0.1", "b.example"]}

    def test_a_request_is_contact(self, agent: SigningAgent, host: Host) -> None:
        Host.objects.filter(pk=host.pk).update(agent_seen_at=None)
        agent.get()
        host.refresh_from_db()
        assert timezone.now() - host.agent_seen_at < timedelta(seconds=10)

    def test_agents_poll_less_often_the_more_there_are(self) -> None:
        assert [poll_after_s(count) for count in (0, 1, 20, 100, 1_000)] == [1.0, 1.0, 1.0, 5.0, 15.0]


class TestReports:
    def test_processes_and_checks_are_stored(self, agent: SigningAgent, cluster: Cluster, host: Host) -> None:
        broker = cluster.brokers.get(number=1)
        seen = {
            "id": broker.pk, "process_state": "running", "process_pid": 17, "process_restart_generation": 0,
            "process_since": "2026-01-31T12:00:00+00:00", "process_has_tls": True, "ends": 2,
        }  # fmt: skip
        check = {"name": "clock", "state": "passed", "data": {"offset_ms": 3}}
        assert agent.report(seen, checks=[check]).status_code == 204
        broker.refresh_from_db()
        assert (broker.process_state, broker.process_pid, broker.process_restarts) == ("running", 17, 2)
        host.refresh_from_db()
        assert (host.checks, host.agent_version) == ([check], "0.1.0")

    def test_a_report_that_is_sent_again_is_stored_once(self, agent: SigningAgent, cluster: Cluster) -> None:
        """The answer to the first one was lost: the sender signs it again, with the id that it had."""
        broker = cluster.brokers.get(number=1)

        def report(report_id: str, **fields: Any) -> int:
            return int(agent.report({"id": broker.pk, **fields}, report_id=report_id).status_code)

        assert [report("1", ends=2, process_state="running"), report("1", ends=2, process_state="stopped")] == [204] * 2
        broker.refresh_from_db()
        assert (broker.process_restarts, broker.process_state) == (2, "running")
        assert [report("2", ends=1), report("3", ends=1)] == [204, 204]
        broker.refresh_from_db()
        assert broker.process_restarts == 4
        assert agent.report({"id": broker.pk}, report_id="x" * 33).status_code == 400

    def test_a_report_that_was_refused_may_be_sent_again(
        self, agent: SigningAgent, cluster: Cluster, other: Broker
    ) -> None:
        broker = cluster.brokers.get(number=1)
        mixed = [{"id": broker.pk, "ends": 1}, {"id": other.pk}]
        assert_problem(agent.report(*mixed, report_id="1"), 403, "other_host")
        assert agent.report(mixed[0], report_id="1").status_code == 204
        broker.refresh_from_db()
        assert broker.process_restarts == 1

    def test_the_machine_is_on_the_page_and_in_rest(
        self, agent: SigningAgent, host: Host, operator: Api, panel: Client
    ) -> None:
        at, page_at = f"/operator/hosts/{host.pk}", f"/operator/brokers/host/{host.pk}/change/"
        assert operator.get(at).json()["machine"] is None
        assert "Not reported by its agent yet" in panel.get(page_at).content.decode()
        machine = {"cpus": 8, "cpu_percent": None, "memory_bytes": 16 * 10**9, "memory_available_bytes": 4 * 10**9}
        check = {"name": "clock", "state": "passed", "data": {"offset_ms": 3}}
        assert agent.report(checks=[check], machine=machine).status_code == 204
        assert operator.get(at).json()["machine"] == machine
        page = panel.get(page_at).content.decode()
        for shown in ("of 8 processors", "Use is known a minute after", "12 GB", "of 16 GB", "4 GB available"):
            assert shown in page
        assert agent.report(checks=[check], machine=machine | {"cpu_percent": 37}).status_code == 204
        assert "37 % <small>of 8 processors" in panel.get(page_at).content.decode()
        for wrong in ({"cpu_percent": 101}, {"memory_bytes": -1}, {"memory_bytes": 2**60}, {"swap_bytes": 1}):
            assert_problem(agent.report(checks=[check], machine=machine | wrong), 400)

    def test_checks_of_a_joined_agent_compare_with_the_control_plane(self, agent: SigningAgent, host: Host) -> None:
        data = {"version": "0.1.0", "behind": 1, "ahead": 0}
        checks = [
            {"name": "version", "state": "failed", "data": data},
            {"name": "clock", "state": "failed", "data": {"offset_ms": 1_500}},
        ]
        agent.report(checks=checks)
        host.refresh_from_db()
        said = [check.fact for check in shown_checks(host)]
        assert said == [
            "The agent is of version 0.1.0, and the control plane of a newer one.",
            "1,500 ms ahead of the control plane's clock; at most 1,000 ms are fine.",
        ]
        with translation.override("zh-hans"):
            assert all("控制平面" in check.fact for check in shown_checks(host))
        host.agent_joined_at = None
        assert all("database" in check.fact for check in shown_checks(host))

    def test_a_replayed_report_is_refused(self, agent: SigningAgent, cluster: Cluster, host: Host) -> None:
        broker = cluster.brokers.get(number=1)
        body = {"agent_version": "0.1.0", "brokers": [{"id": broker.pk, "process_state": "running", "ends": 1}]}
        content = json.dumps(body).encode()
        signature = agent.header("POST", REPORT_PATH, content)
        assert send(REPORT_PATH, content, signature).status_code == 204
        assert_problem(send(REPORT_PATH, content, signature), 401, "request_replayed")
        broker.refresh_from_db()
        assert broker.process_restarts == 1
        assert refusals(host) == ["request_replayed"]

    def test_a_report_that_was_held_back_is_refused(self, agent: SigningAgent, host: Host) -> None:
        content = json.dumps({"agent_version": "0.1.0", "brokers": []}).encode()
        for off_s in (-AGENT_CLOCK_S_MAX - 5, AGENT_CLOCK_S_MAX + 5):
            sequence = int((time.time() + off_s) * 1_000_000)
            signature = agent.header_with(sequence, "POST", REPORT_PATH, content)
            assert_problem(send(REPORT_PATH, content, signature), 401, "request_late")
        assert refusals(host) == ["request_late", "request_late"]

    def test_a_signature_holds_for_one_body_one_address_and_one_key(self, agent: SigningAgent, host: Host) -> None:
        content = json.dumps({"agent_version": "0.1.0", "brokers": []}).encode()
        for wrong in (
            agent.header("POST", REPORT_PATH, b"{}"),
            agent.header("POST", CERTIFICATES_PATH, content),
            agent.header("GET", REPORT_PATH, content),
            SigningAgent(new_key(), agent.serial).header("POST", REPORT_PATH, content),
        ):
            assert_problem(send(REPORT_PATH, content, wrong), 401, "signature_wrong")
        assert refusals(host) == ["signature_wrong"] * 4

    def test_a_report_about_a_broker_of_another_host_is_refused_whole(
        self, agent: SigningAgent, cluster: Cluster, host: Host, other: Broker
    ) -> None:
        own = cluster.brokers.get(number=1)
        items = [{"id": pk, "process_state": "running"} for pk in (own.pk, other.pk)]
        assert_problem(agent.report(*items), 403, "other_host")
        assert set(Broker.objects.values_list("process_state", flat=True)) == {"unknown"}
        assert refusals(host) == ["other_host"]

    def test_an_oversized_report_is_refused(self, agent: SigningAgent, host: Host) -> None:
        assert_problem(agent.report(padding="x" * AGENT_REPORT_BYTES_MAX), 413, "body_too_large")
        assert refusals(host) == ["body_too_large"]

    def test_a_report_that_no_page_could_show_is_refused(self, agent: SigningAgent, cluster: Cluster) -> None:
        broker = cluster.brokers.get(number=1)
        check = {"name": "clock", "state": "passed"}
        for data in (
            {"offset_ms": 1e300},
            {"a": [[[1]]]},
            {"a": "x" * 501},
            {"a": 2**63},
            {str(n): n for n in range(65)},
        ):
            assert_problem(agent.report(checks=[check | {"data": data}]), 400)
        for wrong in ({"process_state": "on fire"}, {"process_pid": -1}, {"ends": 10**9}, {"wanted": "stopped"}):
            assert_problem(agent.report({"id": broker.pk} | wrong), 400)
        assert_problem(agent.report(*[{"id": broker.pk}] * 65), 400)

    def test_refusals_in_a_minute_fill_no_audit_log(self, agent: SigningAgent, host: Host) -> None:
        signature = agent.header("GET", WANTED_PATH, b"other")
        for _ in range(AGENT_REFUSALS_AUDITED_PER_MINUTE_MAX + 3):
            assert Client().get(WANTED_PATH, headers={"Authorization": signature}).status_code == 401
        assert len(refusals(host)) == AGENT_REFUSALS_AUDITED_PER_MINUTE_MAX


class TestCertificates:
    def ask(self, agent: SigningAgent, **body: str) -> Any:
        return agent.post(CERTIFICATES_PATH, {"csr_pem": request_pem(new_key(), "any"), **body})

    def test_a_broker_of_the_host_gets_both_of_its_certificates(self, agent: SigningAgent, cluster: Cluster) -> None:
        broker = cluster.brokers.get(number=1)
        for purpose in ("internal", "routes"):
            assert self.ask(agent, purpose=purpose, broker_id=broker.pk).status_code == 201
        rows = AuditEntry.objects.filter(action="broker.certificate_issued", target_id=broker.pk)
        assert {row.after["purpose"] for row in rows} == {"internal", "routes"}

    def test_a_certificate_of_another_hosts_broker_is_refused(
        self, agent: SigningAgent, host: Host, other: Broker
    ) -> None:
        for broker_id in (other.pk, "brk-00000000", ""):
            answer = self.ask(agent, purpose="internal", **({"broker_id": broker_id} if broker_id else {}))
            assert_problem(answer, 403, "other_host")
        assert refusals(host) == ["other_host"] * 3

    def test_an_agents_certificate_is_renewed_near_its_end_and_the_first_use_revokes_the_old_one(
        self, agent: SigningAgent, host: Host
    ) -> None:
        key = new_key()
        body = {"purpose": "agent", "csr_pem": request_pem(key, "any")}
        assert agent.get().status_code == 200
        assert_problem(agent.post(CERTIFICATES_PATH, body), 409, "not_due")
        AgentCertificate.objects.filter(host=host).update(expires_at=timezone.now() + timedelta(days=1))
        assert agent.post(CERTIFICATES_PATH, body).status_code == 201
        newer = AgentCertificate.objects.filter(host=host).latest("pk")
        assert agent.get().status_code == 200  # the answer may have been lost
        successor = SigningAgent(key, newer.serial, agent.sequence)
        assert successor.get().status_code == 200
        assert_problem(agent.get(), 401, "certificate_revoked")

    def test_an_expired_certificate_is_refused(self, agent: SigningAgent, host: Host) -> None:
        AgentCertificate.objects.filter(host=host).update(expires_at=timezone.now())
        assert_problem(agent.get(), 401, "certificate_expired")
        assert refusals(host) == ["certificate_expired"]

    def test_it_opens_no_connection_to_a_broker(self, host: Host, authorities: Path, tmp_path: Path) -> None:
        key = new_key()
        made = join_with(token_for(host), key=key).json()["certificate_pem"]
        file = tmp_path / "agent.pem"
        file.write_bytes(key_pem(key) + made.encode())
        broker = ensure_process_certificate(authorities, process_identity.broker("cl-a", 1), ["127.0.0.1"])
        control = ensure_process_certificate(authorities, process_identity.control("web"))
        assert broker is not None
        assert control is not None
        assert handshake(authorities, server=broker, client=control) == ""
        assert "purpose" in handshake(authorities, server=broker, client=file)


def handshake(authority: Path, *, server: Path, client: Path) -> str:
    """Returns why a server with a certificate refuses a client with another one; "" if it does not."""
    sides = []
    for side, file in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        context = ssl.SSLContext(side)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority / CA_FILE)
        context.load_cert_chain(file)
        sides.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = sides[0].wrap_bio(to_server, to_client, server_side=True)
    asking = sides[1].wrap_bio(to_client, to_server)
    for _ in range(4):
        for one in (asking, serving):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return str(error)
    return ""


@pytest.mark.parametrize(("method", "path"), [("GET", WANTED_PATH), ("POST", REPORT_PATH), ("POST", CERTIFICATES_PATH)])
def test_no_token_and_no_session_is_an_agent(operator: Api, panel: Client, method: str, path: str) -> None:
    assert_problem(operator.call(method, path, {} if method == "POST" else None), 401, "unauthenticated")
    assert panel.generic(method, path, content_type="application/json").status_code == 401
    for header in (
        "Penstock-Agent",
        "Penstock-Agent serial=x",
        f"Penstock-Agent serial={'a' * 41},sequence=1,signature=x",
    ):
        assert_problem(Api().call(method, path, Authorization=header), 401, "unauthenticated")
    unknown = "Penstock-Agent serial=abc,sequence=1,signature=AAAA"
    assert_problem(Api().call(method, path, Authorization=unknown), 401, "certificate_unknown")


class TestPanel:
    def test_the_line_is_shown_after_adding_a_host_and_on_demand(self, panel: Client, host: Host) -> None:
        form = {"name": "kafka-9", "advertised_host": "127.0.0.9", "port_first": "26000", "port_last": "26099"}
        page = panel.post("/operator/brokers/host/add/", form).content.decode()
        assert "manage.py agent --join https://console.example.com --token psj_" in page
        at = f"/operator/brokers/host/{host.pk}/join-token/"
        SigningAgent.of(host)
        assert "The certificate of its agent is revoked" in panel.get(at).content.decode()
        made = panel.post(at)
        assert "--token psj_" in made.content.decode()
        assert "no-store" in made["Cache-Control"]
        assert not AgentCertificate.objects.filter(host=host, revoked_at=None).exists()

    def test_the_page_of_a_host_shows_its_agent(self, panel: Client, host: Host) -> None:
        at = f"/operator/brokers/host/{host.pk}/change/"
        assert "With a database" in panel.get(at).content.decode()
        agent = SigningAgent.of(host)
        agent.report()
        page = panel.get(at).content.decode()
        for shown in ("Joined by a token", "Version 0.1.0", "Until 2", "Renewed before", "Last seen at"):
            assert shown in page
        token_for(host)
        assert "Make a join token, and join again" in panel.get(at).content.decode()
