"""An agent without a database: a process with a bare environment that joins, starts a broker, dies and comes back."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from brokers import services
from brokers.agent.control_plane import ControlPlaneUnavailable
from brokers.agent.joined.certificates import JoinedCertificates, internal_file
from brokers.agent.joined.client import ApiClient, ApiRefused, ControlPlaneAddress
from brokers.agent.joined.control_plane import JoinedControlPlane
from brokers.agent.joined.documents import JoinedDocument
from brokers.agent.joined.membership import CERTIFICATE_FILE, JoinedHost, NotJoined, join, read_signer
from brokers.choices import ProcessState, WantedState
from brokers.contract.agent_requests import JOIN_PATH, REPORT_PATH, WANTED_PATH
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import MUTUAL_TLS
from brokers.infra.certificates import (
    ensure_ca,
    ensure_internal_ca,
    is_valid_for,
    issue_agent_certificate,
    write_private,
)
from brokers.infra.request_signatures import key_pem, new_key
from brokers.models import AgentCertificate, Broker, Cluster, Host
from brokers.operations import joining, revocation
from config.environment import BASE_DIR
from tenants.actors import system_actor
from tests.testkit.fleet import make_fleet
from tests.testkit.lossy_front import lossy_front
from tests.testkit.ports import unused_port
from tests.testkit.waiting import eventually

StartAgent = Callable[..., "subprocess.Popen[bytes]"]
START_S = 60.0


@pytest.fixture()
def secrets(tmp_path: Path, settings: Any) -> Path:
    """Directory of the control plane's secrets."""
    directory = tmp_path / "control"
    settings.INTERNAL_TLS_DIR, settings.TLS_DIR = directory / "internal_tls", directory / "tls"
    ensure_internal_ca(settings.INTERNAL_TLS_DIR)
    ensure_ca(settings.TLS_DIR)
    for role in ("control", "broker"):
        write_private(directory / role, f"{role}:password-of-{role}".encode())
    settings.ZOOKEEPER_CONTROL_FILE = str(directory / "control")
    settings.ZOOKEEPER_BROKER_FILE = str(directory / "broker")
    settings.INTERNAL_SECURITY = MUTUAL_TLS
    return directory


@pytest.fixture()
def cluster(tmp_path: Path, secrets: Path, zookeeper_address: str, transactional_db: None) -> Cluster:
    """A cluster of one broker, on free ports."""
    made = make_fleet(tmp_path, brokers=1)
    made.zookeeper = zookeeper_address
    made.save()
    made.brokers.update(internal_port=unused_port(), admin_port=unused_port())
    return made


@pytest.fixture()
def state_dir(tmp_path: Path) -> Path:
    """State directory of the host."""
    return tmp_path / "host"


@pytest.fixture()
def start_agent(state_dir: Path, tmp_path: Path) -> Iterator[StartAgent]:
    """Starts `manage.py agent` with an environment that names neither database nor queue; all ends with the test."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PENSTOCK_NATIVE": "0", "PENSTOCK_LOG_JSON": "1",
        "LANG": "C.UTF-8",
    }  # fmt: skip

    def start(*words: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "agent.log").open("ab") as log:
            command = [sys.executable, str(BASE_DIR / "manage.py"), "agent", "--state-dir", str(state_dir), *words]
            started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=BASE_DIR)
            )
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for file in state_dir.glob("agent/*/*/pid.json"):  # of an agent that was killed
        with suppress(ProcessLookupError):
            os.killpg(json.loads(file.read_text())["pid"], signal.SIGKILL)


def token_and_fingerprint(host: Host) -> tuple[str, str]:
    made = joining.new_join_token(acting=system_actor("tests"), host=host)
    return made.secret, made.command.rpartition(" ")[2]


def is_ready(broker: Broker) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin_port}/readyz", timeout=2) as answer:
        return bool(answer.status == 200)


def test_a_broker_comes_up_outlives_its_agent_and_is_stopped_by_the_next_one(
    cluster: Cluster, state_dir: Path, live_server: LiveServer, start_agent: StartAgent, tmp_path: Path
) -> None:
    def broker() -> Broker:
        return cluster.brokers.select_related("host").get()

    def has(state: ProcessState) -> Callable[[], bool]:
        return lambda: broker().process_state == state

    token, sha256 = token_and_fingerprint(broker().host)
    line = ("--join", live_server.url, "--token", token, "--ca-sha256", sha256)
    # As units run it: started first, and joined by hand beside it.
    agent = start_agent("--joined")
    log = tmp_path / "agent.log"
    eventually(lambda: "has not joined yet" in log.read_text(), within_s=START_S, what="the agent to wait")
    assert start_agent("--join-only", *line).wait(START_S) == 0
    eventually(has(ProcessState.RUNNING), within_s=START_S, what="a report that the broker runs")
    eventually(lambda: is_ready(broker()), within_s=START_S, what="the broker")

    own = psutil.Process(agent.pid).environ()
    assert not {"DATABASE_URL", "REDIS_URL"} & own.keys()
    assert not list(state_dir.rglob("*ca_key*"))
    for file in state_dir.rglob("*"):
        if file.is_file() and file.name != "broker.log":
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    used = BrokerProcessSettings.read(state_dir / "agent" / cluster.pk / "1" / "settings.json")
    assert Path(used.zookeeper_credentials_file).read_text() == "broker:password-of-broker"
    assert all(str(state_dir) in named for named in (used.internal_certificate_file, used.tls_certificate_file))
    assert broker().process_has_tls
    checked = eventually(lambda: Host.objects.get(pk=broker().host_id).checks, within_s=30, what="checks")
    assert {check["name"]: check["state"] for check in checked}["clock"] == "passed"

    pid = broker().process_pid
    assert pid is not None
    agent.kill()
    agent.wait()
    services.set_wanted(acting=system_actor("tests"), broker=broker(), wanted=WantedState.STOPPED)
    assert is_ready(broker())
    # The same line again, as a unit of a service manager would run it: its token is used up and not sent.
    start_agent(*line)
    eventually(has(ProcessState.STOPPED), within_s=START_S, what="the stop")
    eventually(lambda: not psutil.pid_exists(pid), what="the end of the process")
    assert "broker.adopted" in (tmp_path / "agent.log").read_text()


def test_a_host_that_did_not_join_says_what_to_do(start_agent: StartAgent, tmp_path: Path) -> None:
    for words, said in (
        (("--join", "http://127.0.0.1:9"), "has not joined yet"),
        (("--join", "http://console.example.com", "--token", "psj_x"), "is not encrypted"),
        (("--token", "psj_x"), "go with --join"),
    ):
        assert start_agent(*words).wait(START_S) == 1
        assert said in (tmp_path / "agent.log").read_text()


@pytest.mark.parametrize(
    ("url", "is_accepted"),
    [
        ("https://console.example.com", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost:8000/penstock", True),
        ("http://10.0.0.1:8000", False),
        ("http://127.0.0.1.example.com", False),
        ("https://user@console.example.com", False),
        ("ftp://127.0.0.1", False),
        ("console.example.com", False),
    ],
)
def test_secrets_travel_encrypted_or_on_this_machine(url: str, is_accepted: bool) -> None:
    if is_accepted:
        assert ControlPlaneAddress.parse(url).host
    else:
        with pytest.raises(ValueError, match=r"https://"):
            ControlPlaneAddress.parse(url)


def test_a_join_whose_answer_is_lost_is_repeated_and_gets_the_same_certificate(
    cluster: Cluster, live_server: LiveServer, state_dir: Path
) -> None:
    host = cluster.brokers.get().host
    token, _ = token_and_fingerprint(host)
    with lossy_front(live_server.url) as front:
        front.loses_answers_to = JOIN_PATH
        joined = join(state_dir, url=front.url, token=token)
        assert front.lost_count == 1
    assert joined.host_id == host.pk
    (certificate,) = AgentCertificate.objects.filter(host=host)
    assert certificate.serial == read_signer(state_dir).serial


def test_an_end_whose_report_was_answered_in_vain_is_counted_once(
    cluster: Cluster, live_server: LiveServer, state_dir: Path, settings: Any
) -> None:
    settings.STATE_DIR = state_dir
    broker = cluster.brokers.get()
    token, _ = token_and_fingerprint(broker.host)
    with lossy_front(live_server.url) as front:
        control_plane = JoinedControlPlane(join(state_dir, url=front.url, token=token), state_dir)
        control_plane.begin_round()
        try:
            eventually(lambda: Host.objects.get(pk=broker.host_id).agent_version, within_s=30, what="the first report")
            front.loses_answers_to = REPORT_PATH
            control_plane.count_restart(broker.pk)
            eventually(lambda: front.lost_count, within_s=30, what="an answer that is lost")
            control_plane.count_restart(broker.pk)
            control_plane.store_process_state(broker.pk, {"process_state": ProcessState.BACKING_OFF})
            eventually(
                lambda: cluster.brokers.get().process_state == ProcessState.BACKING_OFF,
                within_s=30, what="the report after it",
            )  # fmt: skip
        finally:
            control_plane.close()
    assert cluster.brokers.get().process_restarts == 2


def test_a_host_that_joined_again_gets_certificates_that_are_not_revoked(
    cluster: Cluster, live_server: LiveServer, state_dir: Path
) -> None:
    def joined_certificate() -> bytes:
        """Joins by a new token, and returns the certificate that the broker has after that."""
        token, _ = token_and_fingerprint(cluster.brokers.get().host)
        joined = join(state_dir, url=live_server.url, token=token)
        client = ApiClient(joined.address, read_signer(state_dir))
        try:
            brokers = JoinedDocument(client.call("GET", WANTED_PATH).body).brokers
            own = JoinedCertificates(client, joined, state_dir)
            own.ensure_brokers(brokers)
            issued = internal_file(brokers[0]).read_bytes()
            own.ensure_brokers(brokers)
            assert internal_file(brokers[0]).read_bytes() == issued
        finally:
            client.close()
        return issued

    certificates = [joined_certificate() for _ in range(2)]
    from_s = revocation.valid_from_s(cluster.brokers.get())
    hosts, now = ["127.0.0.1"], datetime.now(UTC)
    assert [is_valid_for(pem, hosts, now, issued_from_s=from_s) for pem in certificates] == [False, True]


def test_an_authority_with_another_fingerprint_gets_no_token(
    cluster: Cluster, live_server: LiveServer, state_dir: Path
) -> None:
    host = cluster.brokers.get().host
    token, sha256 = token_and_fingerprint(host)
    with pytest.raises(NotJoined, match=sha256):
        join(state_dir, url=live_server.url, token=token, ca_sha256="ab" * 32)
    host.refresh_from_db()
    assert host.join_token_used_at is None
    assert not state_dir.exists()
    joined = join(state_dir, url=live_server.url, token=token, ca_sha256=sha256.upper())
    assert (joined.host_id, joined.host_name) == (host.pk, host.name)
    assert join(state_dir, url=live_server.url, token=token) == joined
    with pytest.raises(NotJoined, match="join_token_used"):
        join(state_dir / "second", url=live_server.url, token=token)


def test_a_refused_agent_goes_on_with_a_key_that_was_replaced(
    cluster: Cluster, live_server: LiveServer, state_dir: Path, settings: Any
) -> None:
    settings.STATE_DIR = state_dir
    host = cluster.brokers.get().host
    token, _ = token_and_fingerprint(host)
    control_plane = JoinedControlPlane(join(state_dir, url=live_server.url, token=token), state_dir)
    control_plane.begin_round()
    try:
        eventually(lambda: Host.objects.get(pk=host.pk).agent_version, within_s=30, what="the first report")
        assert control_plane.wanted_host() is not None
        token, _ = token_and_fingerprint(host)
        join(state_dir, url=live_server.url, token=token)
        control_plane.count_restart(cluster.brokers.get().pk)
        eventually(lambda: cluster.brokers.get().process_restarts == 1, within_s=30, what="the report")
    finally:
        control_plane.close()


def test_an_agent_renews_its_certificate_and_signs_with_the_new_key(
    cluster: Cluster, live_server: LiveServer, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = cluster.brokers.get().host
    token, _ = token_and_fingerprint(host)
    joined = join(state_dir, url=live_server.url, token=token)
    client = ApiClient(joined.address, read_signer(state_dir))
    own = JoinedCertificates(client, joined, state_dir)
    before = (state_dir / CERTIFICATE_FILE).read_bytes()
    try:
        own.renew_own()
        assert (state_dir / CERTIFICATE_FILE).read_bytes() == before
        monkeypatch.setattr("brokers.agent.joined.certificates.RENEWAL_DAYS", 100)
        own.renew_own()  # refused: for the control plane it is not due
        assert (state_dir / CERTIFICATE_FILE).read_bytes() == before
        AgentCertificate.objects.update(expires_at=timezone.now() + timedelta(days=1))
        own.renew_own()
        assert client.call("GET", WANTED_PATH).status == 200
    finally:
        client.close()
    assert client.signer is not None
    assert client.signer.serial == read_signer(state_dir).serial
    (valid,) = AgentCertificate.objects.filter(host=host, revoked_at=None)
    assert valid.serial == client.signer.serial
    assert AgentCertificate.objects.filter(host=host).count() == 2


@pytest.fixture()
def away(state_dir: Path, secrets: Path) -> JoinedControlPlane:
    """A control plane at which nobody listens."""
    key = new_key()
    made = issue_agent_certificate(secrets / "internal_tls", "hst-a", key.public_key(), datetime.now(UTC))
    state_dir.mkdir()
    write_private(state_dir / "agent.pem", key_pem(key) + made.public_bytes(Encoding.PEM))
    url = f"http://127.0.0.1:{unused_port()}"
    joined = JoinedHost(url=url, host_id="hst-a", host_name="a", ca_sha256="", token_sha256="")
    return JoinedControlPlane(joined, state_dir)


def test_a_control_plane_that_is_away_holds_nothing_up(away: JoinedControlPlane) -> None:
    away.begin_round()
    with pytest.raises(ControlPlaneUnavailable):
        away.wanted_host()
    away.store_process_state("brk-a", {"process_state": ProcessState.RUNNING})
    away.count_restart("brk-a")
    away.wait(0.01)
    away.close()
    assert away._reports == {"brk-a": {"process_state": "running", "ends": 1}}
    assert not any(thread.name == "control-plane" for thread in threading.enumerate())


def document(**changes: Any) -> JoinedDocument:
    host = {
        "id": "hst-a", "name": "a", "bind_host": "127.0.0.1", "port_first": 1, "port_last": 2, "data_dirs": [],
        "version": 1,
    }  # fmt: skip
    known = {"version": 1, "product_version": "0.1.0", "host": host, "brokers": [], "files": {}, "poll_after_s": 1.0}
    return JoinedDocument(known | changes)


def test_a_document_writes_no_file_outside_of_its_folder(state_dir: Path, settings: Any) -> None:
    settings.STATE_DIR, settings.TLS_DIR = state_dir, state_dir / "tls"
    for name in ("../agent.pem", "/etc/passwd", "a/b", "", ".hidden", "a\n"):
        with pytest.raises(ValueError, match="none of ours"):
            document(files={name: "x"}).write_files()
    assert not state_dir.exists()


def test_a_kept_document_holds_no_secret(state_dir: Path) -> None:
    state_dir.mkdir()
    file = state_dir / "wanted.json"
    document(files={"zookeeper_broker": "broker:secret"}).write(file)
    assert "secret" not in file.read_text()
    assert JoinedDocument.read(file) is not None
    file.write_text("torn")
    assert JoinedDocument.read(file) is None


@pytest.mark.parametrize("body", [None, [], "none", 7])
def test_an_answer_that_is_no_document_is_an_error_that_the_agents_thread_survives(body: Any) -> None:
    """A proxy may answer 200 with anything; another exception would end the thread for good."""
    with pytest.raises(ValueError, match="no document"):
        JoinedDocument(body)


def test_a_document_of_another_form_is_not_taken() -> None:
    with pytest.raises(ValueError, match="upgrade this host"):
        document(version=2)


def test_an_answer_that_is_none_of_ours_is_a_refusal(live_server: LiveServer) -> None:
    client = ApiClient(ControlPlaneAddress.parse(live_server.url))
    try:
        with pytest.raises(ApiRefused) as refused:
            client.call("GET", "/nowhere")
        assert (refused.value.status, refused.value.is_temporary) == (404, False)
    finally:
        client.close()
