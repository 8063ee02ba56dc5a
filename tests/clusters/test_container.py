"""The image: what it copies is there, and the versions are those of pyproject.toml."""

import re
import tomllib

from tests.kit.launch_files import ALL, CLUSTERS, ROOT, pinned

FOLDER = CLUSTERS / "container"
KNOWN = {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "USER", "ENV", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """The recipe's instructions and what each is told, with continued lines as one."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def told(wanted: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == wanted]


def test_there_are_only_instructions_of_the_format() -> None:
    assert {instruction for instruction, _ in instructions()} == KNOWN


def test_what_is_copied_is_there_and_not_left_out() -> None:
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*", "nothing private goes to the build by accident"
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    sources = {source for rest in told("COPY") for source in rest.split()[:-1]}
    assert sources == let_in
    assert all((ROOT / source).exists() for source in sources)


def test_the_package_can_be_built_from_what_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {project["project"]["readme"], *project["project"]["license-files"]}
    needed |= set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = {source for rest in told("COPY") for source in rest.split()[:-1]}
    assert needed <= copied
    (python,) = re.findall(r"PYTHON=(\S+)", " ".join(told("ARG")))
    assert f">={python}" == project["project"]["requires-python"]


def test_versions_are_pyprojects() -> None:
    installs = [rest for rest in told("RUN") if "uv pip install" in rest]
    assert ["--requirement pyproject.toml --extra cluster" in rest for rest in installs] == [True, False]
    assert "--no-deps" in installs[1]
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert "==" not in text and "index-url" not in text


def test_versions_that_stand_elsewhere_are_the_same() -> None:
    found = [
        (package.partition("[")[0], version)
        for path in ALL
        for package, version in re.findall(r"([\w\[\]-]+)==([\w.]+)", path.read_text(encoding="utf-8"))
    ]
    assert ("ray", pinned()["ray"]) in found
    assert all(pinned()[package] == version for package, version in found)


def test_it_runs_as_a_user_whose_home_ray_finds() -> None:
    assert told("USER") == ["raysim"] and "--uid 1000" in " ".join(told("RUN"))
    (environment,) = told("ENV")
    assert re.search(r"\bHOME=/home/raysim\b", environment)
    for setting in ("OMP_NUM_THREADS=1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV=0"):
        assert setting in environment
    assert "--create-home" in " ".join(told("RUN"))


def test_what_ray_up_and_kuberay_call_is_installed() -> None:
    (installed,) = (rest.split() for rest in told("RUN") if "apt-get install" in rest)
    assert {"bash", "openssh-client", "rsync", "wget"} <= set(installed)
    assert not told("ENTRYPOINT"), "they start a shell of their own"
