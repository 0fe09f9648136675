"""Apache Kafka's own tools, run from its jars; tests that need them are skipped where there are none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

JARS = "PENSTOCK_APACHE_KAFKA_JARS"
TOOL_TIMEOUT_S = 120.0


def java_with_jars() -> list[str]:
    """The beginning of a command; skips the test where it cannot be run."""
    jars = os.environ.get(JARS)
    if not jars or not list(Path(jars).glob("kafka_2.1*.jar")):
        pytest.skip(f"{JARS} names no folder with Apache Kafka's jars")
    java = shutil.which("java")
    if java is None:
        pytest.skip("no Java here")
    return [java, "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]


def run(
    tool: str,
    *arguments: str,
    patience_s: float = TOOL_TIMEOUT_S,
    expected_code: int | None = 0,
    typed: str = "",
    folder: Path | None = None,
) -> str:
    """Runs a tool and returns its output, errors included. `typed` is its input; `folder` is its working directory."""
    done = subprocess.run(
        [*java_with_jars(), tool, *arguments],
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience_s,
        check=False,
        cwd=folder,
    )
    assert expected_code is None or done.returncode == expected_code, done.stdout
    return done.stdout


def login(file: Path, user: str, secret: str) -> Path:
    """A client's properties for the listener inside the cluster."""
    return properties(file, user, secret)


def properties(file: Path, user: str, secret: str, mechanism: str = "PLAIN", ca_file: Path | None = None) -> Path:
    """A client's properties; with TLS where there is an authority to trust."""
    login = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    module = f"org.apache.kafka.common.security.{login}"
    lines = [
        f"security.protocol={'SASL_PLAINTEXT' if ca_file is None else 'SASL_SSL'}",
        f"sasl.mechanism={mechanism}",
        f'sasl.jaas.config={module} required username="{user}" password="{secret}";',
    ]
    if ca_file is not None:
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={ca_file}"]
    file.write_text("\n".join(lines) + "\n")
    return file
