"""Execution of a request by Django in a thread; the response goes to the connection's output buffer."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gunicorn.http import wsgi

from config.web.connection import Connection
from config.web.refusals import refusal, status_of

if TYPE_CHECKING:
    from config.web.worker import Worker


def answer(worker: Worker, one: Connection) -> bool:
    """Executes the request; returns True if the connection may be kept alive."""
    response = None
    try:
        response, environ = wsgi.create(one.request, one.outgoing, one.peer, one.server, worker.cfg)
        environ["wsgi.multithread"] = True
        if not worker.alive:
            response.force_close()
        begun = datetime.now(UTC)
        parts = worker.wsgi(environ, response.start_response)
        try:
            if isinstance(parts, environ["wsgi.file_wrapper"]):
                response.write_file(parts)
            else:
                for part in parts:
                    response.write(part)
            response.close()
            one.outgoing.finish()
        finally:
            worker.log.access(response, one.request, environ, datetime.now(UTC) - begun)
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
                one.outgoing.sendall(refusal(status))
                one.outgoing.finish()
    return False
