"""Ports for listeners stay outside of the kernel's range for outgoing connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from config.embedded import process
from config.embedded.process import StartFailed
from config.supervisor import outgoing
from config.supervisor.options import TENANT_PORTS, UpOptions
from config.supervisor.progress import StartProgress
from config.supervisor.state import StateDirectory
from config.supervisor.up import Supervisor

OUTGOING = "32768 60999\n"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets the range of ports of outgoing connections, and the reserved ones."""

    def message(of_connections: str, reserved: str = "\n") -> None:
        monkeypatch.setattr(process, "OUTGOING_PORTS_FILE", tmp_path / "range")
        monkeypatch.setattr(outgoing, "RESERVED_PORTS_FILE", tmp_path / "reserved")
        (tmp_path / "range").write_text(of_connections, encoding="ascii")
        (tmp_path / "reserved").write_text(reserved, encoding="ascii")

    return message


@pytest.mark.parametrize("port_base", [32_768, 40_000, 33_000, 60_000])
def test_tenant_ports_that_outgoing_connections_get_are_refused_with_what_to_choose(
    tmp_path: Path, kernel: Callable[[str, str], None], port_base: int
) -> None:
    kernel(OUTGOING, "\n")
    with pytest.raises(StartFailed, match=rf"--port-base {port_base} .*32768 to 60999") as refused:
        outgoing.check(UpOptions(state_dir=tmp_path, port_base=port_base), is_complete=False)
    assert "--port-base from 2100 to 22768" in refused.value.next_step
    assert "ip_local_reserved_ports" in refused.value.next_step


def test_the_refusal_comes_before_anything_was_kept(tmp_path: Path, kernel: Callable[[str, str], None]) -> None:
    kernel(OUTGOING, "\n")
    supervisor = Supervisor(UpOptions(state_dir=tmp_path / "state", port_base=40_000), StartProgress())
    with pytest.raises(StartFailed, match="outgoing connections"):
        supervisor.start()
    assert supervisor._lock is not None
    supervisor._lock.close()
    assert not StateDirectory(tmp_path / "state").has_resolved_port_base()


@pytest.mark.parametrize(
    ("port_base", "reserved"), [(19_000, "\n"), (22_768, "\n"), (40_000, "39001-49999\n"), (62_000, "\n")]
)
def test_ports_that_no_outgoing_connection_gets_are_accepted_in_silence(
    tmp_path: Path, kernel: Callable[[str, str], None], port_base: int, reserved: str
) -> None:
    kernel(OUTGOING, reserved)
    assert outgoing.check(UpOptions(state_dir=tmp_path, port_base=port_base), is_complete=False) == []
    assert outgoing.tenant_ports(port_base) == TENANT_PORTS


def test_addresses_that_were_given_out_are_kept_and_the_danger_is_said(
    tmp_path: Path, kernel: Callable[[str, str], None]
) -> None:
    kernel(OUTGOING, "\n")
    (warning,) = outgoing.check(UpOptions(state_dir=tmp_path, port_base=40_000), is_complete=True)
    assert "sysctl -w net.ipv4.ip_local_reserved_ports=39001-49999" in warning


def test_where_every_port_is_an_outgoing_one_it_starts_and_says_so(
    tmp_path: Path, kernel: Callable[[str, str], None]
) -> None:
    kernel("1024 65535\n", "\n")
    (*_, warning) = outgoing.check(UpOptions(state_dir=tmp_path), is_complete=False)
    assert "--port-base 19000" in warning


def test_a_console_port_that_outgoing_connections_get_is_said(
    tmp_path: Path, kernel: Callable[[str, str], None]
) -> None:
    kernel(OUTGOING, "\n")
    (warning,) = outgoing.check(UpOptions(state_dir=tmp_path, http_port=40_000), is_complete=False)
    assert "Port 40000 of the console" in warning
    assert "--http-port" in warning


def test_tenants_get_no_port_that_outgoing_connections_get(kernel: Callable[[str, str], None]) -> None:
    kernel(OUTGOING, "\n")
    assert outgoing.tenant_ports(29_000) == 3_768
    assert outgoing.tenant_ports(19_000) == TENANT_PORTS


@pytest.mark.parametrize(
    ("message", "ports"), [("\n", set()), ("8080,9000-9002\n", {8080, 9000, 9001, 9002}), ("x,1-y,7", {7})]
)
def test_the_list_of_reserved_ports_is_read_as_the_kernel_writes_it(message: str, ports: set[int]) -> None:
    assert outgoing.reserved_ports(message) == ports
