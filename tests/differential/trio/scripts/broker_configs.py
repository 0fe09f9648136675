"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs of brokers: what changes without a restart (QUO-60, ZK-13).

Brokers of Apache Kafka learn of a change a little after it was answered; so after each the script waits for what should
be in effect on A, then writes down how A describes it.
"""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.differential.trio.play import TrioPlayer
from tests.testkit.engine import eventually

BROKER = 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
KEYS = [LEADER, FOLLOWER, "log.retention.ms", "log.cleanup.policy", "unclean.leader.election.enable"]
KEYS += ["message.max.bytes", "log.cleaner.threads", "no.such.key"]
DYNAMIC = (2, 3)
Values = dict[str, str]


class Asking:
    """A client with its expectation: `own` and `shared` are the settings of A and of all brokers."""

    def __init__(self, play: TrioPlayer) -> None:
        self.play = play
        self.player = play.operator["A"]
        self.me = str(play.trio.ids["A"])
        self.others = {"another broker": str(play.trio.ids["B"]), "no broker": "99", "no number": "one"}
        self.others["<default>"] = "<default>"
        self.own: Values = {}
        self.shared: Values = {}

    def names(self, name: str) -> str:
        """A broker's role for its id."""
        return {str(id): role for role, id in self.play.trio.ids.items()}.get(name, name)

    def describe(self, name: str, keys: list[str] | None = None) -> Any:
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=name, configuration_keys=KEYS if keys is None else keys
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        return self.player.call(ApiKey.DESCRIBE_CONFIGS, 4, request).results[0]

    def lines(self, name: str, sources: tuple[int, ...] = DYNAMIC, keys: list[str] | None = None) -> dict[str, Any]:
        return {
            line.name: [
                line.value,
                line.read_only,
                line.config_source,
                line.config_type,
                [[synonym.name, synonym.value, synonym.source] for synonym in line.synonyms],
            ]
            for line in sorted(self.describe(name, keys).configs, key=lambda line: line.name)
            if line.config_source in sources
        }

    def show(self, what: str) -> None:
        def is_there() -> bool:
            at_a = {key: line[0] for key, line in self.lines(self.me).items()}
            at_all = {key: line[0] for key, line in self.lines("").items()}
            return (at_a, at_all) == (self.shared | self.own, self.shared)

        eventually(is_there, f"{what}: {self.own} over {self.shared}")
        self.player.write_down(f"{what}, then", {"A": self.lines(self.me), "all": self.lines("")})

    def change(self, what: str, name: str | None, *changes: tuple[str, int, str | None], **flags: Any) -> None:
        """Changes settings; `name` None: A's own; `version` and `validate_only` are flags."""
        configs = [IncrementalAlterableConfig(name=key, config_operation=how, value=to) for key, how, to in changes]
        resource = IncrementalAlterConfigsResource(
            resource_type=BROKER, resource_name=self.me if name is None else name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=flags.get("validate_only", False))
        answer = self.player.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, flags.get("version", 1), request)
        self._write_down(what, answer)

    def replace(self, what: str, name: str | None, *values: tuple[str, str | None], **flags: Any) -> None:
        configs = [AlterableConfig(name=key, value=value) for key, value in values]
        resource = AlterConfigsResource(
            resource_type=BROKER, resource_name=self.me if name is None else name, configs=configs
        )
        request = AlterConfigsRequest(resources=[resource], validate_only=flags.get("validate_only", False))
        self._write_down(what, self.player.call(ApiKey.ALTER_CONFIGS, flags.get("version", 2), request))

    def _write_down(self, what: str, answer: Any) -> None:
        sent = [[line.error_code, line.resource_type, self.names(line.resource_name)] for line in answer.responses]
        self.player.write_down(what, sent)
        self.show(what)


def script(play: TrioPlayer) -> None:
    asking = Asking(play)
    _described(asking)
    for version in range(2):
        _incremental(asking, version)
    _refused(asking)
    _values(asking)
    for version in range(3):
        _replaced(asking, version)


def _described(asking: Asking) -> None:
    for what, name in asking.others.items():
        asking.player.write_down(f"describe {what}", asking.describe(name).error_code)
    asking.player.write_down("describe all, nothing set", asking.lines("", (1, 2, 3, 4, 5)))
    keys = [
        "log.segment.bytes",
        "log.cleaner.threads",
        "log.retention.hours",
        "message.max.bytes",
        "log.cleanup.policy",
    ]
    keys += ["auto.leader.rebalance.enable", "leader.imbalance.check.interval.seconds", "min.insync.replicas"]
    asking.player.write_down("describe A, nothing set", asking.lines(asking.me, (4, 5), keys))


def _incremental(asking: Asking, version: int) -> None:
    def change(what: str, *changes: Any, **flags: Any) -> None:
        asking.change(f"v{version}: {what}", None, *changes, version=version, **flags)

    asking.own = {LEADER: "1000000"}
    change("set a rate", (LEADER, SET, "1000000"))
    asking.shared = {LEADER: "2000000", FOLLOWER: "3000000"}
    asking.change(
        f"v{version}: set rates of all", "", (LEADER, SET, "2000000"), (FOLLOWER, SET, "3000000"), version=version
    )
    change("only checked", (FOLLOWER, SET, "77"), validate_only=True)
    change("only checked, wrong", (FOLLOWER, SET, "fast"), validate_only=True)
    asking.own = {}
    change("delete", (LEADER, DELETE, None))
    change("delete again", (LEADER, DELETE, None))
    asking.own = {FOLLOWER: "0"}
    change("set to nothing at all", (FOLLOWER, SET, "0"))
    change("nothing")
    change("one right, one static", (LEADER, SET, "5"), ("num.partitions", SET, "3"))
    change("a key twice", (LEADER, SET, "5"), (LEADER, SET, "6"))
    asking.own = {}
    change("delete the other", (FOLLOWER, DELETE, None), (LEADER, DELETE, None))
    asking.shared = {}
    asking.change(
        f"v{version}: delete those of all", "", (LEADER, DELETE, None), (FOLLOWER, DELETE, None), version=version
    )


def _refused(asking: Asking) -> None:
    for what, name in asking.others.items():
        asking.change(f"set at {what}", name, (LEADER, SET, "5"))
        asking.replace(f"replace at {what}", name, (LEADER, "5"))
    for key in (
        "broker.id",
        "num.partitions",
        "replica.lag.time.max.ms",
        "log.retention.hours",
        "socket.request.max.bytes",
    ):
        asking.change(f"set {key}", None, (key, SET, "5"))
        asking.change(f"set {key} of all", "", (key, SET, "5"))
        asking.change(f"delete {key}", None, (key, DELETE, None))
    asking.change("delete an unknown key", None, ("no.such.key", DELETE, None))
    asking.change("delete an unknown key of all", "", ("no.such.key", DELETE, None))
    asking.change("an unknown operation", None, (LEADER, 9, "5"))
    asking.change("append to what is no list", None, ("log.retention.ms", APPEND, "5"))
    asking.change("subtract from what is no list", None, ("log.retention.ms", SUBTRACT, "5"))
    asking.change("an unknown key, only checked", None, ("no.such.key", SET, "5"), validate_only=True)
    asking.change("an unknown key of all, only checked", "", ("no.such.key", SET, "5"), validate_only=True)
    asking.replace("an unknown key instead, only checked", None, ("no.such.key", "5"), validate_only=True)
    for value in ("fast", "-1", "", "1.5", "9223372036854775808", None):
        asking.change(f"rate {value}", None, (LEADER, SET, value))
        asking.change(f"rate {value} for all", "", (LEADER, SET, value))
    for key, value in (
        ("log.retention.ms", "soon"),
        ("log.retention.ms", "0"),
        ("log.segment.bytes", "1"),
        ("log.cleanup.policy", "never"),
        ("log.message.timestamp.type", "Noon"),
        ("log.cleaner.min.cleanable.ratio", "1.5"),
        ("log.cleaner.threads", "0"),
        ("log.cleaner.dedupe.buffer.size", "1"),
        ("unclean.leader.election.enable", "maybe"),
        ("min.insync.replicas", "0"),
        ("message.max.bytes", "-1"),
        ("compression.type", "brotli"),
    ):
        asking.change(f"{key} {value}", None, (key, SET, value))


def _values(asking: Asking) -> None:
    """Values that take effect, and how they are shown over each other."""
    asking.shared = {"log.retention.ms": "200000", "unclean.leader.election.enable": "true"}
    asking.change("set for all", "", *((key, SET, value) for key, value in asking.shared.items()))
    asking.own = {"log.retention.ms": "100000", "message.max.bytes": "2000000", "log.cleaner.threads": "2"}
    asking.change("set over it", None, *((key, SET, value) for key, value in asking.own.items()))
    asking.own = {"log.retention.ms": "100000"}
    asking.change("take back", None, ("message.max.bytes", DELETE, None), ("log.cleaner.threads", DELETE, None))
    asking.own = {"log.cleanup.policy": "delete,compact"}
    asking.change("append", None, ("log.cleanup.policy", APPEND, "compact"), ("log.retention.ms", DELETE, None))
    asking.change("append again", None, ("log.cleanup.policy", APPEND, "compact"))
    asking.own = {"log.cleanup.policy": "compact"}
    asking.change("subtract", None, ("log.cleanup.policy", SUBTRACT, "delete"))
    asking.player.write_down("describe one key", asking.lines(asking.me, (1, 2, 3, 4, 5), ["log.cleanup.policy"]))
    asking.player.write_down("describe an unknown key", asking.lines(asking.me, (1, 2, 3, 4, 5), ["no.such.key"]))
    asking.own = {}
    asking.change("delete the list", None, ("log.cleanup.policy", DELETE, None))
    asking.own = {"unclean.leader.election.enable": "false"}
    asking.change("set a flag over it", None, ("unclean.leader.election.enable", SET, "false"))
    asking.own = {}
    asking.change("delete the flag", None, ("unclean.leader.election.enable", DELETE, None))
    asking.shared = {}
    asking.replace("take back what is set for all", "")


def _replaced(asking: Asking, version: int) -> None:
    def replace(what: str, *values: tuple[str, str | None], **flags: Any) -> None:
        asking.replace(f"replace v{version}: {what}", None, *values, version=version, **flags)

    asking.own = {LEADER: "5", "log.retention.ms": "100000"}
    replace("two", (LEADER, "5"), ("log.retention.ms", "100000"))
    replace("only checked", (LEADER, "6"), validate_only=True)
    replace("nothing, only checked", validate_only=True)
    asking.own = {FOLLOWER: "7"}
    replace("another", (FOLLOWER, "7"))
    replace("a static key", ("num.partitions", "3"))
    replace("null", (FOLLOWER, None))
    replace("no number", (FOLLOWER, "fast"))
    replace("a key twice", (FOLLOWER, "8"), (FOLLOWER, "9"))
    asking.shared = {FOLLOWER: "9"}
    asking.replace(f"replace v{version}: of all", "", (FOLLOWER, "9"), version=version)
    asking.own = {}
    replace("nothing")
    asking.shared = {}
    asking.replace(f"replace v{version}: nothing of all", "", version=version)
