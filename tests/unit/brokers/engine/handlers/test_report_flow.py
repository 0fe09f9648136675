"""Reports of brokers to the flow master: only brokers may send them, and the largest one takes little time."""

from __future__ import annotations

from time import perf_counter

from brokers.engine.assembly import bandwidth_report
from brokers.engine.assembly.flow_control import LINES_PER_REPORT_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import FlowLine, ReportFlowRequest
from tests.unit.brokers.engine.handlers.conftest import MINE, House

BUSY_S_MAX = 0.1


def line(instance_id: str, key: str, layout_basis: int) -> FlowLine:
    return FlowLine(
        instance_id=instance_id, direction=0, key=key, basis=layout_basis, limit_bps=10**6, share_bps=10**6,
        admitted_bps=10**6, wanted_bps=10**8,
    )  # fmt: skip


async def elected(house: House) -> int:
    broker = house.broker.broker
    await house.broker.until(lambda: broker.flow.is_flow_master)
    return broker.current.image.flow_master_epoch


async def test_nobody_reports_for_a_broker_in_the_name_of_an_instance(house: House) -> None:
    """Otherwise a tenant could take the bandwidth of others."""
    owner = await house.broker.internal_client(MINE)
    answer = await owner.call(ApiKey.REPORT_FLOW, 0, ReportFlowRequest(broker_id=1, lines=[]))
    assert (answer.error_code, answer.shares) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    await house.mine.send(ApiKey.REPORT_FLOW, 0, ReportFlowRequest(broker_id=1, lines=[]))
    assert await house.mine.is_closed()


async def test_the_only_broker_is_flow_master_and_answers_itself(house: House) -> None:
    assert await elected(house) == 1
    flow = house.broker.broker.flow
    await house.broker.until(lambda: flow.reports_answered > 0)


async def test_a_report_of_another_epoch_or_of_a_stranger_is_refused(house: House) -> None:
    services, epoch = house.broker.broker.services, await elected(house)
    stale = services.accounting.report_flow(
        ReportFlowRequest(broker_id=1, master_epoch=epoch + 1, sequence=1, lines=[])
    )
    assert stale.error_code == ErrorCode.NOT_CONTROLLER
    stranger = services.accounting.report_flow(
        ReportFlowRequest(broker_id=99, master_epoch=epoch, sequence=1, lines=[])
    )
    assert stranger.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_the_largest_report_takes_little_of_the_flow_masters_time(house: House) -> None:
    await house.topic()
    broker, epoch = house.broker.broker, await elected(house)
    await house.broker.until(lambda: bool(broker.bandwidth.layouts[MINE].leaders))
    basis = broker.bandwidth.layouts[MINE].basis(10**6)
    lines = [line(MINE, f"{number:032x}", basis) for number in range(LINES_PER_REPORT_MAX)]
    request = ReportFlowRequest(
        broker_id=1, broker_epoch=broker.session.broker_epoch, master_epoch=epoch, sequence=10**9, lines=lines
    )
    began_s = perf_counter()
    answer = broker.services.accounting.report_flow(request)
    assert perf_counter() - began_s < BUSY_S_MAX
    assert answer.error_code == 0
    assert 0 < len(answer.shares) < LINES_PER_REPORT_MAX, "of one instance so many clients are answered"


async def test_it_is_said_what_this_broker_has_of_an_instance(house: House) -> None:
    await house.topic()
    broker, epoch = house.broker.broker, await elected(house)
    await house.broker.until(lambda: bool(broker.bandwidth.layouts[MINE].leaders))
    shown = bandwidth_report.of_instance(broker.services, MINE, 7)
    assert shown["produce"]["bought_bps"] == shown["produce"]["share_bps"]
    assert shown["produce"]["leaders"] == 1
    assert shown["loop_used_ms"] == 7
    assert (shown["policy"], shown["reason"]) == ("adaptive", "static"), "one broker leads all of it"
    assert shown["flow_master"] == {"broker_id": 1, "epoch": epoch}
    names = {sample.name for sample in bandwidth_report.samples(broker.flow)}
    assert {"penstock_broker_is_flow_master", "penstock_broker_flow_reports"} <= names
