"""Three processes of ours, and one instance on all of them."""

from __future__ import annotations

from pathlib import Path

from brokers.contract.documents import InstanceSettings
from brokers.contract.process import CLUSTER_USER
from tests.differential.play import Address
from tests.differential.trio.cluster import Trio, rack_of, roles_by
from tests.testkit.engine import HOST, BrokerProcess, EngineCluster, eventually

INSTANCE = "ins-differen"
# As Apache Kafka's brokers were started for the recording, but for what makes the tests wait.
OVERRIDES = {
    "replica.lag.time.max.ms": "2000",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}


class OurTrio(Trio):
    """A context manager."""

    prefix = f"{INSTANCE}."

    def __init__(self, zookeeper_address: str, directory: Path) -> None:
        self._cluster = EngineCluster(
            zookeeper_address, directory, size=3, overrides=OVERRIDES, racks=[rack_of(id) for id in (1, 2, 3)]
        )

    def __enter__(self) -> OurTrio:
        self._cluster.__enter__()
        try:
            self._endpoints = self._cluster.create_instance(
                INSTANCE, settings=InstanceSettings(default_partitions=1, default_replication_factor=1)
            ).document.endpoints
            self._brokers: dict[int, BrokerProcess] = {
                broker.settings.broker_id: broker for broker in self._cluster.brokers
            }
            status = eventually(
                lambda: next(
                    (
                        result
                        for result in [self._cluster.brokers[0].admin("/v1/status")]
                        if result["controller_id"] > 0
                    ),
                    None,
                ),
                "there is a controller",
            )
            self.ids = roles_by(status["controller_id"], list(self._brokers))
        except BaseException:
            self._cluster.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.stop()

    def tenant(self, role: str) -> Address:
        host, _, port = self._endpoints[self.ids[role]].rpartition(":")
        return Address(host, int(port))

    def operator(self, role: str) -> tuple[Address, tuple[str, str] | None]:
        broker = self._broker(role)
        return Address(HOST, broker.settings.internal_port), (CLUSTER_USER, broker.secret)

    def pid(self, role: str) -> int:
        return self._broker(role).pid

    def stop(self, role: str) -> None:
        self._broker(role).stop()

    def start(self, role: str) -> None:
        broker = self._broker(role)
        broker.start()
        broker.wait_until_ready()

    def _broker(self, role: str) -> BrokerProcess:
        return self._brokers[self.ids[role]]
