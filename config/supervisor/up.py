"""Start of the product in steps: services, schema, rows, programs, ready block."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import IO

from brokers.infra.child_environment import RUN_VARIABLE, system_variables
from brokers.native.notes import Build, Note
from config.embedded.kafka import find_jars
from config.embedded.process import Child, StartFailed, wait_until
from config.supervisor import outgoing, preflight, programs, services
from config.supervisor.options import UpOptions
from config.supervisor.probe import answers_ok
from config.supervisor.progress import StartProgress
from config.supervisor.ready import Ready
from config.supervisor.state import StateDirectory, require_writable, write_private_json
from config.supervisor.watch import Stage, Watch
from config.supervisor.watchdog import SupervisorWatchdog

PROGRAM_START_TIMEOUT_S = 60.0
RUN_NAME_BYTES = 8
LEFTOVERS_GRACE_PERIOD_S = 5.0
# Name of this machine in the table of hosts.
HOST_NAME = "local"


def modules_line(note: Note) -> str:
    """Returns a line about the modules that brokers run, and whether that will change."""
    if note.build is Build.COMPLETE:
        return "Brokers run compiled modules"
    if note.build is Build.PENDING:
        return "Brokers run plain modules; they are compiled behind the start and taken up one broker after the other"
    return f"Brokers run plain modules, which take more CPU: {note.reason}"


class Supervisor:
    """One run of the product on one state directory."""

    def __init__(self, options: UpOptions, progress: StartProgress) -> None:
        self.options = options
        self.progress = progress
        self.state = StateDirectory(options.state_dir)
        self.run = secrets.token_hex(RUN_NAME_BYTES)
        self.watch = Watch(
            progress=progress,
            on_change=lambda pids: self.state.record_run(self.run, pids),
            own_log=self.state.log_file("supervisor"),
        )
        self._watchdog: SupervisorWatchdog | None = None
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Starts everything; returns when the product is ready to use.

        Raises:
            StartFailed: with the reason and the next step. `stop` cleans up what was started.
        """
        self.state.prepare()
        self._lock = self.state.lock()
        self.state.require_whole()
        self._forget_ready_file()
        leftovers = self.state.run_processes().end(grace_period_s=LEFTOVERS_GRACE_PERIOD_S)
        if leftovers:
            self.progress.step(f"Ended what an earlier run had left: {', '.join(leftovers)}")
        self._keep_addresses()
        for warning in outgoing.check(self.options, is_complete=self.state.has_resolved_port_base()):
            self.progress.step(warning)
        preflight.check(self.options)
        if self.options.kafka:
            find_jars()
        self.state.tighten()
        services.ensure_secrets(self.state)
        os.environ[RUN_VARIABLE] = self.run
        plan = services.plan(self.options, self.state)
        os.environ.update(plan.environment())
        self.state.record_run(self.run, {})
        self._watchdog = SupervisorWatchdog(self.state, system_variables())
        self._start_services(plan)
        self._prepare_database()
        self._start_programs(plan)

    def _forget_ready_file(self) -> None:
        """Removes the ready file of a killed supervisor."""
        file = self.options.ready_file
        if file is None:
            return
        try:
            file.unlink(missing_ok=True)
            require_writable(file)
        except OSError as error:
            raise StartFailed(
                f"The ready file {file} cannot be written: {error.strerror or error}.",
                "Choose another one with --ready-file, or make its directory.",
            ) from error

    def _keep_addresses(self) -> None:
        if self.state.resolved_kafka(False) and not self.options.kafka:
            self.progress.step("Keeping the Apache Kafka of this state directory: --kafka stays")
            self.options = replace(self.options, kafka=True)
        port_base = self.state.resolved_port_base(self.options.port_base)
        if port_base != self.options.port_base:
            self.progress.step(f"Keeping the addresses of this state directory: --port-base stays {port_base}")
            self.options = replace(self.options, port_base=port_base)

    def stop(self) -> list[str]:
        """Stops everything that was started. Returns the names that had to be killed."""
        if self._lock is None:
            return []
        killed = self.watch.stop()
        killed += self.state.run_processes().end(grace_period_s=0)
        if self._watchdog is not None:
            self._watchdog.dismiss()
        if self.options.ready_file is not None:
            self.options.ready_file.unlink(missing_ok=True)
        return killed

    def _start_services(self, plan: services.Services) -> None:
        for service in plan.embedded:
            service.start()
            self.watch.add(service.child, Stage.SERVICE)
        self.state.write_addresses(plan.addresses)
        # Importing Django takes about as long as starting the services, so both happen in parallel.
        import django

        django.setup()
        for service in reversed(plan.embedded):
            self._wait_for(service.is_ready, service.child, services.START_TIMEOUT_S)
        names = ", ".join(service.child.name for service in plan.embedded) or "none embedded"
        external = f"; external: {', '.join(plan.external)}" if plan.external else ""
        self.progress.step(f"Services are up: {names}{external} (Java: {plan.java.origin})")

    def _prepare_database(self) -> None:
        from config.supervisor import schema

        applied = schema.migrate(self.progress.step)
        self.progress.step(f"Database schema is current ({applied} migrations applied)")

    def _start_programs(self, plan: services.Services) -> None:
        from brokers.agent.compiling import predicted_note
        from config.supervisor import seed

        environment = plan.environment()
        # Settled only now: a start that was refused before has assigned no address, so the ports may still change.
        self.state.resolve_port_base(self.options.port_base)
        # The critical path is agent, brokers, demo instance; the console is ready earlier.
        seed.ensure_fleet(self.options, HOST_NAME)
        self._start_child(programs.agent(self.state, environment, host=HOST_NAME))
        for host in seed.ensure_further_fleet(self.options, HOST_NAME):
            self._start_child(programs.agent(self.state, environment, host=host, name=f"agent-{host}"))
        self._start_child(programs.worker(self.state, environment))
        web = programs.web(self.state, environment, http_port=self.options.http_port)
        self._start_child(web)
        accounts = seed.ensure_accounts(self.state, with_demo=self.options.demo, say=self.progress.step)
        self.progress.step("Cluster, operator and demo rows are in place")
        self._wait(seed.brokers_serve, "the brokers", "agent")
        self.progress.step(f"{self.options.brokers} brokers serve")
        self.progress.step(modules_line(predicted_note()))
        if self.options.clusters > 1:
            self._wait(seed.clusters_are_formed, "the further clusters", "worker")
            self.progress.step(f"{self.options.clusters} clusters are formed")
        if plan.kafka is not None:
            self.state.resolve_kafka()
            seed.ensure_kafka_cluster(HOST_NAME, plan.kafka.bootstrap_servers, for_demo=self.options.demo)
            self._wait(seed.clusters_are_formed, "the gateway in front of Apache Kafka", "worker")
            self.progress.step(f"The gateway in front of Apache Kafka ({plan.kafka.bootstrap_servers}) serves")
        instance = None
        if accounts.tenant is not None:
            instance = seed.demo_instance(self.state, wait=self._wait)
            self.progress.step(f"Demo instance {instance.id} is running")
        self._wait_for(self._web_answers, web, PROGRAM_START_TIMEOUT_S)
        self.progress.step(f"Console answers on port {self.options.http_port}")
        self._start_child(programs.pipeline(self.state, environment))
        seed.release_connections()
        self._announce(
            Ready(
                console_url=plan.addresses["PENSTOCK_PUBLIC_URL"],
                operator=accounts.operator,
                operator_token=accounts.operator_token,
                tenant=accounts.tenant,
                instance=instance,
                kafka_bootstrap_servers=None if plan.kafka is None else plan.kafka.bootstrap_servers,
            )
        )

    def _announce(self, ready: Ready) -> None:
        elapsed_s = self.progress.elapsed_s
        is_in_background = self.options.is_in_background
        text = ready.as_text(elapsed_s=elapsed_s, state_dir=self.state.root, is_in_background=is_in_background)
        self.progress.block("\n" + text)
        if self.options.ready_file is not None:
            write_private_json(self.options.ready_file, ready.as_json())

    def _start_child(self, child: Child) -> None:
        child.start()
        self.watch.add(child, Stage.PROGRAM)

    def _wait_for(self, is_ready: Callable[[], bool], child: Child, timeout_s: float) -> None:
        waiting = self.progress.waiting(child.name, child.log_file)
        wait_until(is_ready, child=child, timeout_s=timeout_s, meanwhile=waiting)

    def _wait(self, is_done: Callable[[], bool], description: str, program: str) -> None:
        deadline = time.monotonic() + PROGRAM_START_TIMEOUT_S
        waiting = self.progress.waiting(description, self.state.log_file(program))
        while not is_done():
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"Waited {PROGRAM_START_TIMEOUT_S:g} s for {description} in vain.",
                    f"See {self.state.log_file(program)} and {self.state.logs}.",
                )
            self.watch.tick()
            waiting()
            time.sleep(0.05)

    def _web_answers(self) -> bool:
        return answers_ok("127.0.0.1", self.options.http_port, "/readyz")
