"""Server-sent events of a stream of live messages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from instances.messages import limits
from tenants.live_response import event

RETRY_MS = 1_000
ERROR_EVENT = "trouble"


class LiveMessages:
    """Body of a `LiveResponse`: an event for each new message, formatted by `write`, and for each new error; heartbeats
    in between.
    """

    def __init__(self, stream: Any, write: Callable[[Any], str], now_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._write = write
        self._now_s = now_s
        self._last_sent_s = now_s()
        self._has_begun = False
        self._last_error_code = ""
        self.owner: str = stream.instance.tenant_id

    def step(self) -> tuple[bytes, float | None]:
        if not self._has_begun:
            self._has_begun = True
            head = f"retry: {RETRY_MS}\nid: {self._stream.token}\n: the end of the topic, or where you were\n\n"
            return head.encode(), limits.STREAM_STEP_SOON_S
        step = self._stream.step()
        parts = [event(self._write(message)) for message in step.messages]
        if parts:
            # The id goes with the last message: a client that loses the connection earlier reads the others again.
            parts[-1] = f"id: {step.token}\n{parts[-1]}"
        code = step.trouble.code if step.trouble is not None else ""
        if code and code != self._last_error_code:
            error = {"code": code, "detail": str(step.trouble.detail or step.trouble.title)}
            parts.append(event(json.dumps(error), name=ERROR_EVENT))
        self._last_error_code = code
        if not parts and self._now_s() - self._last_sent_s >= limits.STREAM_HEARTBEAT_S:
            parts = [": still here\n\n"]
        if parts:
            self._last_sent_s = self._now_s()
        return "".join(parts).encode(), step.wait_s

    def close(self) -> None:
        self._stream.close()
