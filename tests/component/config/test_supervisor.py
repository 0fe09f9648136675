"""The supervisor's decisions, without starting the product."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.infra.child_environment import RUN_VARIABLE
from brokers.infra.process_identity import identity_of
from config.embedded.process import Child, StartFailed, free_port, outgoing_ports
from config.environment import BASE_DIR
from config.supervisor import preflight, services
from config.supervisor.external import check as check_external
from config.supervisor.options import DownOptions, UpOptions, parse
from config.supervisor.progress import StartProgress
from config.supervisor.ready import DemoInstance, Ready, ReadyLogin, ReadyTenant, SaslLogin, down_command
from config.supervisor.run_processes import RunProcesses
from config.supervisor.state import PORTS_FILE, RUN_FILE, AlreadyRunning, StateDirectory, write_private_json
from config.supervisor.watch import BACKOFF_FIRST_S, BACKOFF_MAX_S, HEALTHY_AFTER_S, Stage, Watch, next_backoff_s
from tests.testkit.waiting import eventually


def test_defaults_are_the_published_ports(tmp_path: Path) -> None:
    options = parse(["up", "--state-dir", str(tmp_path)])
    assert isinstance(options, UpOptions)
    assert (options.http_port, options.port_base, options.brokers, options.demo) == (8000, 19000, 3, True)
    assert list(options.internal_ports) == [18001, 18002, 18003]
    assert list(options.admin_ports) == [18101, 18102, 18103]


@given(
    http_port=st.integers(1, 65_535),
    brokers=st.integers(1, 32),
    port_base=st.integers(2_100, 60_000),
    demo=st.booleans(),
)
def test_options_say_the_same_as_the_command_line(http_port: int, brokers: int, port_base: int, demo: bool) -> None:
    options = UpOptions(
        state_dir=Path("/var/tmp/x"), http_port=http_port, brokers=brokers, port_base=port_base, demo=demo
    )
    assert parse(options.arguments()) == options


@pytest.mark.parametrize("words", [["--brokers", "0"], ["--brokers", "many"], ["--http-port", "70000"], ["--nope"]])
def test_a_wrong_flag_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["up", *words])
    assert words[0] in capsys.readouterr().err


def test_down_needs_only_the_state_directory(tmp_path: Path) -> None:
    assert parse(["down", "--state-dir", str(tmp_path)]) == DownOptions(state_dir=tmp_path)


def test_a_second_start_on_the_same_state_is_refused_with_the_process(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.prepare()
    with state.lock():
        assert state.holder() == os.getpid()
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}") as refusal:
            state.lock()
        assert "manage.py down" in refusal.value.next_step
    assert state.holder() is None


def test_a_python_without_our_packages_says_which_one_has_them() -> None:
    command = [sys.executable, "-S", str(BASE_DIR / "manage.py"), "up", "--help"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30, env={}, check=False)
    assert refused.returncode == 2
    assert "Next step: make setup, and then .venv/bin/python manage.py" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_command_that_stops_it_can_be_copied_as_it_is(tmp_path: Path) -> None:
    state_dir = tmp_path / "with a space"
    words = shlex.split(down_command(state_dir))
    stopped = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert stopped.stdout.strip() == f"Nothing runs on {state_dir}."


def test_an_unwritable_state_directory_is_explained(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with pytest.raises(StartFailed, match="cannot be written") as refusal:
        StateDirectory(blocked / "state").prepare()
    assert "--state-dir" in refusal.value.next_step


def test_a_port_is_kept_between_starts_while_it_is_free(tmp_path: Path) -> None:
    state, options = StateDirectory(tmp_path), UpOptions(state_dir=tmp_path)
    port = state.port("redis", options)
    assert state.port("redis", options) == port
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        assert state.port("redis", options) != port


def test_services_have_no_port_that_an_outgoing_connection_may_hold_at_the_next_start(tmp_path: Path) -> None:
    state, options = StateDirectory(tmp_path), UpOptions(state_dir=tmp_path)
    chosen = {state.port("redis", options), state.port("zookeeper", options)}
    assert len(chosen) == 2
    assert not chosen & set(outgoing_ports())
    assert not chosen & options.ports_wanted


def test_a_state_directory_with_a_port_for_outgoing_connections_is_given_another_one(tmp_path: Path) -> None:
    write_private_json(tmp_path / PORTS_FILE, {"redis": outgoing_ports()[100], "zookeeper": outgoing_ports()[200]})
    state, options = StateDirectory(tmp_path), UpOptions(state_dir=tmp_path)
    port = state.port("redis", options)
    assert port not in outgoing_ports()
    assert state.port("redis", options) == port


def test_the_first_tenant_port_stays_what_the_first_start_was_given(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.resolve_port_base(19_000)
    state.resolve_port_base(29_000)
    assert state.resolved_port_base(29_000) == 19_000


def test_a_taken_port_names_its_holder(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(StartFailed, match=rf"Port {port}, .* is taken by process {os.getpid()}") as refusal:
            preflight.check(UpOptions(state_dir=tmp_path, http_port=port))
    assert "--http-port" in refusal.value.next_step


@pytest.mark.parametrize(
    ("variable", "scheme"),
    [("DATABASE_URL", "postgres://u:pass-word@"), ("REDIS_URL", "redis://:pass-word@"), ("ZOOKEEPER_URL", "")],
)
def test_a_wrong_address_is_one_sentence_without_the_password(variable: str, scheme: str) -> None:
    with pytest.raises(StartFailed, match=f"{variable} points at") as refusal:
        check_external(variable, f"{scheme}127.0.0.1:{free_port()}")
    assert "pass-word" not in refusal.value.detail
    assert variable in refusal.value.next_step


@pytest.mark.parametrize("content", [None, "", "no-password", "control:"])
def test_credentials_for_zookeeper_that_cannot_be_used_are_said_before_anything_starts(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "control"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("PENSTOCK_ZOOKEEPER_CONTROL_FILE", str(file))
    with pytest.raises(StartFailed, match="PENSTOCK_ZOOKEEPER_CONTROL_FILE does not name a file") as refusal:
        services._guard_foreign("127.0.0.1:1")
    assert "PENSTOCK_ZOOKEEPER_BROKER_FILE" in refusal.value.next_step


def test_processes_left_by_a_killed_supervisor_are_ended(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    child = subprocess.Popen(sleeper)
    grandchild = subprocess.Popen(sleeper, env={**os.environ, RUN_VARIABLE: "run-1"})
    stranger = subprocess.Popen(sleeper)
    try:
        state.record_run("run-1", {"agent": child.pid})
        processes = state.run_processes()
        eventually(lambda: {process.pid for process in processes.members()} == {child.pid, grandchild.pid})
        assert processes.end(grace_period_s=0)
        assert not processes.members()
        assert stranger.poll() is None
    finally:
        for process in (child, grandchild, stranger):
            process.kill()
            process.wait()


def test_a_deaf_leftover_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("config.supervisor.run_processes.TERMINATE_WAIT_S", 0.2)
    program = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
    deaf = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, RUN_VARIABLE: "run-2"}, stdout=subprocess.PIPE
    )
    assert deaf.stdout is not None
    with deaf.stdout:
        assert deaf.stdout.readline() == b"up\n"
    assert RunProcesses("run-2").end(grace_period_s=0)
    assert deaf.wait(5) == -9


def test_a_reused_process_id_is_not_a_leftover(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        boot, born = identity_of(stranger.pid).split()
        assert not RunProcesses("run-3", ((stranger.pid, f"{boot} {int(born) - 10}"),)).members()
        assert not RunProcesses("run-3", ((stranger.pid, f"another-boot {born}"),)).members()
        assert RunProcesses("run-3", ((stranger.pid, f"{boot} {born}"),)).members()
    finally:
        stranger.kill()
        stranger.wait()


def test_children_are_known_after_the_clock_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        state.record_run("run-4", {"postgres": child.pid})
        started_at_s = psutil.Process(child.pid).create_time()
        # All times of processes are counted from the start of the machine, which moves with the clock.
        monkeypatch.setattr(psutil.Process, "create_time", lambda _self: started_at_s - 3_600)
        assert [process.pid for process in state.run_processes().members()] == [child.pid]
    finally:
        child.kill()
        child.wait()


def test_children_in_a_note_of_an_earlier_version_are_known(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        noted = {"run": "run-5", "children": {"postgres": [child.pid, psutil.Process(child.pid).create_time()]}}
        write_private_json(tmp_path / RUN_FILE, noted)
        assert [process.pid for process in StateDirectory(tmp_path).run_processes().members()] == [child.pid]
    finally:
        child.kill()
        child.wait()


def test_private_files_are_for_their_owner(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    write_private_json(file, {"a": 1})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@given(previous_s=st.floats(0, 60), lived_s=st.floats(0, 600))
def test_backoff_grows_and_is_bounded(previous_s: float, lived_s: float) -> None:
    wait_s = next_backoff_s(previous_s, lived_s)
    assert BACKOFF_FIRST_S <= wait_s <= BACKOFF_MAX_S or 0 < previous_s < BACKOFF_FIRST_S
    if lived_s >= HEALTHY_AFTER_S:
        assert wait_s == BACKOFF_FIRST_S


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_dead_child_is_started_again_after_its_backoff_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    noted: list[dict[str, int]] = []
    watch = Watch(progress=StartProgress(), on_change=noted.append, clock=clock)
    child = Child(
        name="web",
        command=(sys.executable, "-c", "import signal; signal.pause()"),
        log_file=tmp_path / "web.log",
    )
    child.start()
    watch.add(child, Stage.PROGRAM)
    first = child.process
    assert first is not None
    first.kill()
    eventually(lambda: child.exit_code is not None)
    watch.tick()
    assert "web ended with code -9" in capsys.readouterr().out
    watch.tick()
    assert child.process is first
    clock.now_s += BACKOFF_FIRST_S
    watch.tick()
    assert child.process is not first
    assert "web started again" in capsys.readouterr().out
    assert noted[-1] == {"web": child.process.pid}
    assert watch.stop() == []
    assert noted[-1] == {}


def test_programs_are_stopped_before_the_services_they_need(tmp_path: Path) -> None:
    script = "import signal, sys; signal.signal(15, lambda *_: (print('bye', {name!r}, flush=True), sys.exit(0)));"
    log_file = tmp_path / "both.log"
    watch = Watch(progress=StartProgress(), on_change=lambda _pids: None)
    for name, stage in (("service", Stage.SERVICE), ("program", Stage.PROGRAM)):
        code = script.format(name=name) + "print('up', flush=True); signal.pause()"
        child = Child(name=name, command=(sys.executable, "-c", code), log_file=log_file)
        child.start()
        watch.add(child, stage)
    eventually(lambda: log_file.read_text().count("up") == 2)
    assert watch.stop() == []
    assert log_file.read_text().split("up\n")[-1].splitlines() == ["bye program", "bye service"]


def ready(*, demo: bool) -> Ready:
    login = ReadyLogin(username="demo@penstock.example", password="p w")
    return Ready(
        console_url="http://127.0.0.1:8000",
        operator=ReadyLogin(username="operator@penstock.example", password="secret"),
        operator_token="pst_o",
        tenant=ReadyTenant(slug="demo-a1", token="pst_x", login=login) if demo else None,
        instance=DemoInstance(id="ins-7k2m9qxa", bootstrap_servers="127.0.0.1:19000,127.0.0.1:19001", topic="hello")
        if demo
        else None,
    )


def test_the_ready_file_has_the_published_keys() -> None:
    assert ready(demo=True).as_json() == {
        "console_url": "http://127.0.0.1:8000",
        "api_url": "http://127.0.0.1:8000/api/v1/",
        "operator": {"username": "operator@penstock.example", "password": "secret", "token": "pst_o"},
        "tenant": {"slug": "demo-a1", "token": "pst_x", "username": "demo@penstock.example", "password": "p w"},
        "instance": {
            "id": "ins-7k2m9qxa",
            "bootstrap_servers": "127.0.0.1:19000,127.0.0.1:19001",
            "sasl": None,
        },
    }


def test_an_instance_that_clients_sign_in_to_shows_with_whom() -> None:
    login = SaslLogin(mechanism="SCRAM-SHA-512", username="demo", password="p'w")
    shown = ready(demo=True)
    assert shown.instance is not None
    signed = replace(shown, instance=replace(shown.instance, sasl=login))
    assert signed.as_json()["instance"]["sasl"] == {
        "mechanism": "SCRAM-SHA-512", "username": "demo", "password": "p'w", "security_protocol": "SASL_PLAINTEXT",
        "ca_file": None,
    }  # fmt: skip
    text = signed.as_text(elapsed_s=1, state_dir=Path("var"))
    assert "demo  /  p'w   (SCRAM-SHA-512)" in text
    for command in signed.commands():
        words = shlex.split(command.partition("| ")[2] or command)
        assert words[words.index("-S") :][:8] == [
            "-S", "SASL_PLAINTEXT", "-M", "SCRAM-SHA-512", "-U", "demo", "-P", "p'w",
        ]  # fmt: skip


def test_commands_of_an_encrypted_instance_name_the_certificate_to_trust() -> None:
    login = SaslLogin(
        mechanism="SCRAM-SHA-512", username="demo", password="pw", security_protocol="SASL_SSL",
        ca_file=Path("/state of mine/secrets/tls/ca.pem"),
    )  # fmt: skip
    shown = ready(demo=True)
    assert shown.instance is not None
    encrypted = replace(shown, instance=replace(shown.instance, sasl=login))
    for command in encrypted.commands():
        words = shlex.split(command.partition("| ")[2] or command)
        at = words.index("-S")
        assert words[at : at + 2] == ["-S", "SASL_SSL"]
        assert words[at + 8 : at + 10] == ["-C", "ssl_cafile=/state of mine/secrets/tls/ca.pem"]
    assert encrypted.as_json()["instance"]["sasl"]["ca_file"] == "/state of mine/secrets/tls/ca.pem"


def test_without_a_demo_the_block_has_no_tenant() -> None:
    assert ready(demo=False).as_json()["tenant"] is None
    text = ready(demo=False).as_text(elapsed_s=1, state_dir=Path("var"))
    assert "kafka.producer" not in text
    assert "/operator/" in text


def test_the_block_says_how_to_stop_what_has_no_terminal() -> None:
    shown = ready(demo=True)
    text = shown.as_text(elapsed_s=1, state_dir=Path("/elsewhere"))
    assert "Ctrl-C stops everything." in text
    assert "Authorization: Bearer pst_o   (operator)" in text
    text = shown.as_text(elapsed_s=1, state_dir=Path("/elsewhere"), is_in_background=True)
    assert "Ctrl-C" not in text
    assert f"Stop everything with: {down_command(Path('/elsewhere'))}" in text
    detached = parse(["up", "--detach", "--state-dir", "/elsewhere"])
    assert isinstance(detached, UpOptions)
    inside = parse(detached.arguments())
    assert isinstance(inside, UpOptions)
    assert (inside.detach, inside.is_in_background) == (False, True)
    attached = parse(["up", "--state-dir", "/elsewhere"])
    assert isinstance(attached, UpOptions)
    assert not attached.is_in_background
