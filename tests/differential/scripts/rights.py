"""Rights that each API requires: requests without any right, with each one, with all, and with one denied.

Only the authorization errors of an answer are recorded. The named resources do not exist, except for coordinators, so
that no request waits and an unauthorized resource looks like a missing one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from brokers.contract.acls import CLUSTER_NAME, AclOperation, Permission, ResourceType
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.served_api import DENIALS
from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.fields import message_class
from brokers.engine.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from brokers.engine.records.batch import TRANSACTIONAL
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.scripts.acls import acl_filter, creation
from tests.product.system.attacks import filled
from tests.testkit.records import batch

NAME: Final = "rights"
ACL_VERSION: Final = 3
AUTHORISATION: Final = frozenset(DENIALS.values())
KINDS: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
# Higher ones are asked by brokers alone.
HIGHEST: Final = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
# They change what the others are asked about.
LEFT_OUT: Final = (ApiKey.API_VERSIONS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
NO_ID: Final = bytes(16)
BROKER, TRANSACTION = 4, 1

Right = tuple[AclOperation, ResourceType]


class Question(NamedTuple):
    label: str
    api_key: ApiKey
    version: int
    message: Any


def script(player: Player) -> None:
    owner = player.owner()
    _clear(owner)
    begin_script(player, NAME)
    for api_key in ADVERTISED_TENANT:
        if api_key in LEFT_OUT:
            continue
        for question in questions(api_key):
            for what, granted, denied in situations(api_key):
                _set(owner, granted, denied)
                answer = player.call(question.api_key, question.version, question.message)
                player.write_down(f"{question.label}: {what}", sorted(set(codes(answer)) & AUTHORISATION))
    _clear(owner)


def situations(api_key: ApiKey) -> Iterator[tuple[str, list[Right], list[Right]]]:
    """A name, what is granted, and what is denied besides."""
    required = API_TABLE[api_key].rights
    asked: list[Right] = [(operation, kind) for kind, operation in required.operations.items()]
    each = list(dict.fromkeys([*asked, *required.other_operations]))
    yield "without a right", [], []
    for right in each:
        yield f"{_named(right)} alone", [right], []
    if len(asked) > 1:
        yield "with all that is asked", asked, []
    for right in asked:
        yield f"{_named(right)} denied", asked, [right]
    everything: list[Right] = [(AclOperation.ALL, kind) for kind in KINDS]
    yield "with everything", everything, []
    for kind in required.operations:
        yield f"everything, but for ALL on {kind.name}", everything, [(AclOperation.ALL, kind)]


def _named(right: Right) -> str:
    return f"{right[0].name} on {right[1].name}"


def questions(api_key: ApiKey) -> Iterator[Question]:
    """In the lowest and the highest version that brokers of both kinds serve."""
    lowest, highest = ADVERTISED_TENANT[api_key]
    for version in sorted({lowest, HIGHEST.get(api_key, highest)}):
        label = f"{api_key.name.lower()} v{version}"
        message = filled(message_class(api_key, "request"), version, NAME, NO_ID)
        if api_key is ApiKey.FETCH and version >= 13:
            continue  # topics have ids there, and none is known
        yield Question(label, api_key, version, message)
        if api_key is ApiKey.PRODUCE and version >= 3:
            records = batch(b"x", attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
            message = filled(message_class(api_key, "request"), version, NAME, NO_ID)
            message.transactional_id = NAME
            message.topic_data[0].partition_data[0].records = records
            yield Question(f"{label} of a transaction", api_key, version, message)
        if api_key is ApiKey.INIT_PRODUCER_ID:
            message = filled(message_class(api_key, "request"), version, NAME, NO_ID)
            message.transactional_id = NAME
            yield Question(f"{label} of a transaction", api_key, version, message)
        if api_key is ApiKey.FIND_COORDINATOR and version >= 1:
            message = filled(message_class(api_key, "request"), version, NAME, NO_ID)
            message.key_type = TRANSACTION
            yield Question(f"{label} of a transaction", api_key, version, message)
        if api_key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            message = filled(message_class(api_key, "request"), version, "1", NO_ID)
            message.resources[0].resource_type = BROKER
            yield Question(f"{label} of a broker", api_key, version, message)
        if api_key is ApiKey.METADATA:
            message = filled(message_class(api_key, "request"), version, NAME, NO_ID)
            message.allow_auto_topic_creation = version >= 4
            message.topics[0].name = f"{NAME}-none"
            yield Question(f"{label} of what could be made", api_key, version, message)


def _set(owner: Player, granted: list[Right], denied: list[Right]) -> None:
    """Sets rules. Each resource type has one about another principal, so that nothing is allowed by default."""
    _clear(owner)
    somebody = [_acl((AclOperation.ALL, kind), principal="User:somebody") for kind in KINDS]
    grants = [_acl(right) for right in granted]
    denials = [replace_permission(_acl(right)) for right in denied]
    answer = owner.call(ApiKey.CREATE_ACLS, ACL_VERSION, CreateAclsRequest(creations=[*somebody, *grants, *denials]))
    assert not any(result.error_code for result in answer.results), answer


def _acl(right: Right, principal: str = "User:ANONYMOUS") -> Any:
    operation, kind = right
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else "*"
    return creation(resource_type=int(kind), resource_name=name, principal=principal, operation=int(operation))


def replace_permission(of: Any) -> Any:
    return replace(of, permission_type=int(Permission.DENY))


def _clear(owner: Player) -> None:
    answer = owner.call(ApiKey.DELETE_ACLS, ACL_VERSION, DeleteAclsRequest(filters=[acl_filter()]))
    assert not answer.filter_results[0].error_code, answer


def codes(message: Any) -> Iterator[int]:
    """All error codes of an answer."""
    for name in message.__slots__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else ():
            if hasattr(item, "__slots__"):
                yield from codes(item)
