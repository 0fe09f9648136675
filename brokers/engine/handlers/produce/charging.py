"""Charges of one Produce request of any version to its client, its topics and its instance (QUO-18, QUO-32)."""

from __future__ import annotations

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.session import Session
from brokers.engine.handlers.throttle_time import Reason, Throttle, apply_longest
from brokers.engine.throttling.charging import Limiter, charge
from brokers.engine.throttling.waits import Mute


class ProduceCharges:
    """Bytes that a Produce request sent and appended, and the throttle delay that results."""

    __slots__ = (
        "accepted_bytes", "acks", "checking_delay_ms", "client_id", "delay_ms", "is_admitted", "is_charged",
        "is_received_charged", "limiter", "mute", "now_ms", "session", "size_bytes", "topic_delay_ms", "topic_limiter",
    )  # fmt: skip

    def __init__(self, session: Session, client_id: str | None, size_bytes: int) -> None:
        self.session = session
        self.client_id = client_id
        self.size_bytes = size_bytes
        self.acks = 0
        # Wall-clock time of the last append.
        self.now_ms = 0
        self.accepted_bytes = 0
        # True once no earlier debt is left: from then on the request is charged even if its client disconnects.
        self.is_admitted = False
        self.is_charged = self.is_received_charged = False
        # Delay caused by the bytes received, and the limiter that caused it.
        self.delay_ms = 0
        self.limiter: Limiter | None = None
        # Set together with the delay that follows the response.
        self.mute: Mute | None = None
        # Delay for the thread time that checking or conversion took from the instance's share.
        self.checking_delay_ms = 0
        # Longest delay required by one of the topics, and the limiter of that topic.
        self.topic_delay_ms = 0
        self.topic_limiter: Limiter | None = None

    def charge_received(self, client: ClientContext) -> None:
        """Charges the bytes of the request before its records are appended, so that no other is admitted meanwhile."""
        self.is_received_charged = True
        if client.produce_limiters:
            now_ms = self.session.services.clock.monotonic_ms()
            self.delay_ms, self.limiter = charge(client.produce_limiters, self.size_bytes, now_ms)

    def charge_topic(self, limiter: Limiter, appended_bytes: int) -> None:
        """Charges bytes that were appended to a topic with a byte limit."""
        delay_ms, _ = charge((limiter,), appended_bytes, self.session.services.clock.monotonic_ms())
        if delay_ms > self.topic_delay_ms:
            self.topic_delay_ms, self.topic_limiter = delay_ms, limiter

    def charge_abandoned(self) -> None:
        """Charges the work done for a client that disconnected before the response, unless it is already charged."""
        if self.is_charged or not self.is_admitted:
            return
        client = self.session.client(self.client_id)
        if not self.is_received_charged:
            self.charge_received(client)
        self.now_ms = self.session.services.clock.now_ms()
        self.charge_appended(client)

    def charge_appended(self, client: ClientContext) -> int:
        """Charges the appended bytes and the request's time. Returns the client's delay after the response in ms."""
        self.is_charged = True
        services, accepted_bytes, now_ms = self.session.services, self.accepted_bytes, self.now_ms
        if accepted_bytes:
            self.session.accounting.totals.produce_bytes += accepted_bytes
            if client.accounting is not None:
                client.accounting.traffic.produced(accepted_bytes, now_ms)
        # A topic that stores records uncompressed may append far more bytes than were sent.
        more_bytes = accepted_bytes - self.size_bytes
        if more_bytes > 0:
            delay_ms, limiter = charge(client.produce_limiters, more_bytes, services.clock.monotonic_ms())
        else:
            delay_ms, limiter = self.delay_ms, self.limiter
        time_delay_ms, request_limiter = 0, client.request_limiter
        if request_limiter is not None:
            if self.acks == 0:
                self.session.leave_turn_uncharged()
            else:
                time_delay_ms = self.session.time_delay_ms(request_limiter)
        if not (delay_ms or time_delay_ms or self.topic_delay_ms or self.checking_delay_ms):
            return 0
        throttles = (
            Throttle(delay_ms, Reason.BYTES, limiter),
            Throttle(self.topic_delay_ms, Reason.BYTES, self.topic_limiter),
            Throttle(time_delay_ms, Reason.CLIENT_QUOTA, request_limiter),
            Throttle(self.checking_delay_ms, Reason.REQUEST_TIME),
        )
        delay_ms, self.mute = apply_longest(services, client, throttles)
        return delay_ms
