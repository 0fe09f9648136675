"""DescribeClientQuotas and AlterClientQuotas of an instance's own users, client ids and addresses (QUO-71, QUO-72)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.quota_image import AnyEntity, IpEntity, QuotaImage
from brokers.engine.cluster.quota_image import QuotaEntity as Stored
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.topics.topics import ResourceError, check_right
from brokers.engine.handlers.zookeeper_change import wait_until_applied, zookeeper_change
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
from brokers.engine.scheduling.time_slice import TimeSlice
from quotas.addresses import canonical

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
ENTRIES_MAX: Final = 1_000
# Maximum number of entity parts, and of changes, in one entry; two parts and five changes have a meaning.
PARTS_MAX: Final = 100


async def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        check_right(context)
        time_slice = TimeSlice()
        components_by_type = await _check_components(request.components, time_slice)
        instance_id = _instance_id(context)
    except ResourceError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
    entries = []
    for entity, limits in _entities(context.view.image.quotas, instance_id):
        if _matches(_entity_parts(entity), components_by_type, request.strict):
            values = [QuotaValue(key=key, value=float(value)) for key, value in sorted(limits.items())]
            parts = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in _entity_parts(entity).items()]
            entries.append(QuotaEntry(entity=parts, values=values))
        await time_slice.pause()
    return DescribeClientQuotasResponse(error_code=0, error_message=None, entries=entries)


def _entities(quotas: QuotaImage, instance_id: str) -> Iterator[tuple[AnyEntity, Mapping[str, float]]]:
    """Yields all entities with limits, users and clients by name before addresses."""
    clients, addresses = quotas.of_instance(instance_id), quotas.of_addresses(instance_id)
    yield from sorted(clients.items(), key=lambda item: (item[0].user or "", item[0].client_id or ""))
    yield from sorted(addresses.items(), key=lambda item: item[0].address or "")


def _instance_id(context: RequestContext) -> str:
    if context.view.instance_id is None:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Client quotas belong to an instance.")
    return context.view.instance_id


async def _check_components(
    components: list[QuotaFilterComponent], time_slice: TimeSlice
) -> dict[str, QuotaFilterComponent]:
    """Returns the filter components by entity type. An empty filter matches everything (QUO-72)."""
    components_by_type: dict[str, QuotaFilterComponent] = {}
    for component in components:
        await time_slice.pause()
        kind = component.entity_type
        if not kind:
            raise ResourceError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind in components_by_type:
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"Duplicate filter component entity type {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            raise ResourceError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"An exact match of {kind} needs a name")
        components_by_type[kind] = component
    if IP in components_by_type and len(components_by_type) > 1:
        raise ResourceError(
            ErrorCode.INVALID_REQUEST, "Invalid entity filter component combination, IP cannot be combined"
        )
    return components_by_type


def _matches(
    parts: Mapping[str, str | None], components_by_type: dict[str, QuotaFilterComponent], strict: bool
) -> bool:
    if strict and not parts.keys() <= components_by_type.keys():
        return False
    for kind, component in components_by_type.items():
        if kind not in parts:
            return False
        name = parts[kind]
        if component.match_type == EXACT and name != _stored_name(kind, component.match):
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


def _stored_name(kind: str, name: str | None) -> str | None:
    """Returns the stored form of an entity name: a valid address is canonical, all other names are unchanged."""
    return _address(name) if kind == IP and name is not None else name


def _address(name: str) -> str:
    try:
        return canonical(name)
    except ValueError:
        return name


def _entity_parts(entity: AnyEntity) -> dict[str, str | None]:
    """Returns the parts of an entity by type; None is the default entity."""
    if isinstance(entity, IpEntity):
        return {IP: entity.address}
    parts = {}
    if entity.has_user:
        parts[USER] = entity.user
    if entity.has_client:
        parts[CLIENT_ID] = entity.client_id
    return parts


async def alter_client_quotas(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    results = []
    written: list[int | None] = []
    time_slice = TimeSlice()
    for number, entry in enumerate(request.entries):
        code, message = 0, None
        await time_slice.pause()
        try:
            check_right(context)
            if number >= ENTRIES_MAX:
                raise ResourceError(ErrorCode.INVALID_REQUEST, f"At most {ENTRIES_MAX} entries in one request.")
            if max(len(entry.entity), len(entry.ops)) > PARTS_MAX:
                message = f"An entry has at most {PARTS_MAX} parts of its entity and {PARTS_MAX} changes."
                raise ResourceError(ErrorCode.INVALID_REQUEST, message)
            written.append(await _alter(context, entry, request.validate_only))
        except ResourceError as error:
            code, message = error.code, str(error)
        except ClusterError as failure:
            code, message = failure.wire_code, str(failure)
        entity_parts = {part.entity_type: part.entity_name for part in entry.entity[:PARTS_MAX]}
        entity = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity_parts.items()]
        results.append(QuotaAlterationResult(error_code=code, error_message=message, entity=entity))
    await wait_until_applied(context.services.metadata.current, written)
    return AlterClientQuotasResponse(entries=results)


async def _alter(context: RequestContext, entry: QuotaAlteration, validate_only: bool) -> int | None:
    instance_id = _instance_id(context)
    entity = stored_entity(entry.entity)
    changes = {operation.key: None if operation.remove else operation.value for operation in entry.ops}

    async def alter(*, validate_only: bool) -> int | None:
        return await context.services.metadata.store.alter_client_quotas(
            context.services.metadata.current.image,
            instance_id=instance_id,
            entity=entity,
            changes=changes,
            validate_only=validate_only,
        )

    change = await alter(validate_only=True)
    if validate_only:
        return change
    async with zookeeper_change(context, 1):
        # A user who lost the right while waiting changes nothing.
        check_right(context)
        return await alter(validate_only=False)


def stored_entity(parts: list[QuotaEntity]) -> AnyEntity:
    """Returns the entity of an AlterClientQuotas entry; the last part of each type counts (observed).

    Raises:
        ResourceError: no part, a type that an instance has no quotas for, or an address combined with another part.
    """
    entity_parts: dict[str, str | None] = {part.entity_type: part.entity_name for part in parts}
    if not entity_parts:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind in entity_parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
    if IP in entity_parts:
        if len(entity_parts) > 1:
            raise ResourceError(ErrorCode.INVALID_REQUEST, "Invalid quota entity combination, IP cannot be combined")
        return IpEntity(_stored_name(IP, entity_parts[IP]))
    return Stored(USER in entity_parts, entity_parts.get(USER), CLIENT_ID in entity_parts, entity_parts.get(CLIENT_ID))
