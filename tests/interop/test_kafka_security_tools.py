"""Apache Kafka's own tools where users sign in over TLS: access control entries, SCRAM users, console clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract.certificates import CertificatesDocument
from instances.views.snippet_security import CA_FILE, CLIENT_KEYSTORE_FILE, ClientSecurity, Tls, properties
from tests.interop import jars
from tests.interop.signing_in import Access, with_confluent
from tests.testkit.client_certificates import Authority
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.tls import make_certificate
from tests.testkit.users import alter_users, user_addition

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.long("brokers/engine/access", "brokers/engine/handlers/auth", "tests/interop/jars.py"),
]

ACLS: Final = "kafka.admin.AclCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
PRODUCER: Final = "kafka.tools.ConsoleProducer"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
INSTANCE: Final = "ins-aaaaaaaa"
TOPIC: Final = "orders"
PASSWORDS: Final = {"owner": "owner-secret", "reader": "reader-secret", "writer": "writer-secret"}


@dataclass(frozen=True)
class Place:
    """An instance with users behind TLS, and a directory for properties."""

    bootstrap: str
    ca_file: Path
    home: Path

    def access(self, user: str, password: str = "", mechanism: str = "SCRAM-SHA-512") -> Access:
        return Access(self.bootstrap, TOPIC, str(self.ca_file), mechanism, user, password or PASSWORDS[user])

    def properties(self, user: str, mechanism: str = "SCRAM-SHA-512", password: str = "") -> str:
        file = self.home / f"{user}-{mechanism}.properties"
        return str(jars.properties(file, user, password or PASSWORDS[user], mechanism, self.ca_file))

    def admin(self, tool: str, *arguments: str, user: str = "owner", expected_code: int | None = 0) -> str:
        common = ("--bootstrap-server", self.bootstrap, "--command-config", self.properties(user))
        return jars.run(tool, *common, *arguments, expected_code=expected_code)

    def produce(self, user: str, *lines: str, mechanism: str = "SCRAM-SHA-512") -> str:
        return jars.run(
            PRODUCER, "--bootstrap-server", self.bootstrap, "--topic", TOPIC,
            "--producer.config", self.properties(user, mechanism), "--producer-property", "delivery.timeout.ms=10000",
            "--request-timeout-ms", "5000", typed="".join(f"{line}\n" for line in lines), expected_code=None,
        )  # fmt: skip

    def consume(self, user: str, count: int, group: str, mechanism: str = "SCRAM-SHA-512") -> str:
        return jars.run(
            CONSUMER, "--bootstrap-server", self.bootstrap, "--topic", TOPIC, "--from-beginning", "--group", group,
            "--consumer.config", self.properties(user, mechanism), "--max-messages", str(count),
            "--timeout-ms", "20000", expected_code=None,
        )  # fmt: skip


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    jars.java_with_jars()
    home = tmp_path_factory.mktemp("security-tools")
    certificate = make_certificate(home / "tls")
    with EngineCluster(zookeeper_address, home / "engine", certificate=certificate) as running:
        yield running


@pytest.fixture(scope="module")
def place(cluster: EngineCluster, tmp_path_factory: pytest.TempPathFactory) -> Place:
    instance = cluster.create_instance(INSTANCE, security="sasl_tls")
    users = [user_addition(name, password, superuser=int(name == "owner")) for name, password in PASSWORDS.items()]
    alter_users(cluster, instance, *users)
    assert cluster.certificate is not None
    place = Place(instance.bootstrap, cluster.certificate.with_name("ca.pem"), tmp_path_factory.mktemp("properties"))
    make_topic(place.access("owner"))
    return place


@pytest.fixture(scope="module")
def certified(cluster: EngineCluster, place: Place) -> TestInstance:
    """An instance that knows its clients by certificate; the files of one are in the place's home."""
    clients = Authority.make("Acme CA")
    instance = cluster.create_instance("ins-bbbbbbbb", security="mtls")
    cluster.put_certificates(instance, CertificatesDocument(client_ca_pem=clients.pem))
    own_file = clients.client(place.home, "alice").rename(place.home / CLIENT_KEYSTORE_FILE)
    (place.home / CA_FILE).write_bytes(place.ca_file.read_bytes())
    make_topic(Access(instance.bootstrap, TOPIC, str(place.ca_file), own_file=str(own_file)))
    return instance


def make_topic(access: Access) -> None:
    admin = AdminClient(access.of_librdkafka())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)


def test_console_clients_come_in_by_certificate(place: Place, certified: TestInstance) -> None:
    file = place.home / "certificate.properties"
    tls = Tls("ca", has_client_certificate=True)
    file.write_text(properties(ClientSecurity(None, tls)), encoding="ascii")
    common = ("--bootstrap-server", certified.bootstrap, "--topic", TOPIC)
    said = jars.run(PRODUCER, *common, "--producer.config", str(file), typed="by certificate\n", folder=place.home)
    assert "Exception" not in said, said
    read = jars.run(
        CONSUMER, *common, "--from-beginning", "--consumer.config", str(file), "--max-messages", "1",
        "--timeout-ms", "20000", folder=place.home,
    )  # fmt: skip
    assert "by certificate" in read.splitlines()


def test_kafka_acls_adds_lists_and_removes_entries(place: Place) -> None:
    added_text = place.admin(
        ACLS, "--add", "--allow-principal", "User:reader", "--deny-principal", "User:mallory", "--operation", "Read",
        "--topic", "pre", "--resource-pattern-type", "prefixed", "--allow-host", "127.0.0.1",
    )  # fmt: skip
    assert "ResourcePattern(resourceType=TOPIC, name=pre, patternType=PREFIXED)" in added_text
    listed = place.admin(ACLS, "--list", "--topic", "prefix-1", "--resource-pattern-type", "match")
    assert "(principal=User:reader, host=127.0.0.1, operation=READ, permissionType=ALLOW)" in listed
    assert "(principal=User:mallory, host=*, operation=READ, permissionType=DENY)" in listed
    place.admin(
        ACLS, "--remove", "--deny-principal", "User:mallory", "--operation", "Read", "--topic", "pre",
        "--resource-pattern-type", "prefixed", "--force",
    )  # fmt: skip
    listed = place.admin(ACLS, "--list")
    assert "User:reader" in listed
    assert "mallory" not in listed
    place.admin(ACLS, "--remove", "--topic", "pre", "--resource-pattern-type", "prefixed", "--force")
    assert "pre" not in place.admin(ACLS, "--list", "--topic", "pre", "--resource-pattern-type", "any")


def test_the_conveniences_of_kafka_acls_let_console_clients_write_and_read(place: Place) -> None:
    place.admin(ACLS, "--add", "--allow-principal", "User:writer", "--producer", "--topic", TOPIC)
    place.admin(ACLS, "--add", "--allow-principal", "User:reader", "--consumer", "--topic", TOPIC, "--group", "shown-")
    listed = place.admin(ACLS, "--list", "--principal", "User:writer")
    assert {"WRITE", "DESCRIBE", "CREATE"} <= {part.strip("(), ") for part in listed.replace("=", ",").split(",")}

    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        said = place.produce("writer", f"by {mechanism}", mechanism=mechanism)
        assert "Exception" not in said, said
    read = place.consume("reader", len(with_confluent(place.access("owner"), b"the last")), "shown-", "SCRAM-SHA-256")
    assert {"by PLAIN", "by SCRAM-SHA-256", "by SCRAM-SHA-512"} <= set(read.splitlines())

    # The console clients write refusals to their log, which is off here.
    place.produce("reader", "refused")
    assert b"refused" not in with_confluent(place.access("owner"), b"by the owner")
    assert "Processed a total of 0 messages" in place.consume("writer", 1, "shown-")


def test_a_user_who_may_not_describe_the_cluster_lists_no_entries(place: Place) -> None:
    # Nothing is about the cluster yet, so it is everybody's.
    assert "Current ACLs" in place.admin(ACLS, "--list", user="reader")
    place.admin(ACLS, "--add", "--allow-principal", "User:owner", "--operation", "All", "--cluster")
    refused = place.admin(ACLS, "--list", user="reader", expected_code=None)
    assert "ClusterAuthorizationException" in refused
    place.admin(ACLS, "--remove", "--cluster", "--force")


def test_kafka_configs_makes_shows_changes_and_removes_users(place: Place) -> None:
    users = ("--entity-type", "users", "--entity-name", "made")
    place.admin(ACLS, "--add", "--allow-principal", "User:made", "--operation", "All", "--topic", TOPIC)
    mechanism = "SCRAM-SHA-256"
    place.admin(CONFIGS, "--alter", "--add-config", f"{mechanism}=[iterations=8192,password=first]", *users)
    described = place.admin(CONFIGS, "--describe", *users)
    assert "SCRAM credential configs for user-principal 'made' are SCRAM-SHA-256=iterations=8192" in described
    assert b"1" in with_confluent(place.access("made", "first", mechanism), b"1")
    assert b"2" in with_confluent(place.access("made", "first", "PLAIN"), b"2")
    assert with_confluent(place.access("made", "first"), b"never") == []  # it has no secret of that mechanism

    place.admin(CONFIGS, "--alter", "--add-config", f"{mechanism}=[password=second]", *users)
    assert with_confluent(place.access("made", "first", mechanism), b"never") == []
    assert b"3" in with_confluent(place.access("made", "second", mechanism), b"3")

    refused = place.admin(
        CONFIGS, "--alter", "--add-config", f"{mechanism}=[iterations=1,password=x]", *users, expected_code=None
    )
    assert "terations" in refused, refused

    place.admin(CONFIGS, "--alter", "--delete-config", mechanism, *users)
    assert mechanism not in place.admin(CONFIGS, "--describe", *users, expected_code=None)
    assert with_confluent(place.access("made", "second", mechanism), b"never") == []


def test_a_console_client_with_a_wrong_password_or_authority_fails_to_authenticate(
    place: Place, tmp_path: Path
) -> None:
    wrong = jars.properties(tmp_path / "wrong", "reader", "wrong", "SCRAM-SHA-512", place.ca_file)
    said = jars.run(
        ACLS, "--bootstrap-server", place.bootstrap, "--command-config", str(wrong), "--list", expected_code=None
    )
    assert "SaslAuthenticationException" in said
    make_certificate(tmp_path / "stranger")
    strange = tmp_path / "strange"
    jars.properties(strange, "owner", PASSWORDS["owner"], "SCRAM-SHA-512", tmp_path / "stranger" / "ca.pem")
    said = jars.run(
        ACLS, "--bootstrap-server", place.bootstrap, "--command-config", str(strange), "--list", expected_code=None
    )
    assert "SslAuthenticationException" in said
