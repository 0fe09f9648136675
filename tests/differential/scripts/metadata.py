"""Metadata in every version: asked by name, by id, for all, for none, and for what cannot be."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.play import Player

PREFIX = "diff.metadata"
BAD_NAMES = {"slash": "a/b", "empty": "", "dot": ".", "dots": "..", "long": "x" * 250, "space": "a b", "umlaut": "ä"}


def script(player: Player) -> None:
    topic_id = player.make_topic(PREFIX, 3)
    player.make_topic(f"{PREFIX}.other")
    for version in range(13):
        _by_name(player, version)
        if version >= 10:
            _by_id(player, version, topic_id)


def _by_name(player: Player, version: int) -> None:
    def ask(what: str, *names: str, **flags: bool) -> None:
        flags.setdefault("allow_auto_topic_creation", False)
        player.ask(
            f"v{version}: {what}",
            ApiKey.METADATA,
            version,
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **flags),
        )

    ask("a topic", PREFIX)
    ask("two topics", f"{PREFIX}.other", PREFIX)
    ask("a topic twice", PREFIX, PREFIX)
    if version >= 1:
        ask("no topics")
    everything = MetadataRequest(topics=None if version else [], allow_auto_topic_creation=False)
    answer = player.call(ApiKey.METADATA, version, everything)
    listed = sorted(topic.name for topic in answer.topics if topic.name.startswith(PREFIX) and "auto" not in topic.name)
    player.write_down(f"v{version}: all topics, names of ours", listed)
    for kind, name in BAD_NAMES.items():
        ask(f"bad name: {kind}", name)
    if version >= 4:
        ask("an unknown topic", f"{PREFIX}.unknown")
        ask("an unknown topic beside a known one", f"{PREFIX}.unknown", PREFIX)
    if version >= 8:
        ask("operations of the topic", PREFIX, include_topic_authorized_operations=True)
    if 8 <= version <= 10:
        ask("operations of the cluster", PREFIX, include_cluster_authorized_operations=True)
    created = f"{PREFIX}.auto.{version}"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=created)])
    player.call(ApiKey.METADATA, version, request)
    player.until_led(created)
    player.ask(f"v{version}: a topic created by asking for it", ApiKey.METADATA, version, request)


def _by_id(player: Player, version: int, topic_id: bytes) -> None:
    def ask(what: str, *topics: MetadataRequestTopic) -> None:
        request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=False)
        player.ask(f"v{version}: {what}", ApiKey.METADATA, version, request)

    known = MetadataRequestTopic(topic_id=topic_id, name=None)
    unknown = MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
    ask("a topic by id", known)
    ask("an unknown id", unknown)
    ask("an id twice", known, known)
    ask("a known and an unknown id", known, unknown)
    ask("id and name", MetadataRequestTopic(topic_id=topic_id, name=PREFIX))
    ask("neither id nor name", MetadataRequestTopic(name=None))
    ask("by id and by name mixed", known, MetadataRequestTopic(name=f"{PREFIX}.other"))
