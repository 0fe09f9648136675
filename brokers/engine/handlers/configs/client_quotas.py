"""DescribeClientQuotas and AlterClientQuotas of an instance's own users and client ids (QUO-71, QUO-72)."""

from __future__ import annotations

from typing import Final

from brokers.contract.acls import ResourceType
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.quota_image import QuotaEntity as Stored
from brokers.engine.handlers.common.changing import changing
from brokers.engine.handlers.common.read_your_writes import until_seen
from brokers.engine.handlers.common.turns import TurnBudget
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.required_rights import DENIAL_TEXTS
from brokers.engine.handlers.topics.topics import Wrong
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
    QuotaEntity,
    QuotaEntry,
    QuotaFilterComponent,
    QuotaValue,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
ENTRIES_MAX: Final = 1_000


async def describe_client_quotas(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        _check_right(call)
        turns = TurnBudget()
        wanted = await _components(request.components, turns)
        instance_id = _instance(call)
    except Wrong as wrong:
        return DescribeClientQuotasResponse(error_code=wrong.code, error_message=str(wrong), entries=None)
    if wanted.keys() == {IP}:
        return DescribeClientQuotasResponse(error_code=0, error_message=None, entries=[])
    entries = []
    for entity, limits in sorted(
        call.view.image.quotas.of_instance(instance_id).items(),
        key=lambda item: tuple(part or "" for part in (item[0].user, item[0].client_id)),
    ):
        if _matches(entity, wanted, request.strict):
            values = [QuotaValue(key=key, value=float(value)) for key, value in sorted(limits.items())]
            entries.append(QuotaEntry(entity=_wire(entity), values=values))
        await turns.take()
    return DescribeClientQuotasResponse(error_code=0, error_message=None, entries=entries)


def _check_right(call: Call) -> None:
    if denied := call.denial(ResourceType.CLUSTER):
        raise Wrong(denied, DENIAL_TEXTS[denied])


def _instance(call: Call) -> str:
    if call.view.instance_id is None:
        raise Wrong(ErrorCode.INVALID_REQUEST, "Client quotas belong to an instance.")
    return call.view.instance_id


def entries_described(response: DescribeClientQuotasResponse) -> int:
    """How long an answer is."""
    return len(response.entries or ())


async def _components(components: list[QuotaFilterComponent], turns: TurnBudget) -> dict[str, QuotaFilterComponent]:
    """By entity type. An empty filter matches everything (QUO-72)."""
    wanted: dict[str, QuotaFilterComponent] = {}
    for component in components:
        await turns.take()
        kind = component.entity_type
        if not kind:
            raise Wrong(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind in wanted:
            raise Wrong(ErrorCode.INVALID_REQUEST, f"Duplicate filter component entity type {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            raise Wrong(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise Wrong(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise Wrong(ErrorCode.INVALID_REQUEST, f"An exact match of {kind} needs a name")
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise Wrong(ErrorCode.INVALID_REQUEST, "Invalid entity filter component combination, IP cannot be combined")
    return wanted


def _matches(entity: Stored, wanted: dict[str, QuotaFilterComponent], strict: bool) -> bool:
    parts = {USER: (entity.has_user, entity.user), CLIENT_ID: (entity.has_client, entity.client_id)}
    if strict and any(present and kind not in wanted for kind, (present, _) in parts.items()):
        return False
    for kind, component in wanted.items():
        present, name = parts.get(kind, (False, None))
        if not present:
            return False
        if component.match_type == EXACT and (name is None or name != component.match):
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


def _wire(entity: Stored) -> list[QuotaEntity]:
    parts = []
    if entity.has_user:
        parts.append(QuotaEntity(entity_type=USER, entity_name=entity.user))
    if entity.has_client:
        parts.append(QuotaEntity(entity_type=CLIENT_ID, entity_name=entity.client_id))
    return parts


async def alter_client_quotas(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    results = []
    written: list[int | None] = []
    turns = TurnBudget()
    for number, entry in enumerate(request.entries):
        code, message = 0, None
        await turns.take()
        try:
            _check_right(call)
            if number >= ENTRIES_MAX:
                raise Wrong(ErrorCode.INVALID_REQUEST, f"At most {ENTRIES_MAX} entries in one request.")
            written.append(await _alter(call, entry, request.validate_only))
        except Wrong as wrong:
            code, message = wrong.code, str(wrong)
        except ClusterError as failure:
            code, message = failure.wire_code, str(failure)
        results.append(QuotaAlterationResult(error_code=code, error_message=message, entity=entry.entity))
    await until_seen(call.engine.current, written)
    return AlterClientQuotasResponse(entries=results)


async def _alter(call: Call, entry: QuotaAlteration, validate_only: bool) -> int | None:
    instance_id = _instance(call)
    entity = stored_entity(entry.entity)
    changes = {operation.key: None if operation.remove else operation.value for operation in entry.ops}

    async def alter(*, validate_only: bool) -> int | None:
        return await call.engine.store.alter_client_quotas(
            call.engine.current.image,
            instance_id=instance_id,
            entity=entity,
            changes=changes,
            validate_only=validate_only,
        )

    change = await alter(validate_only=True)
    if validate_only:
        return change
    async with changing(call, 1):
        return await alter(validate_only=False)


def stored_entity(parts: list[QuotaEntity]) -> Stored:
    """What an AlterClientQuotas entry is about; of a kind named twice the last one counts (observed).

    Raises:
        Wrong: no part, or a kind of part that an instance has no quotas for.
    """
    named: dict[str, str | None] = {part.entity_type: part.entity_name for part in parts}
    if not named:
        raise Wrong(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind in named:
        if kind == IP:
            raise Wrong(ErrorCode.INVALID_REQUEST, "Quotas by address are not offered; use the topic's allow-lists.")
        if kind not in (USER, CLIENT_ID):
            raise Wrong(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
    return Stored(USER in named, named.get(USER), CLIENT_ID in named, named.get(CLIENT_ID))
