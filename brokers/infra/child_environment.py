"""The environment variables of child processes: a list of names for each kind of process.

A secret in the environment of the parent process is passed only to children that use it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

# Identifies a run of the supervisor; its children are found by this variable.
RUN_VARIABLE: Final = "PENSTOCK_RUN"

# Variables that any program may need: paths and locale.
SYSTEM: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
    "MALLOC_ARENA_MAX", RUN_VARIABLE,
})  # fmt: skip
SYSTEM_PREFIXES: Final = ("LC_", "PYTHON")
JAVA: Final = frozenset({"JAVA_HOME", "JAVA_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"})
BROKER: Final = frozenset({"PENSTOCK_NATIVE", "PENSTOCK_NATIVE_DIR", "PENSTOCK_NATIVE_NOTE"})
COMPILER: Final = frozenset({"CC", "CFLAGS", "CPPFLAGS", "LDFLAGS"})
# The agent and the pipeline are Django programs without an HTTP server.
DJANGO: Final = frozenset({
    "DJANGO_SETTINGS_MODULE", "DATABASE_URL", "ZOOKEEPER_URL", "PENSTOCK_STATE_DIR", "PENSTOCK_PUBLIC_URL",
    "PENSTOCK_CONTROL_SECRET_FILE", "PENSTOCK_ZOOKEEPER_CONTROL_FILE", "PENSTOCK_ZOOKEEPER_BROKER_FILE",
    "PENSTOCK_TLS_DIR", "PENSTOCK_INTERNAL_TLS_DIR", "PENSTOCK_INTERNAL_SECURITY", "PENSTOCK_DEBUG",
    "PENSTOCK_ZOOKEEPER_CA_FILE", "PENSTOCK_ZOOKEEPER_CONTROL_CERTIFICATE_FILE",
    "PENSTOCK_ZOOKEEPER_BROKER_CERTIFICATE_FILE", "PENSTOCK_LOG_JSON", "PENSTOCK_LOG_LEVEL",
})  # fmt: skip
LIBPQ_PREFIX: Final = "PG"
# Keys of the bucket in which the lake may be.
LAKE_PREFIX: Final = "AWS_"
AGENT: Final = DJANGO | BROKER | COMPILER
SPARK_PREFIXES: Final = ("SPARK_", "PYSPARK_", "HADOOP_", "OPENBLAS_", "OMP_")
# Archives write to tenants' addresses. SECRET_KEY is excluded: it signs sessions, and this process reads data of
# tenants.
PIPELINE: Final = DJANGO | JAVA | {
    "REDIS_URL", "SPARK_MASTER", "PENSTOCK_SPARK_FROM_RECORDS", "PENSTOCK_SPARK_KEPT_MINUTES",
    "PENSTOCK_WORKER_SOFT_STOP_S", "PENSTOCK_ARCHIVE_ROOT", "PENSTOCK_LAKE_URL",
    "PENSTOCK_OUTBOUND_PRIVATE_ADDRESSES", "PENSTOCK_OUTBOUND_REFUSED_ADDRESSES", "PENSTOCK_OUTBOUND_CA_FILE",
}  # fmt: skip


def select_variables(
    names: Collection[str], prefixes: tuple[str, ...] = (), environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the variables of `environ` that are named or begin with a prefix, with the variables that any program may
    need.
    """
    all_prefixes = (*SYSTEM_PREFIXES, *prefixes)
    return {
        name: value
        for name, value in environ.items()
        if name in SYSTEM or name in names or name.startswith(all_prefixes)
    }


def system_variables() -> dict[str, str]:
    """Returns the variables of a third-party program."""
    return select_variables(())


def java_variables() -> dict[str, str]:
    """Returns the variables of a Java process."""
    return select_variables(JAVA)


def broker_variables() -> dict[str, str]:
    """Returns the variables of a broker; its further settings are in its settings file."""
    return select_variables(BROKER)


def agent_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of an agent, and of the compiler that it starts."""
    return select_variables(AGENT, (LIBPQ_PREFIX,), environ)


def pipeline_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the worker of the usage pipeline."""
    return select_variables(PIPELINE, (LIBPQ_PREFIX, LAKE_PREFIX, *SPARK_PREFIXES), environ)


@contextmanager
def as_spark_driver() -> Iterator[None]:
    """Restricts the environment while Spark's Java process is started: it inherits neither the database nor the queue.

    Only for a process in which no other thread reads the environment.
    """
    saved = dict(os.environ)
    allowed = select_variables(JAVA | {"PENSTOCK_STATE_DIR"}, SPARK_PREFIXES)
    try:
        for name in saved.keys() - allowed.keys():
            del os.environ[name]
        yield
    finally:
        os.environ.update(saved)
