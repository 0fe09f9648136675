"""gunicorn's settings: `gunicorn -c python:config.web.server config.wsgi`."""

from __future__ import annotations

from config.web.lanes import THREADS
from config.web.limits import CONNECTIONS_MAX, IDLE_S_MAX, REQUEST_LINE_BYTES_MAX

# One process: pages mostly wait for PostgreSQL and the brokers, and rates and caches are kept once.
workers = 1
worker_class = "config.web.worker.Worker"
threads = THREADS
worker_connections = CONNECTIONS_MAX
keepalive = int(IDLE_S_MAX)
limit_request_line = REQUEST_LINE_BYTES_MAX
graceful_timeout = 2
control_socket_disable = True
# Who may say what the client's address and scheme are is decided in one place, config.middleware.
forwarded_allow_ips = ""
secure_scheme_headers: dict[str, str] = {}
