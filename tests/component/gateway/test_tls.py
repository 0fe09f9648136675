"""TLS and sign-in on both sides of a gateway: of its clients, and of the gateway at its upstream."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.component.gateway.conftest import FIRST
from tests.component.gateway.test_clients import TIMEOUT_S, consuming, create, read
from tests.testkit.engine import EngineCluster
from tests.testkit.gateway import UPSTREAM_INSTANCE, GatewayProcess, gateway_instance
from tests.testkit.tls import make_certificate
from tests.testkit.users import alter_users, user_addition


def test_clients_and_upstream_are_reached_by_tls_and_password(zookeeper_address: str, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path / "tls")
    authority = str(tmp_path / "tls" / "ca.pem")
    with EngineCluster(zookeeper_address, tmp_path / "brokers", certificate=certificate) as cluster:
        upstream = cluster.create_instance(UPSTREAM_INSTANCE, security="sasl_tls")
        alter_users(
            cluster, upstream, user_addition("gateway", "of-the-gateway", instance_id=UPSTREAM_INSTANCE, superuser=1)
        )
        login = {"security_protocol": "SASL_SSL", "username": "gateway", "password": "of-the-gateway"}
        instance = gateway_instance(FIRST, [1], security="sasl_tls")
        with GatewayProcess(
            tmp_path / "gateway",
            upstream.bootstrap,
            [instance],
            upstream={**login, "ca_file": authority},
            more={"tls_certificate_file": str(certificate)},
        ) as gateway:
            config = gateway.client(
                FIRST,
                **{
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "ssl.ca.location": authority,
                },
            )
            topic = create(AdminClient(config), "secured", 1)
            producer = Producer(config)
            producer.produce(topic, b"x" * 200_000)
            assert producer.flush(TIMEOUT_S) == 0
            with consuming(config, topic, "readers") as consumer:
                assert read(consumer, 1)[0].value() == b"x" * 200_000
