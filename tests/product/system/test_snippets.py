"""The code that the console shows runs unedited against the instance it is shown for (design: Snippet).

Python and kcat always run; Java, the line for a shell and the file of settings for Java's clients where Kafka's jars
are. The others fetch their client library from their own registry, so they run when PENSTOCK_EXTRAS=1 says so and
their tools are here; `tests/component/console/test_snippet_syntax.py` parses them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from instances.views.connecting import CA_PATH
from instances.views.snippet_security import (
    CA_FILE,
    CLIENT_CERTIFICATE_FILE,
    CLIENT_KEY_FILE,
    CLIENT_KEYSTORE_FILE,
    MECHANISM,
    NO_SECURITY,
    ClientSecurity,
    Login,
    Tls,
    properties,
)
from instances.views.snippets import snippets
from tests.interop import jars
from tests.testkit.client_certificates import Authority
from tests.testkit.stack import Stack
from tests.testkit.tenancy import Caller, addresses, demo_tenant
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

RUN_TIMEOUT_S = 200
TOPICS, PRODUCER = "org.apache.kafka.tools.TopicCommand", "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
# With a letter and a mark that Java reads from a file of settings in another way than they are written.
NAME = "étl\\x"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>snippet</groupId>
<artifactId>snippet</artifactId><version>1</version><properties><maven.compiler.source>17</maven.compiler.source>
<maven.compiler.target>17</maven.compiler.target></properties><dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka-clients</artifactId><version>3.9.1</version></dependency></dependencies></project>"""


def call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def run_python(folder: Path, code: str) -> str:
    (folder / "snippet.py").write_text(code)
    return call(folder, sys.executable, "snippet.py")


def run_kcat(folder: Path, code: str) -> str:
    return call(folder, "bash", "-e", "-o", "pipefail", "-c", code)


def run_node(folder: Path, code: str) -> str:
    (folder / "snippet.js").write_text(code)
    call(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", "kafkajs")
    return call(folder, "node", "snippet.js")


def run_rust(folder: Path, code: str) -> str:
    call(folder, "cargo", "init", "--quiet", "--name", "snippet")
    call(folder, "cargo", "add", "--quiet", "rdkafka", "--features", "cmake-build,ssl")
    (folder / "src" / "main.rs").write_text(code)
    return call(folder, "cargo", "run", "--quiet")


def run_go(folder: Path, code: str) -> str:
    (folder / "main.go").write_text(code)
    call(folder, "go", "mod", "init", "snippet")
    call(folder, "go", "mod", "tidy")
    return call(folder, "go", "run", ".")


def run_csharp(folder: Path, code: str) -> str:
    call(folder, "dotnet", "new", "console", "--name", "snippet", "--output", ".")
    call(folder, "dotnet", "add", "package", "Confluent.Kafka")
    (folder / "Program.cs").write_text(code)
    return call(folder, "dotnet", "run")


def run_java(folder: Path, code: str) -> str:
    """Runs the class with Kafka's jars, else as a project of Maven that fetches them."""
    if os.environ.get(jars.JARS):
        (folder / "Main.java").write_text(code)
        return call(folder, *jars.java_with_jars(), "Main.java")
    source = folder / "src/main/java/Main.java"
    source.parent.mkdir(parents=True)
    source.write_text(code)
    (folder / "pom.xml").write_text(POM)
    plugin = "org.codehaus.mojo:exec-maven-plugin:3.5.0:java"
    return call(folder, "mvn", "-q", "compile", plugin, "-Dexec.mainClass=Main")


def run_shell(folder: Path, code: str) -> str:
    """Runs Kafka's own tools under the names in their archive."""
    for name, tool in (("producer", PRODUCER), ("consumer", CONSUMER)):
        script = folder / "bin" / f"kafka-console-{name}.sh"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {shlex.join(jars.java_with_jars())} {tool} "$@"\n')
        script.chmod(0o755)
    path = f"PATH={folder / 'bin'}:{os.environ['PATH']}"
    return call(folder, "env", path, "bash", "-e", "-o", "pipefail", "-c", code)


Runner = Callable[[Path, str], str]
RUNNERS: dict[str, tuple[str, Runner]] = {
    "python": (sys.executable, run_python),
    "kcat": ("kcat", run_kcat),
    "node": ("npm", run_node),
    "rust": ("cargo", run_rust),
    "go": ("go", run_go),
    "java": ("mvn", run_java),
    "csharp": ("dotnet", run_csharp),
    "shell": ("java", run_shell),
}
EXTRAS = ("node", "go", "java", "rust", "csharp")


def shown_code(bootstrap: str, language: str, security: ClientSecurity = NO_SECURITY) -> str:
    place = SimpleNamespace(bootstrap_servers=bootstrap)
    return next(snippet.code for snippet in snippets(place, "orders", security) if snippet.choice == language)


def skip_without(language: str) -> Runner:
    program, run = RUNNERS[language]
    has_library = language == "java" and os.environ.get(jars.JARS)
    if language in EXTRAS and not has_library and os.environ.get("PENSTOCK_EXTRAS") != "1":
        pytest.skip("fetches a client library from another registry: PENSTOCK_EXTRAS=1 runs it")
    if not has_library and shutil.which(program) is None:
        pytest.skip(f"the program {program} is not installed")
    if language == "shell":
        jars.java_with_jars()
    return run


def is_let_in(folder: Path, address: str, security: ClientSecurity) -> bool:
    client = AdminClient(
        {"bootstrap.servers": address, "security.protocol": security.protocol, "ssl.ca.location": str(folder / CA_FILE)}
        | ({"sasl.mechanism": MECHANISM, "sasl.username": security.login.username,
            "sasl.password": security.login.password} if security.login else {})
        | ({"ssl.certificate.location": str(folder / CLIENT_CERTIFICATE_FILE),
            "ssl.key.location": str(folder / CLIENT_KEY_FILE)} if security.has_client_certificate else {})
    )  # fmt: skip
    try:
        client.list_topics(timeout=5)
    except KafkaException:
        return False
    return True


def first_record(bootstrap: str, topic: str) -> tuple[bytes | None, bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        message = consumer.poll(20)
        assert message is not None, "nothing arrived"
        assert message.error() is None
        return message.key(), message.value()
    finally:
        consumer.close()


@pytest.mark.parametrize("language", RUNNERS)
def test_shown_snippets_run_unedited(stack: Stack, tmp_path: Path, language: str) -> None:
    run = skip_without(language)
    caller = demo_tenant(stack)
    instance = caller.instance(f"snippet-{language}")
    bootstrap = ",".join(addresses(instance))
    caller.topic(instance["id"], "orders", 3)
    printed = run(tmp_path, shown_code(bootstrap, language))

    assert "o-1" in printed and '{"total": 42}' in printed, "what it wrote it reads"
    assert first_record(bootstrap, "orders") == (b"o-1", b'{"total": 42}')
    caller.call("DELETE", f"/instances/{instance['id']}")


@pytest.mark.long("instances/views/snippets.py", "instances/views/snippet_security.py")
@pytest.mark.parametrize("kind", ["tls", "sasl_tls", "mtls"])
@pytest.mark.parametrize("language", RUNNERS)
def test_snippets_for_an_encrypted_route_run_unedited_too(
    stack: Stack, tmp_path: Path, language: str, kind: str
) -> None:
    run = skip_without(language)
    caller = demo_tenant(stack)
    instance = caller.instance(f"{kind.replace('_', '-')}-{language}")
    servers, security = encrypted_route(stack, caller, instance["id"], kind, tmp_path)
    printed = run(tmp_path, shown_code(servers, language, security))

    assert '{"total": 42}' in printed, "what it wrote it reads"
    assert first_record(",".join(addresses(instance)), "orders") == (b"o-1", b'{"total": 42}')
    caller.call("DELETE", f"/instances/{instance['id']}")


@pytest.mark.long("instances/views/snippet_security.py")
@pytest.mark.parametrize("kind", ["sasl_tls", "mtls"])
def test_the_file_of_settings_runs_unedited_with_kafkas_own_tools(stack: Stack, tmp_path: Path, kind: str) -> None:
    jars.java_with_jars()
    caller = demo_tenant(stack)
    instance = caller.instance(f"{kind.replace('_', '-')}-file")
    servers, security = encrypted_route(stack, caller, instance["id"], kind, tmp_path, NAME)
    file = tmp_path / "client.properties"
    file.write_text(properties(security), encoding="ascii")
    listed = jars.run(TOPICS, "--bootstrap-server", servers, "--command-config", str(file), "--list", folder=tmp_path)
    assert "orders" in listed.split()
    caller.call("DELETE", f"/instances/{instance['id']}")


def encrypted_route(
    stack: Stack, caller: Caller, instance_id: str, kind: str, folder: Path, name: str = "etl"
) -> tuple[str, ClientSecurity]:
    """Creates the route with a topic, a user and, if clients have certificates, one in `folder`; returns addresses and
    credentials once each broker accepts clients.
    """
    place = f"/instances/{instance_id}"
    caller.topic(instance_id, "orders", 3)
    made, answer = caller.call("POST", f"{place}/users", {"name": name, "superuser": True})
    assert made == 201, answer
    assert caller.call("POST", f"{place}/routes", {"name": "secure", "security": kind})[0] == 202
    secure = f"{place}/routes/secure"
    if kind == "mtls":
        authority = Authority.make("Acme CA")
        assert caller.call("PUT", f"{secure}/client-ca", {"ca_pem": authority.pem})[0] == 202
        put_files(authority, folder)
    eventually(lambda: caller.get(secure)["bootstrap_servers"] != "", within_s=30, what="the route has an address")
    eventually(lambda: caller.get(place)["status"]["phase"] == "running", within_s=30, what="the route is open")
    tls = Tls(stack.ready["console_url"].rstrip("/") + CA_PATH, has_client_certificate=kind == "mtls")
    security = ClientSecurity(Login(name, answer["secret"]["password"]) if kind == "sasl_tls" else None, tls)
    servers: str = caller.get(secure)["bootstrap_servers"]
    call(folder, "bash", "-e", "-c", security.ca_command)
    assert (folder / CA_FILE).read_text().startswith("-----BEGIN CERTIFICATE-----")
    for address in servers.split(","):  # each broker learns of the user within a second
        eventually(lambda at=address: is_let_in(folder, at, security), within_s=30, what=f"{address} lets clients in")
    return servers, security


def put_files(authority: Authority, folder: Path) -> None:
    """Writes a client's certificate and key under the names on the page."""
    both = authority.client(folder, "etl").read_text()
    key, begin, certificate = both.partition("-----BEGIN CERTIFICATE-----")
    for name, text in (
        (CLIENT_KEY_FILE, key), (CLIENT_CERTIFICATE_FILE, begin + certificate), (CLIENT_KEYSTORE_FILE, both),
    ):  # fmt: skip
        (folder / name).write_text(text)
