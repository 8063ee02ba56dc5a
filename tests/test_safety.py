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
PLAIN = "raysim/devices/fedscale.py"
"""Reads pickles of plain values: its unpickler refuses every class, see `tests/raysim/devices/test_fedscale.py`."""


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
    files = [path for path in (ROOT / package).rglob("*.py") if path.relative_to(ROOT).as_posix() not in (SENDS, PLAIN)]
    assert files
    found = {str(path): list(unsafe(path.read_text(encoding="utf-8"))) for path in files}
    assert not {path: what for path, what in found.items() if what}


READERS = {
    *("open", "tomllib.load", "safe_open", "load_file", "check_integrity", "loadmat"),
    *("pq.read_table", "pq.read_schema", "pq.ParquetFile", "ParquetFile", "csv.read_csv", "csv.open_csv"),
    *("pa.memory_map", "pa.OSFile", "zipfile.ZipFile", "tarfile.open", "bz2.open", "gzip.open", "lzma.open"),
    *("Image.open", "np.load", "np.loadtxt", "np.genfromtxt"),
}
"""Functions that open the path that is their first argument."""

OF_THE_SYSTEM = {
    "partitioning/common/paths.py",
    "partitioning/common/bounds.py",
    "raysim/watching/stopwatch.py",
    "raysim/fleet/ray_cleanup.py",
    "raysim/fleet/calls.py",
}
"""Files that read what no user names: /proc and /sys, and Ray's own log."""


def opened(source: str) -> Iterator[str]:
    """The calls in a module that open a path for reading without `partitioning.common.paths`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called, text = ast.unparse(node.func), ast.unparse(node)
        writes = any(mode in text for mode in ("'wb'", "'w'", "'a'", "mode='w|'"))
        first = ast.unparse(node.args[0]) if node.args else ""
        safe = any(form in first for form in ("regular(", "BytesIO(", "BufferReader("))
        safe = safe or first in ("lines", "file", "packed") or "fileobj=" in text
        unchecked = called in READERS or (called.endswith(".open") and first.startswith("'r"))
        if called.endswith((".read_text", ".read_bytes")) or (unchecked and not (safe or writes)):
            yield text


@pytest.mark.parametrize(
    "source",
    ["path.read_text()", "(a / 'b').read_bytes()", "path.open('rb')", "open(path)", "pq.read_table(path)"],
)
def test_a_path_opened_unchecked_is_found(source: str) -> None:
    assert list(opened(source))


@pytest.mark.parametrize("package", ["partitioning", "raysim"])
def test_only_regular_files_are_opened(package: str) -> None:
    """A pipe in the place of a file would stop the program for ever, and a device would fill its memory."""
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / package).rglob("*.py")}
    found = {
        name: [call for call in opened(path.read_text(encoding="utf-8")) if "/proc/" not in call]
        for name, path in files.items()
        if name not in OF_THE_SYSTEM
    }
    assert not {name: calls for name, calls in found.items() if calls}
