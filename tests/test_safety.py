"""Nothing that a file or a command line says is evaluated as code, and no pickle is read from disk."""

import ast
from collections.abc import Iterable, Iterator

import pytest

from tests.kit.sources import PACKAGES, ROOT, dotted, files, nodes_of

EVALUATES = {"eval", "exec", "compile", "__import__"}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
SENDS = "raysim/fleet/user_code.py"
"""Marks the user's modules to be sent to actors whole; it writes and reads nothing."""
PLAIN = "raysim/devices/fedscale.py"
"""Reads pickles of plain values: its unpickler refuses every class, see `tests/raysim/devices/test_fedscale.py`."""


OPTIONS = {"weights_only", "allow_pickle", "shell"}


def unsafe(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Return the things that a module does and must not."""
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (f"imports {name}" for name in names if name.partition(".")[0] in PICKLES)
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        keys = {key.arg: ast.unparse(key.value) for key in node.keywords if key.arg in OPTIONS}
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
    assert list(unsafe(ast.walk(ast.parse(source))))


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_is_evaluated_or_unpickled(package: str) -> None:
    paths = [path for path in files(package) if path.relative_to(ROOT).as_posix() not in (SENDS, PLAIN)]
    assert paths
    found = {str(path): list(unsafe(nodes_of(path))) for path in paths}
    assert not {path: what for path, what in found.items() if what}


READERS = {
    *("open", "tomllib.load", "safe_open", "load_file", "check_integrity", "loadmat"),
    *("pq.read_table", "pq.read_schema", "pq.ParquetFile", "ParquetFile", "csv.read_csv", "csv.open_csv"),
    *("pa.memory_map", "pa.OSFile", "zipfile.ZipFile", "tarfile.open", "bz2.open", "gzip.open", "lzma.open"),
    *("Image.open", "np.load", "np.loadtxt", "np.genfromtxt"),
}
"""Functions that open the path that is their first argument."""

OPENS = (".open", ".read_text", ".read_bytes")
"""Methods that open a path, or another object."""

OF_THE_SYSTEM = {
    "partitioning/common/paths.py",
    "partitioning/common/bounds.py",
    "raysim/watching/stopwatch.py",
    "raysim/fleet/ray_cleanup.py",
    "raysim/fleet/calls.py",
}
"""Files that read what no user names: /proc and /sys, and Ray's own log."""


def opened(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The calls in a module that open a path for reading without `partitioning.common.paths`."""
    for node in nodes:
        called = dotted(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or not (called in READERS or called.endswith(OPENS)):
            continue
        text = ast.unparse(node)
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
    assert list(opened(ast.walk(ast.parse(source))))


@pytest.mark.parametrize("package", ["partitioning", "raysim"])
def test_only_regular_files_are_opened(package: str) -> None:
    """A pipe in the place of a file would stop the program for ever, and a device would fill its memory."""
    paths = {path.relative_to(ROOT).as_posix(): path for path in files(package)}
    found = {
        name: [call for call in opened(nodes_of(path)) if "/proc/" not in call]
        for name, path in paths.items()
        if name not in OF_THE_SYSTEM
    }
    assert not {name: calls for name, calls in found.items() if calls}
