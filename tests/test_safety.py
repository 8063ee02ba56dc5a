"""Nothing that a file or a command line says is evaluated as code, and no pickle is read from disk."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("algorithms", "partitioning", "raysim")

EVALUATES = {"eval", "exec", "compile", "__import__"}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
SENDS = "raysim/fleet/user_code.py"
"""Marks the user's modules to be sent to actors whole; it writes and reads nothing."""


def unsafe(source: str) -> Iterator[str]:
    """What a module's source does that it must not."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (f"imports {name}" for name in names if name.partition(".")[0] in PICKLES)
        if not isinstance(node, ast.Call):
            continue
        called, keys = ast.unparse(node.func), {key.arg: ast.unparse(key.value) for key in node.keywords}
        if called in EVALUATES:
            yield f"calls {called}"
        if called == "torch.load" and keys.get("weights_only") != "True":
            yield "unpickles by torch.load"
        if called.endswith(("get_state_dict", "load_state_dict_from_url")) and keys.get("weights_only") != "True":
            yield f"unpickles by {called}"
        if keys.get("allow_pickle", "False") != "False":
            yield f"unpickles by {called}"
        if called.endswith(("read_pickle", "os.system", "os.popen")) or keys.get("shell", "False") != "False":
            yield f"calls {called}"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "from ray import cloudpickle",
        "eval(text)",
        "exec('1')",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "weights.get_state_dict(progress=False)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_what_is_unsafe_is_found(source: str) -> None:
    assert list(unsafe(source))


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_is_evaluated_or_unpickled(package: str) -> None:
    files = [path for path in (ROOT / package).rglob("*.py") if path.relative_to(ROOT).as_posix() != SENDS]
    assert files
    found = {str(path): list(unsafe(path.read_text(encoding="utf-8"))) for path in files}
    assert not {path: what for path, what in found.items() if what}
