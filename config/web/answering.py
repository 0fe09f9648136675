"""Execution of a request by Django in a thread; the response goes to the connection's output buffer."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gunicorn.http import wsgi

from config.web.connection import WebConnection
from config.web.live import SteppedResponse
from config.web.refusals import refusal, status_of

if TYPE_CHECKING:
    from config.web.worker import Worker


def execute(worker: Worker, connection: WebConnection) -> bool:
    """Executes the request; returns True if the connection may be kept alive."""
    response = None
    try:
        response, environ = wsgi.create(
            connection.request, connection.outgoing, connection.peer, connection.server, worker.cfg
        )
        environ["wsgi.multithread"] = True
        if not worker.alive:
            response.force_close()
        started_at = datetime.now(UTC)
        parts = worker.wsgi(environ, response.start_response)
        live_body = getattr(parts, "live", None)
        if live_body is not None:
            response.force_close()
            connection.live = SteppedResponse(live_body, parts, response, environ)
            send_live_part(worker, connection)
            return False
        try:
            if isinstance(parts, environ["wsgi.file_wrapper"]):
                response.write_file(parts)
            else:
                for part in parts:
                    response.write(part)
            response.close()
            connection.outgoing.finish()
        finally:
            worker.log.access(response, connection.request, environ, datetime.now(UTC) - started_at)
            if hasattr(parts, "close"):
                parts.close()
        return not response.should_close()
    except OSError:
        worker.log.debug("the client is gone")
    except Exception as error:
        status = status_of(error)
        if status == 500:
            worker.log.exception("a request failed outside of Django")
        if response is None or not response.headers_sent:
            with contextlib.suppress(OSError):
                connection.outgoing.sendall(refusal(status))
                connection.outgoing.finish()
    return False


def send_live_part(worker: Worker, connection: WebConnection) -> None:
    """Sends the next part of a live response, and finishes it after the last part."""
    assert connection.live is not None
    is_last = True
    try:
        is_last = connection.live.step()
    except OSError:
        worker.log.debug("the client is gone")
    except Exception:
        worker.log.exception("a live response failed")
    if is_last:
        finish_live(worker, connection)


def finish_live(worker: Worker, connection: WebConnection) -> None:
    """Ends a live response, whether or not its connection is open; idempotent."""
    live, connection.live = connection.live, None
    if live is not None:
        connection.outgoing.finish_quietly()
        live.finish(worker, connection.request)
