"""DescribeAcls, CreateAcls and DeleteAcls in their versions, right and wrong (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import Any, Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.differential.play import Player

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 2, 3, 4, 5, 6, 7
ALL, READ, WRITE, DESCRIBE = 2, 3, 4, 8
DENY, ALLOW = 2, 3
UNKNOWN, NONE_SUCH = 0, 99
VERSIONS: Final = range(4)


def script(player: Player) -> None:
    for version in VERSIONS:
        _Version(player, version).play()


def creation(**given: Any) -> AclCreation:
    usual = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": "User:diff",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**usual, **given})


def acl_filter(**given: Any) -> DeleteAclsFilter:
    """Returns a filter that matches all rules of the scripts but for the given fields."""
    usual = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return DeleteAclsFilter(**{**usual, **given})


def describing(**given: Any) -> DescribeAclsRequest:
    of = acl_filter(**given)
    return DescribeAclsRequest(**{name: getattr(of, name) for name in of.__slots__})


def in_order(answer: Any) -> Any:
    """Kafka lists sets."""
    for resource in getattr(answer, "resources", ()):
        resource.acls.sort(key=repr)
    for result in getattr(answer, "filter_results", ()):
        result.matching_acls.sort(key=repr)
    if hasattr(answer, "resources"):
        answer.resources.sort(key=repr)
    return answer


class _Version:
    def __init__(self, player: Player, version: int) -> None:
        self.player = player
        self.version = version

    def ask(self, what: str, api_key: ApiKey, message: Any) -> None:
        """Writes down the answer, or that the connection was closed.

        The owner asks: without a rule Apache Kafka lets everybody give rights, our brokers let nobody (decision 127).
        """
        label = f"{api_key.name.lower()} v{self.version}: {what}"
        assert self.player.address.owner is not None, "this script needs a superuser"
        address, login = self.player.address.owner
        silent = Player(address, login=login, normalise=lambda answer: answer)
        try:
            silent.ask(label, api_key, self.version, message)
        finally:
            silent.close()
        answer = silent.answers[label]
        if isinstance(answer, str):
            self.player.write_down(label, answer)
        else:
            self.player.write_down_answer(label, in_order(answer))

    def create(self, what: str, *creations: AclCreation) -> None:
        self.ask(what, ApiKey.CREATE_ACLS, CreateAclsRequest(creations=list(creations)))

    def describe(self, what: str, **given: Any) -> None:
        self.ask(what, ApiKey.DESCRIBE_ACLS, describing(**given))

    def delete(self, what: str, *filters: DeleteAclsFilter) -> None:
        self.ask(what, ApiKey.DELETE_ACLS, DeleteAclsRequest(filters=list(filters)))

    def play(self) -> None:
        self._make()
        self._filter()
        self._wrong()
        self._remove()

    def _make(self) -> None:
        self.describe("nothing yet")
        self.create("none")
        self.create("one", creation())
        self.create("the same again, twice", creation(), creation())
        self.create(
            "several kinds",
            creation(operation=WRITE, permission_type=DENY, host="10.0.0.1"),
            creation(resource_name="*", principal="User:*"),
            creation(resource_type=GROUP, principal="User:other"),
            creation(resource_type=TRANSACTIONAL_ID, resource_name="tx", operation=ALL),
            creation(resource_type=USER, resource_name="u", operation=ALL),
        )
        if self.version:
            self.create("a prefix", creation(resource_name="ord", resource_pattern_type=PREFIXED))
        self.create("a principal of another type", creation(principal="Group:g"))
        self.create("a host that is none", creation(host="example.org"))
        self.create("an operation that the resource does not have", creation(resource_type=GROUP, operation=WRITE))

    def _filter(self) -> None:
        self.describe("everything")
        self.describe("topics", resource_type_filter=TOPIC)
        self.describe("a name", resource_name_filter="orders")
        self.describe("a name of groups", resource_type_filter=GROUP, resource_name_filter="orders")
        self.describe("a principal", principal_filter="User:other")
        self.describe("a host", host_filter="10.0.0.1")
        self.describe("what denies", permission_type=DENY)
        self.describe("an operation", operation=WRITE)
        self.describe("literal", pattern_type_filter=LITERAL)
        self.describe("the wildcard", resource_name_filter="*", pattern_type_filter=LITERAL)
        if self.version:
            self.describe("prefixed", pattern_type_filter=PREFIXED)
            self.describe("match", resource_name_filter="orders", pattern_type_filter=MATCH)
            self.describe(
                "match of topics", resource_type_filter=TOPIC, resource_name_filter="or", pattern_type_filter=MATCH
            )
            self.describe("match without a name", pattern_type_filter=MATCH)
        self.describe("of nobody", principal_filter="User:nobody")
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
            if self.version or field != "pattern_type_filter":
                self.describe(f"{field} unknown", **{field: UNKNOWN})
                self.describe(f"{field} of no kind", **{field: NONE_SUCH})

    def _wrong(self) -> None:
        right = creation(principal="User:right")
        self.create("another cluster", creation(resource_type=CLUSTER, resource_name="other"), right)
        self.create("no name", creation(resource_name=""), right)
        for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
            if not self.version and field == "resource_pattern_type":
                continue
            self.create(f"{field} unknown", creation(**{field: UNKNOWN}))
            self.create(f"{field} of no kind", creation(**{field: NONE_SUCH}))
            self.create(f"{field} any", creation(**{field: ANY}))
        if self.version:
            self.create("a pattern type of match", creation(resource_pattern_type=MATCH))
        self.create("a principal without a type", creation(principal="diff"))
        self.create("a principal without a name", creation(principal="User:"))
        self.create("no host", creation(host=""))
        self.describe("after the wrong ones", principal_filter="User:right")

    def _remove(self) -> None:
        self.delete("none")
        self.delete("of nobody", acl_filter(principal_filter="User:nobody"))
        self.delete("two filters that match the same", acl_filter(operation=WRITE), acl_filter(host_filter="10.0.0.1"))
        self.delete("unknown", acl_filter(operation=UNKNOWN))
        self.delete("the rest", acl_filter())
        self.describe("nothing left")
