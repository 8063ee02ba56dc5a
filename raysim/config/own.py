"""A user's own code by its name in a file: an algorithm, a server's rule, a model."""

from __future__ import annotations

import importlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from importlib.machinery import PathFinder
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from raysim.common.errors import InputError, unknown
from raysim.config.check import Table, table_of

FORM = "def mine(sample, local, server=Assign(), *, own_key: float = 0.1) -> Algorithm"
"""The shape of an algorithm's function; its keyword parameters are keys of `[algorithm]`."""

MODEL_FORM = "class Mine(torch.nn.Module): def __init__(self, shape, classes, own_key: float = 0.1)"
"""The shape of a model's class, or of a function that returns one; its other parameters are keys of `[model]`."""

FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
"""A line of a traceback that says where."""

PARTS = ("sample", "local", "server")
OURS = ("algorithms", "partitioning", "raysim")


def loaded(raw: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """An experiment's tables, the user's own code loaded and named by texts alone.

    Args:
        raw: the tables; `algorithm.name` may be a function, `server.rule` a class, `model.name` either, and `modules`
            names folders.
        folders: where modules are looked for after those, and before Python's own path.

    Raises:
        InputError: no such module, or it cannot be imported.
    """
    whole = dict(raw)
    if isinstance(given := whole.get("modules"), list | tuple):
        folders = [*(Path(str(each)).expanduser().resolve() for each in given), *folders]
    if isinstance(server := whole.get("server"), dict):
        whole["server"] = _named(server, "server", "rule", folders)
    if isinstance(model := whole.get("model"), dict):
        whole["model"] = _named(model, "model", "name", folders)
    if isinstance(watch := whole.get("watch"), dict) and isinstance(loggers := watch.get("loggers"), list | tuple):
        each = [_named({"loggers": logger}, "watch", "loggers", folders)["loggers"] for logger in loggers]
        whole["watch"] = {**watch, "loggers": each}
    tables = whole.get("algorithm", {})
    several = tables if isinstance(tables, list) else [tables]
    if all(isinstance(table, dict) for table in several):
        named = [_named(table, "algorithm", "name", folders) for table in several]
        for table in named:
            if isinstance(server := table.get("server"), dict):
                table["server"] = _named(server, "server", "rule", folders)
            if isinstance(model := table.get("model"), dict):
                table["model"] = _named(model, "model", "name", folders)
        whole["algorithm"] = named if isinstance(tables, list) else named[0]
    return whole


def found(key: str, name: object, table: Mapping[str, Any]) -> Any:
    """The entry of a table of names, or the user's own thing, whose module has been loaded.

    Raises:
        InputError: no such name; the nearest is named.
    """
    if not isinstance(name, str) or ":" not in name:
        if not isinstance(name, str) or name not in table:
            raise unknown(f"{key} = {name!r}", str(name), [*table, "module:NAME"])
        return table[name]
    module, _, path = name.partition(":")
    home = importlib.import_module(module)
    try:
        thing = reduce(getattr, path.split("."), home)
    except AttributeError:
        there = [each for each, value in vars(home).items() if getattr(value, "__module__", None) == module]
        raise unknown(f"{key} = {name!r}", path, there or ["a function that the module has"]) from None
    if not callable(thing):
        raise InputError(f"{key} = {name!r}: must be callable, and is {thing!r}; name a function")
    return thing


def check_rule(name: str, rule: object) -> None:
    """Refuse what is no server's rule: a class whose instances take what `Server` takes.

    Raises:
        InputError: it is something else.
    """
    taken = signature(rule.__call__).parameters if isinstance(rule, type) and callable(rule) else {}
    if list(taken) != ["self", "model", "mean", "total", "memory", "layout"]:
        raise InputError(
            f"server.rule = {name!r}: must be a class whose instances take (model, mean, total, memory, layout), as "
            "algorithms.Assign does; name one"
        )


def check_shape(name: str, function: Callable[..., Any], taken: Collection[str]) -> None:
    """Refuse a function that is not of an algorithm's shape, or whose keys are taken.

    Args:
        name: as the file has it.
        function: what it names.
        taken: keys that every algorithm has.

    Raises:
        InputError: what differs.
    """
    wrong = ""
    try:
        wrong = _difference(signature(function).parameters, taken)
        table_of(function, PARTS, Table)
    except Exception as error:  # whatever reading the user's annotations comes to
        wrong = wrong or f"its parameters cannot be read ({str(error).partition(chr(10))[0]})"
    if wrong:
        raise InputError(f"algorithm.name = {name!r}: must be of the shape `{FORM}`, and {wrong}; change the function")


def check_model(name: str, model: Callable[..., Any], own: Mapping[str, Parameter], taken: Collection[str]) -> None:
    """Refuse a class or function whose parameters cannot be keys of `[model]`.

    Args:
        name: as the file has it.
        model: what it names.
        own: its parameters that are keys.
        taken: keys that every model has.

    Raises:
        InputError: what differs.
    """
    wrong = ""
    try:
        if positional := [each.name for each in own.values() if each.kind is Parameter.POSITIONAL_ONLY]:
            wrong = f"{positional[0]} is positional-only"
        elif bare := [each.name for each in own.values() if each.annotation is Parameter.empty]:
            wrong = f"{bare[0]} has no annotation"
        elif double := [each for each in own if each in taken]:
            wrong = f"{double[0]} is taken: every model has it"
        table_of(model, tuple(each for each in signature(model).parameters if each not in own), Table)
    except Exception as error:  # whatever reading the user's annotations comes to
        wrong = wrong or f"its parameters cannot be read ({str(error).partition(chr(10))[0]})"
    if wrong:
        raise InputError(f"model.name = {name!r}: must be of the shape `{MODEL_FORM}`, and {wrong}; change it")


def _difference(parameters: Mapping[str, Parameter], taken: Collection[str]) -> str:
    """In what they differ from an algorithm's; nothing if they do not."""
    own = [each for each in parameters.values() if each.name not in PARTS]
    if tuple(parameters)[:3] != PARTS or parameters["server"].default is Parameter.empty:
        return "its first parameters are others"
    if loose := [each.name for each in own if each.kind is not Parameter.KEYWORD_ONLY]:
        return f"{loose[0]} is not keyword-only"
    if bare := [each.name for each in own if each.annotation is Parameter.empty]:
        return f"{bare[0]} has no annotation"
    if double := [each.name for each in own if each.name in taken]:
        return f"{double[0]} is a key of every algorithm"
    return ""


def modules_of(names: Iterable[str]) -> list[ModuleType]:
    """The modules of the user's own things, and those that were loaded from beside them.

    What is installed among Python's packages is left out: it is where the actors are, too.
    """
    found = homes(names)
    if not found:  # there are thousands of modules
        return []
    return [
        module
        for name, module in sorted(sys.modules.copy().items())
        if "." not in name and name not in (*OURS, "__main__") and isinstance(module, ModuleType)
        if str(_home(module)) in found
    ]


def homes(names: Iterable[str]) -> list[str]:
    """The folders in which the modules of the user's own things were found, but for those of Python's packages."""
    tops = {name.partition(":")[0].partition(".")[0] for name in names if ":" in name}
    installed = {Path(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib")}
    modules = [sys.modules[top] for top in tops if top in sys.modules]
    return sorted(map(str, {home for module in modules if (home := _home(module))} - installed))


def names(raw: Mapping[str, Any]) -> list[str]:
    """What an experiment's tables name that may be the user's own: algorithms, servers' rules, model, loggers."""
    several = raw.get("algorithm", {})
    tables = [table for table in (several if isinstance(several, list) else [several]) if isinstance(table, dict)]
    servers, models = ([table.get(key) for table in (raw, *tables)] for key in ("server", "model"))
    found = [table.get("name") for table in tables]
    found += [table.get("rule") for table in servers if isinstance(table, dict)]
    found += [model.get("name") for model in models if isinstance(model, dict)]
    loggers = watch.get("loggers") if isinstance(watch := raw.get("watch"), dict) else None
    found += loggers if isinstance(loggers, list) else []
    return [name for name in found if isinstance(name, str)]


def whose(names: Iterable[str]) -> list[str]:
    """A line for each of these that is a user's own: who runs a file must know whose code it runs."""
    own = [name for name in dict.fromkeys(names) if ":" in name and re.split(r"[.:]", name)[0] not in OURS]
    return [
        f"{name} is no part of raysim: the code of {getattr(sys.modules[name.partition(':')[0]], '__file__', None)} "
        "runs here and in the actors, and may do whatever you may"
        for name in own
    ]


def told(error: BaseException, modules: Iterable[ModuleType]) -> str:
    """What a user's own code raised, and where, in a line; nothing where no line of theirs was under way.

    Args:
        error: as it came here; of an actor's the text has its traceback.
        modules: the user's.
    """
    places = [place for module in modules if (place := _place(module))]
    text = "".join(traceback.format_exception(error))
    own = [
        (file, line, function)
        for file, line, function in FRAME.findall(text)
        if any(file == place or file.startswith(f"{place}/") for place in places)
    ]
    if not own:
        return ""
    cause = getattr(error, "cause", None) or error  # what an actor raised, inside of what Ray made of it
    file, line, function = own[-1]
    said = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {said[:200]} ({file}, line {line}, in {function})"


def _place(module: ModuleType) -> str | None:
    """A module's file, or a package's folder."""
    return next(iter(getattr(module, "__path__", ())), getattr(module, "__file__", None))


def _named(table: Mapping[str, Any], where: str, what: str, folders: Sequence[Path]) -> dict[str, Any]:
    """The table with its function or class by name, the module of which is loaded."""
    thing, key = table.get(what), f"{where}.{what}"
    if callable(thing):
        name = f"{thing.__module__}:{getattr(thing, '__qualname__', '<none>')}"
        if "<" in name:
            raise InputError(f"{key} = {name!r}: must be defined at the top of a module; move it there")
        return {**table, what: name}
    if isinstance(thing, str) and ":" in thing:
        _load(key, thing, folders)
    return dict(table)


def _load(key: str, name: str, folders: Sequence[Path]) -> None:
    module, _, path = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise InputError(f'{key} = {name!r}: must be module:function; write e.g. {key} = "mine:mine"')
    _refuse_namesake(key, name, module.partition(".")[0], folders)
    try:
        with _searched(folders):
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"{key} = {name!r}: {module} must be importable, and needs {error.name}") from error
        looked = ", ".join(map(str, folders)) or "Python's path"
        raise InputError(f"{key} = {name!r}: no module {module!r} in {looked}; check the name") from None
    except Exception as error:  # whatever the user's module does
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{key} = {name!r}: {module} must be importable ({what}); correct it") from error


def _refuse_namesake(key: str, name: str, top: str, folders: Sequence[Path]) -> None:
    """Python has one module of a name: where another one is loaded already, it would be taken in silence."""
    spec = PathFinder.find_spec(top, [str(folder) for folder in folders])
    there = getattr(sys.modules.get(top), "__file__", None)
    if top in sys.modules and spec is not None and spec.origin and (not there or not Path(there).samefile(spec.origin)):
        raise InputError(
            f"{key} = {name!r}: another module {top!r} is loaded already, of {there}; rename {spec.origin}"
        )


@contextmanager
def _searched(folders: Sequence[Path]) -> Iterator[None]:
    """Within, modules are found in these folders first."""
    added = [str(folder) for folder in folders]
    sys.path[:0] = added
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


def _home(module: ModuleType) -> Path | None:
    """The folder in which a top-level module was found."""
    places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    return Path(places[0]).resolve().parent if places[0] else None
