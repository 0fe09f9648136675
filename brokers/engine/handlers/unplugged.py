"""Defaults for services that the assembly has not connected yet, since requests may arrive before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.flow import ReportFlowRequest, ReportFlowResponse
from brokers.engine.protocol.messages.pools import ChargePoolsRequest, ChargePoolsResponse
from brokers.engine.protocol.messages.storage import AllotStorageRequest, AllotStorageResponse


async def no_coordinator(
    transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Answers that no coordinator of transactions is available."""
    return dict.fromkeys(partitions, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def no_check(_effective: Mapping[str, str]) -> None:
    """Accepts all settings."""


def no_isr_change(partition: Partition) -> None:
    """Leaves the ISR as it is."""


def no_controller(_request: AllotStorageRequest) -> AllotStorageResponse:
    """Answers that this broker is not the controller."""
    return AllotStorageResponse(error_code=int(ErrorCode.NOT_CONTROLLER))


def no_flow_master(_request: ReportFlowRequest) -> ReportFlowResponse:
    """Answers that this broker is not the flow master."""
    return ReportFlowResponse(error_code=int(ErrorCode.NOT_CONTROLLER))


def no_pools(_request: ChargePoolsRequest) -> ChargePoolsResponse:
    """Answers that this broker is not the flow master."""
    return ChargePoolsResponse(error_code=int(ErrorCode.NOT_CONTROLLER))


def no_loop_charge(_instance_id: str, _began_s: float, _now_s: float) -> None:
    """Charges nothing."""


async def no_change_log() -> None:
    """Reads nothing."""
