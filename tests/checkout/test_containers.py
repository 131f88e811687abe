"""The files for containers agree with each other and with the code: names, ports, images, variables, secrets."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # has no type information

from firnlake.airflow.configuration import read_tables
from infra.environment import CHECKOUT, variable

INFRA = CHECKOUT / "infra"
COMPOSE = yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (INFRA / "containers" / "Dockerfile").read_text()
SERVE = INFRA / "containers" / "serve"
PARTS = ["s3", "rest", "master", "worker", "airflow"]
OF_DOCKERFILE = dict(re.findall(r"^ +(\w+)=(\S+)", DOCKERFILE, re.M))


def manifests() -> Iterator[dict[str, Any]]:
    """Every Kubernetes object that the kustomization lists."""
    folder = INFRA / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in folder.glob("*.yaml") if path.stem != "kustomization")
    for name in listed:
        yield from yaml.safe_load_all((folder / name).read_text())


OBJECTS = list(manifests())
WORKLOADS = {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] in ("Deployment", "StatefulSet")}


def container(name: str) -> dict[str, Any]:
    """The only container of a workload."""
    (found,) = WORKLOADS[name]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def variables(name: str) -> dict[str, str]:
    """The variables of a workload's container; of those from elsewhere, where from."""
    return {one["name"]: one.get("value", str(one.get("valueFrom"))) for one in container(name)["env"]}


@pytest.mark.parametrize("part", PARTS)
def test_both_run_the_parts_that_the_image_knows(part: str) -> None:
    assert re.search(rf"^    {part}\)$", SERVE.read_text(), re.M)
    assert [part] in [service.get("command") for service in SERVICES.values()]
    assert [part] in [container(name).get("args") for name in WORKLOADS]


def test_the_script_is_one_that_runs() -> None:
    assert SERVE.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(SERVE)], check=True)
    asked = subprocess.run(
        [str(SERVE), "rest"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert (asked.returncode, asked.stderr) == (1, "serve: CATALOG_NAME is not set\n")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_compose_and_kubernetes_give_a_part_the_same(name: str) -> None:
    """But for what only one of them needs, and for where values come from."""
    ours = SERVICES[name].get("environment", {})
    theirs = variables(name)
    own = {"FIRN_HOME", "AIRFLOW_HOME", "PGDATA", "AWS_REGION"}
    assert set(ours) - own == set(theirs) - own
    plain = {key for key in set(ours) & set(theirs) if "${" not in ours[key] and "valueFrom" not in theirs[key]}
    same = {key for key in plain if "{" not in theirs[key]} - {"S3_FOLDER", "SPARK_MASTER_HOST"}
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_images_are_the_database_and_our_own(name: str) -> None:
    assert SERVICES[name]["image"] == container(name)["image"] == ("postgres:15" if name == "postgres" else "firn")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_passwords_are_nowhere_but_in_secrets(name: str) -> None:
    secret = re.compile("PASSWORD|TOKEN|SECRET|ACCESS_KEY_ID")
    for key, value in SERVICES[name].get("environment", {}).items():
        assert not secret.search(key) or value.startswith("${"), key
    for key, value in variables(name).items():
        assert not secret.search(key) or "secretKeyRef" in value, key


def test_addresses_lead_to_services_that_listen_there() -> None:
    ports = {
        one["metadata"]["name"]: {port["port"] for port in one["spec"]["ports"]}
        for one in OBJECTS
        if one["kind"] == "Service"
    }
    for name in WORKLOADS:
        text = " ".join([*variables(name).values(), *map(str, SERVICES[name].get("environment", {}).values())])
        for host, port in re.findall(r"//([a-z][\w-]*):(\d+)", text):
            assert int(port) in ports[host], (name, host, port)
    assert variables("s3")["S3_PORT"] == "9000"
    assert variables("rest")["REST_PORT"] == "8181"


def test_services_find_their_pods() -> None:
    for one in OBJECTS:
        if one["kind"] == "Service":
            labels = WORKLOADS[one["metadata"]["name"]]["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"] == labels
    for name, workload in WORKLOADS.items():
        assert workload["spec"]["selector"]["matchLabels"] == {"app": name}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_pods_run_as_nobody_special(name: str) -> None:
    """The requirements of the namespace's pod security standard."""
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    allowed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container(name)["securityContext"] == allowed
    assert "memory" in container(name)["resources"]["limits"]


def test_the_catalog_is_configured_as_pyiceberg_reads_it() -> None:
    configured = {key for key in variables("airflow") if key.startswith("PYICEBERG_CATALOG__")}
    assert configured == {variable("lake", key) for key in ("type", "uri", "token", "s3.endpoint", "s3.region")}


def test_the_tables_can_be_read_and_the_driver_be_reached() -> None:
    path = OF_DOCKERFILE["FIRN_TABLES"].replace("/opt/firn", str(CHECKOUT))
    configured = read_tables(Path(path))
    assert configured.refused == []
    (table,) = configured.tables
    assert table.spark["spark.driver.host"] == SERVICES["airflow"]["hostname"] == "airflow"


def test_the_image_is_made_of_files_that_there_are() -> None:
    assert DOCKERFILE.startswith("# ")
    for sources in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.M):
        for source in sources.split():
            assert (CHECKOUT / source).exists(), source
    build = SERVICES["s3"]["build"]
    assert (INFRA / "compose" / build["context"]).resolve() == CHECKOUT
    assert (CHECKOUT / build["dockerfile"]).exists()
