"""Units, Compose file and manifests: one table of roles, complete formats, and no secrets."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from brokers.infra.child_environment import agent_variables, pipeline_variables
from config.deployment import compose, kubernetes, systemd
from config.deployment.layout import STATE_DIR, DeploymentOrder
from config.deployment.roles import AGENT, AGENT_WITH_DATABASE, DEFAULT_ROLES, PIPELINE, ROLES, WEB, Installation
from config.supervisor import programs
from config.supervisor.state import StateDirectory
from tests.reference.environment import VARIABLES
from tests.unit.config.deployment import schemas

ALL = DeploymentOrder(roles=list(DEFAULT_ROLES), code="/opt/penstock", data_dirs=["/disk1", "/disk2"])
FORMATS = {"systemd": systemd.files, "compose": compose.files, "kubernetes": kubernetes.files}
# Those that belong to other programs, and are documented there.
FOREIGN_PREFIXES = ("AWS_", "JAVA_", "SPARK_")


def everything(wanted: DeploymentOrder = ALL) -> dict[str, str]:
    return {f"{kind}/{name}": text for kind, files in FORMATS.items() for name, text in files(wanted).items()}


def test_a_secret_is_written_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [variable.name for role in ALL.roles for variable in role.variables if variable.is_secret]
    for name in secrets:
        monkeypatch.setenv(name, f"planted-{name}")
    for name, text in everything().items():
        assert "planted" not in text, name
    assert {"DATABASE_URL", "REDIS_URL", "SECRET_KEY"} <= set(secrets)


@pytest.mark.parametrize("role", ROLES.values(), ids=list(ROLES))
def test_variables_are_documented_and_asked_for_by_every_format(role: Any) -> None:
    names = [variable.name for variable in role.variables]
    assert not [name for name in names if name not in VARIABLES and not name.startswith(FOREIGN_PREFIXES)]
    assert len(set(names)) == len(names)
    wanted = DeploymentOrder(roles=[role], code="/opt/penstock")
    files = {name: everything(wanted)[name] for name in (
        f"systemd/{role.name}.env.example", f"compose/{compose.FILE}", f"kubernetes/{kubernetes.FILE}",
    )}  # fmt: skip
    assert not [(file, name) for file, text in files.items() for name in names if name not in text]


@pytest.mark.parametrize(
    ("role", "passed_on"), [(AGENT_WITH_DATABASE, agent_variables), (PIPELINE, pipeline_variables)]
)
def test_agent_and_pipeline_are_given_no_more_than_up_gives_them(role: Any, passed_on: Any) -> None:
    names = {variable.name for variable in role.variables}
    assert set(passed_on(dict.fromkeys(names, "x"))) == names


@pytest.mark.parametrize("kind", FORMATS)
def test_an_agent_that_joins_by_a_token_is_given_nothing_of_the_installation(kind: str) -> None:
    """A Secret mounted where it writes its own certificates would also keep it from starting."""
    text = "\n".join(FORMATS[kind](DeploymentOrder(roles=[AGENT], code="/opt/penstock")).values())
    assert "--joined" in text
    for foreign in ("DATABASE", "REDIS", "ZOOKEEPER", "SECRET_KEY", "internal_tls", "PENSTOCK_HOST", "%H", "NODE_NAME"):
        assert foreign not in text
    with_database = "\n".join(
        FORMATS[kind](DeploymentOrder(roles=[AGENT_WITH_DATABASE], code="/opt/penstock")).values()
    )
    assert "DATABASE_URL" in with_database
    assert "--host" in with_database


def test_up_starts_the_same_commands(tmp_path: Any) -> None:
    state = StateDirectory(tmp_path)
    children = {
        "web": programs.web(state, {}, http_port=8_000),
        "worker": programs.worker(state, {}),
        "pipeline": programs.pipeline(state, {}),
        "agent-with-database": programs.agent(state, {}, host="kafka-1"),
    }
    for name, child in children.items():
        place = Installation(
            python=child.command[0], code=str(child.directory), state_dir=str(tmp_path), host="kafka-1"
        )
        assert tuple(child.command) == tuple(ROLES[name].command(place))
        assert child.stop_timeout_s == ROLES[name].stop_timeout_s
        assert (child.environment or {})["PENSTOCK_PROCESS"] == name.removesuffix("-with-database")
        assert (child.environment or {}).items() >= ROLES[name].fixed.items()


def test_the_compose_file_is_one() -> None:
    body = yaml.safe_load(compose.files(ALL)[compose.FILE])
    jsonschema.validate(body, schemas.COMPOSE)
    assert list(body["services"]) == ["web", "worker", "pipeline", "agent"]
    assert body["services"]["web"]["environment"]["DATABASE_URL"] == "${DATABASE_URL:?}"
    assert body["services"]["web"]["environment"]["PENSTOCK_EMAIL_PASSWORD"] is None
    assert body["services"]["agent"]["network_mode"] == "host"
    assert body["services"]["agent"]["volumes"] == [f"state:{STATE_DIR}", "/disk1:/disk1", "/disk2:/disk2"]
    assert [name for name, service in body["services"].items() if "ports" in service] == ["web"]


def test_manifests_are_whole() -> None:
    bodies = list(yaml.safe_load_all(kubernetes.files(ALL)[kubernetes.FILE]))
    for body in bodies:
        jsonschema.validate(body, schemas.KUBERNETES[body["kind"]])
    assert [(body["kind"], body["metadata"]["name"]) for body in bodies] == [
        ("Deployment", "penstock-web"), ("Service", "penstock-web"), ("Deployment", "penstock-worker"),
        ("Deployment", "penstock-pipeline"), ("DaemonSet", "penstock-agent"),
    ]  # fmt: skip


def test_parts_of_a_manifest_find_each_other() -> None:
    for body in kubernetes.manifests(ALL):
        labels = body["metadata"]["labels"]
        if body["kind"] == "Service":
            assert body["spec"]["selector"] == labels
            continue
        pod = body["spec"]["template"]
        assert body["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"] == labels
        (container,) = pod["spec"]["containers"]
        volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
        assert sorted(volumes) == sorted(mount["name"] for mount in container["volumeMounts"])
        names = [variable["name"] for variable in container["env"]]
        assert len(set(names)) == len(names)
        used = [word for word in container["command"] if word.startswith("$(")]
        assert all(word[2:-1] in names for word in used)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kind",), "Deploymnt"),
        (("spec", "template", "spec", "containers", 0, "imge"), "penstock"),
        (("spec", "template", "spec", "securityContext", "runAsNonRoot"), "yes"),
        (("metadata", "name"), "Penstock_web"),
    ],
)
def test_a_manifest_with_a_mistake_is_found(path: tuple[Any, ...], value: Any) -> None:
    body = json.loads(json.dumps(kubernetes.manifests(DeploymentOrder(roles=[WEB], code="/opt/penstock"))[0]))
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, schemas.KUBERNETES["Deployment"])
