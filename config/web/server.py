"""Settings of gunicorn: `gunicorn -c python:config.web.server config.wsgi`."""

from __future__ import annotations

from config.web.lanes import THREADS
from config.web.limits import CONNECTIONS_MAX, IDLE_S_MAX, REQUEST_LINE_BYTES_MAX

# One process: pages mostly wait for PostgreSQL and the brokers, and in-process rates and caches exist only once.
workers = 1
worker_class = "config.web.worker.Worker"
threads = THREADS
worker_connections = CONNECTIONS_MAX
keepalive = int(IDLE_S_MAX)
limit_request_line = REQUEST_LINE_BYTES_MAX
graceful_timeout = 2
control_socket_disable = True
# Client address and scheme are determined in config.middleware only.
forwarded_allow_ips = ""
secure_scheme_headers: dict[str, str] = {}
