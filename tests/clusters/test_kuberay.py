"""The jobs for KubeRay: the fields of its resources that they use, and what Kubernetes asks of pods."""

import shlex
from typing import Any

import jsonschema
import pytest
import yaml

from raysim.cli.commands import cli
from tests.kit.launch_files import CLUSTERS, JOBS, loaded, name, pinned

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"}


def fields(required: str, optional: str = "", **known: Any) -> dict[str, Any]:
    """An object with these fields and no others; one that is not said more of is a text."""
    names = [*required.split(), *optional.split()]
    properties = {each: known.get(each, {"type": "string"}) for each in names}
    return {
        "type": "object", "additionalProperties": False, "required": required.split(), "properties": properties
    }  # fmt: skip


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


COUNT = {"type": "integer", "minimum": 0}
TRUTH = {"type": "boolean"}
QUANTITY = {"anyOf": [COUNT, {"type": "string", "pattern": r"^\d+(\.\d+)?(m|Ki|Mi|Gi|Ti)?$"}]}
QUANTITIES = {
    "type": "object",
    "required": ["cpu", "memory"],
    "additionalProperties": False,
    "properties": {"cpu": QUANTITY, "memory": QUANTITY, "nvidia.com/gpu": COUNT},
}
CONTAINER = fields(
    "name image securityContext resources volumeMounts",
    "ports",
    name=NAME,
    securityContext=fields(
        "allowPrivilegeEscalation capabilities",
        allowPrivilegeEscalation={"const": False},
        capabilities=fields("drop", drop={"const": ["ALL"]}),
    ),
    ports=listed(fields("name containerPort", name=NAME, containerPort=COUNT)),
    resources=fields("requests limits", requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts=listed(fields("name mountPath", "readOnly", readOnly=TRUTH)),
)
POD = fields(
    "spec",
    spec=fields(
        "containers volumes securityContext",
        "nodeSelector tolerations",
        securityContext=fields(
            "runAsNonRoot runAsUser runAsGroup fsGroup",
            runAsNonRoot={"const": True},
            runAsUser={"const": 1000},
            runAsGroup={"const": 1000},
            fsGroup={"const": 1000},
        ),
        nodeSelector=TEXTS,
        tolerations=listed(fields("key operator effect", operator={"enum": ["Exists", "Equal"]})),
        containers=listed(CONTAINER),
        volumes=listed(
            fields(
                "name",
                "persistentVolumeClaim configMap",
                persistentVolumeClaim=fields("claimName"),
                configMap=fields("name"),
            )
        ),
    ),
)
HEAD = fields(
    "rayStartParams template serviceType enableIngress",
    rayStartParams=TEXTS,
    template=POD,
    serviceType={"const": "ClusterIP"},
    enableIngress={"const": False},
)
WORKERS = fields(
    "groupName replicas minReplicas maxReplicas rayStartParams template",
    "labels",
    groupName=NAME,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    rayStartParams=TEXTS,
    labels=TEXTS,
    template=POD,
)
RAYJOB = fields(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=fields("name", name=NAME),
    spec=fields(
        "entrypoint rayClusterSpec shutdownAfterJobFinishes ttlSecondsAfterFinished",
        "submissionMode backoffLimit runtimeEnvYAML",
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
        backoffLimit=COUNT,
        shutdownAfterJobFinishes={"const": True},
        ttlSecondsAfterFinished=COUNT,
        rayClusterSpec=fields(
            "rayVersion headGroupSpec workerGroupSpecs authOptions enableInTreeAutoscaling",
            authOptions=fields("mode", mode={"const": "token"}),
            enableInTreeAutoscaling=TRUTH,
            headGroupSpec=HEAD,
            workerGroupSpecs=listed(WORKERS),
        ),
    ),
)


@pytest.fixture(params=JOBS, ids=name)
def job(request: pytest.FixtureRequest) -> dict[str, Any]:
    return loaded(request.param)["spec"] | {"whole": loaded(request.param)}


def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["rayClusterSpec"]
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def containers(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [container for pod in pods(job) for container in pod["containers"]]


def test_both_kinds_are_there() -> None:
    assert [name(path) for path in JOBS] == ["kuberay/job-cpu.yaml", "kuberay/job-gpu.yaml"]


def test_the_fields_are_kuberays(job: dict[str, Any]) -> None:
    jsonschema.validate(job["whole"], RAYJOB)


def test_another_field_would_be_found(job: dict[str, Any]) -> None:
    job["whole"]["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replica"] = 2
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        jsonschema.validate(job["whole"], RAYJOB)


def test_ray_is_the_tested_one_and_the_image_one_for_all(job: dict[str, Any]) -> None:
    assert job["rayClusterSpec"]["rayVersion"] == pinned()["ray"]
    assert len({container["image"] for container in containers(job)}) == 1


def test_pods_use_what_they_declare(job: dict[str, Any]) -> None:
    claim = loaded(CLUSTERS / "kuberay" / "storage.yaml")
    assert claim["kind"] == "PersistentVolumeClaim" and claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in pods(job):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
            assert container["resources"]["requests"] == container["resources"]["limits"]
        assert volumes["runs"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_what_runs_fits_the_cluster(job: dict[str, Any]) -> None:
    script, out, experiment, *options = shlex.split(job["entrypoint"])
    assert script == "run-or-resume" and (CLUSTERS / "run-or-resume.sh").is_file()
    head = pods(job)[0]["containers"][0]
    paths = [mount["mountPath"] for mount in head["volumeMounts"]]
    assert out.startswith(f"{paths[0]}/") and experiment.startswith(f"{paths[1]}/")
    given = cli.commands["run"].make_context("run", [experiment, "--out", out, *options]).params
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"], "a run asks for no more nodes"
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert given["actors"] == group["replicas"] * int(limits["cpu"]) or "nvidia.com/gpu" in limits
    if "nvidia.com/gpu" in limits:
        (share,) = (float(text.split("=")[1]) for text in given["changes"] if text.startswith("fleet.gpus_per_actor"))
        assert given["actors"] * share == group["replicas"] * limits["nvidia.com/gpu"]


def test_the_head_has_no_work_and_processes_their_settings(job: dict[str, Any]) -> None:
    assert job["rayClusterSpec"]["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    settings = yaml.safe_load(job["runtimeEnvYAML"])["env_vars"]
    assert settings == {"OMP_NUM_THREADS": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
