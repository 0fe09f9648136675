"""CPU cost of one second of reports to the flow master, as JSON lines: `python -m benchmarks.flow_reports`.

  python -m benchmarks.flow_reports [--instances 1000] [--brokers 3]

No server is started: the shares of one broker are measured, encoded, decoded and answered in this process. All
instances are either `idle` or `in_use`; every figure is milliseconds of CPU per second of wall time, of one broker or
of the flow master for all brokers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from time import process_time
from typing import Final

from brokers.engine.assembly.flow_control import LINES_PER_REPORT_MAX
from brokers.engine.flowmaster.ledger import FlowKey, FlowLedger
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import decode_request, encode_request
from brokers.engine.protocol.messages.broker_reports import FlowLine, ReportFlowRequest
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.charging import charge
from brokers.engine.throttling.flow_share import INTERVAL_MS, ReportedFlow
from brokers.engine.throttling.layout import Layout

BOUGHT_BPS: Final = 20_000_000
ROUNDS: Final = 5
FlowReports = list[tuple[FlowKey, ReportedFlow]]


def accounting_registry(instances: int, layout: Layout) -> AccountingRegistry:
    """Returns the accountings of broker 1 for a number of instances."""
    accountings = AccountingRegistry()
    for number in range(instances):
        accounting = accountings.get_or_create(f"ins-{number:08d}")
        accounting.shares.update(1, layout, BOUGHT_BPS, BOUGHT_BPS, 0)
    return accountings


def charge_requests(accountings: AccountingRegistry, now_ms: int) -> None:
    """Charges a request to both limiters of every instance."""
    for _, accounting in accountings:
        for limiter in (accounting.shares.produce, accounting.shares.consume):
            assert limiter is not None
            charge((limiter,), 10_000_000, now_ms)


def measured_reports(accountings: AccountingRegistry, now_ms: int) -> FlowReports:
    """Ends the measuring interval of all shares; returns the reports of those that have any."""
    return [
        ((instance_id, direction, ""), flow.report())
        for instance_id, accounting in accountings
        for direction, flow in enumerate(accounting.shares.flows)
        if flow.measure(now_ms)
    ]


def requests(lines: FlowReports) -> Iterator[ReportFlowRequest]:
    """Yields the requests that carry these reports."""
    for start in range(0, max(1, len(lines)), LINES_PER_REPORT_MAX):
        batch = lines[start : start + LINES_PER_REPORT_MAX]
        yield ReportFlowRequest(
            lines=[FlowLine(instance_id=key[0], direction=key[1], key=key[2], **flow._asdict()) for key, flow in batch]
        )


def measure_intervals(instances: int, brokers: int, *, in_use: bool) -> dict[str, object]:
    """Measures `ROUNDS` intervals; returns the figures of one."""
    layout = Layout.from_leaders(dict.fromkeys(range(1, brokers + 1), 1), None, "adaptive")
    accountings, ledger = accounting_registry(instances, layout), FlowLedger(0)
    measure_s = encode_s = response_s = 0.0
    lines: FlowReports = []
    frame_bytes = 0
    for number in range(1, ROUNDS + 1):
        now_ms = number * INTERVAL_MS
        if in_use:
            charge_requests(accountings, now_ms - INTERVAL_MS // 2)
        began_s = process_time()
        lines = measured_reports(accountings, now_ms)
        measure_s += process_time() - began_s
        began_s = process_time()
        frames = [encode_request(ApiKey.REPORT_FLOW, 0, request) for request in requests(lines)]
        encode_s += process_time() - began_s
        frame_bytes = sum(map(len, frames))
        began_s = process_time()
        for broker_id in range(1, brokers + 1):
            for frame in frames:
                decode_request(ApiKey.REPORT_FLOW, 0, frame, 0, len(frame))
            ledger.begin_report(broker_id, 1, number, now_ms)
            for key, flow in lines:
                ledger.handle_report(broker_id, key, flow, layout, now_ms)
            ledger.limits_to_review(broker_id)
        response_s += process_time() - began_s
    return {
        "instances": instances,
        "brokers": brokers,
        "instances_are": "in_use" if in_use else "idle",
        "lines": len(lines),
        "report_bytes": frame_bytes,
        "broker_ms": round((measure_s + encode_s) * 1000 / ROUNDS, 2),
        "flow_master_ms": round(response_s * 1000 / ROUNDS, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow_reports", description=__doc__)
    parser.add_argument("--instances", type=int, default=1_000)
    parser.add_argument("--brokers", type=int, default=3)
    args = parser.parse_args()
    for in_use in (False, True):
        print(json.dumps(measure_intervals(args.instances, args.brokers, in_use=in_use)), flush=True)


if __name__ == "__main__":
    main()
