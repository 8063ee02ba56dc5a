"""The user's own code by its name in a file, such as algorithms, losses, server rules, models and metrics."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.machinery import PathFinder
from inspect import Parameter, signature
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from algorithms.core.returned import place_of
from partitioning.common.paths import absolute
from raysim.common.errors import InputError, unknown
from raysim.config.check import ConfigTable, signature_of, table_of
from raysim.config.read import algorithm_tables, copied

FORM = "def mine(participation, local, server=Assign(), *, own_key: float = 0.1) -> Algorithm"
"""Shape of an algorithm's function; its keyword parameters are keys of `[algorithm]`."""

MODEL_FORM = "class Mine(torch.nn.Module): def __init__(self, shape, classes, own_key: float = 0.1)"
"""Shape of a model's class, or of a function that returns a model; its other parameters are keys of `[model]`."""

PARTS = ("participation", "local", "server")
OURS = ("algorithms", "partitioning", "raysim")
CHAINS = ("uplink", "downlink")
"""Tables with a chain of stages, which may be the user's own, at the top level and inside `[algorithm]`."""
NAMING_KEYS = (("server", "rule"), ("model", "name"), ("local", "loss"), ("local", "update"))
"""Tables with a key that may name the user's own code, at the top level and inside `[algorithm]`."""
ALGORITHM_KEYS = ("name", "sampling", "choose")
"""Keys of `[algorithm]` that may name the user's own code."""
LISTING_KEYS = (("watch", "loggers"), ("evaluate", "metrics"), ("data", "augment"))
"""Tables with a key that lists names, or is one, the user's own code among them."""


def load_own_code(raw: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """Import the user's own code and return the tables with text names alone.

    Args:
        raw: an experiment's tables; `algorithm.name` may be a function, `server.rule` a class, `model.name` either;
            `modules` lists folders.
        folders: folders to search for modules after `modules` and before Python's own path.

    Raises:
        InputError: no such module, or it cannot be imported.
    """
    whole: dict[str, Any] = copied(raw)
    if isinstance(given := whole.get("modules"), list | tuple):
        folders = [*(absolute("modules", str(each)) for each in given), *folders]
    for path, table, key in _places(whole):
        table[key] = _named(path, table[key], folders)
    return whole


def names_in(raw: Mapping[str, Any]) -> list[str]:
    """Return all names in an experiment's tables that may be the user's own."""
    values = [table[key] for _, table, key in _places(raw)]
    names = [name for value in values for name in (value if isinstance(value, list) else [value])]
    return [name for name in names if isinstance(name, str)]


def _places(raw: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the path of each key that may name the user's own code, its table, and the key itself."""
    tables = [table for table in algorithm_tables(raw) if isinstance(table, dict)]
    found: list[tuple[str, Any, str]] = [("algorithm", table, key) for table in tables for key in ALGORITHM_KEYS]
    for outer in (raw, *tables):
        found += [(section, outer.get(section), key) for section, key in NAMING_KEYS]
        for section in CHAINS:
            inner = outer.get(section)
            chain = inner.get("chain") if isinstance(inner, dict) else None
            found += [(f"{section}.chain", stage, "name") for stage in (chain if isinstance(chain, list) else ())]
    found += [(section, raw.get(section), key) for section, key in LISTING_KEYS]
    for section, table, key in found:
        if isinstance(table, dict) and key in table:
            yield f"{section}.{key}", table, key


def secluded(*names: str) -> AbstractContextManager[None]:
    """Seed the default generators while a user's own code is imported or makes an object, and restore them.

    Args:
        names: names in the file; without one of the user's own nothing happens.
    """
    if not any(":" in name for name in names):
        return nullcontext()
    from algorithms.training.forked import forked  # late, because it imports torch

    return forked(0)


def resolve(key: str, name: object, table: Mapping[str, Any]) -> Any:
    """Return an entry of a table of names, or the user's own object from its imported module.

    Raises:
        InputError: no such name; the nearest is named.
    """
    if not isinstance(name, str) or ":" not in name:
        if not isinstance(name, str) or name not in table:
            raise unknown(f"{key} = {name!r}", str(name), [*table, "module:NAME"])
        return table[name]
    module_name, _, path = name.partition(":")
    module = importlib.import_module(module_name)
    try:
        thing = attrgetter(path)(module)
    except AttributeError:
        there = [each for each, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
        names = [f"{module_name}:{each}" for each in there]
        raise unknown(f"{key} = {name!r}", name, names or ["a function that the module has"]) from None
    if not callable(thing):
        raise InputError(f"{key} = {name!r}: must be callable, and is {thing!r}; name a function")
    try:
        signature(thing)
    except (TypeError, ValueError):  # some of Python's own classes have none
        raise InputError(f"{key} = {name!r}: must have parameters that can be read; name another function") from None
    return thing


def instance(key: str, name: str, thing: Callable[..., Any], *methods: str) -> Callable[..., Any]:
    """Return a user's function, or an instance of their class, which is made without arguments.

    Args:
        key: key of the file.
        name: name in the file.
        thing: function or class of that name.
        methods: methods of the instances; by default they are callable.

    Raises:
        InputError: the class needs arguments, or its instances lack a method.
    """
    if not isinstance(thing, type):
        return thing
    try:
        with secluded(name):
            made = thing()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # The user's class may raise anything.
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise InputError(f"{key} = {name!r}: must be made without arguments, and raised {text}; change it") from error
    for method in methods or ("__call__",):
        if not callable(getattr(made, method, None)):
            raise InputError(f"{key} = {name!r}: must have the method {method}, and has none; add it")
    return made  # type: ignore[no-any-return]


def check_parameters(key: str, name: str, function: Callable[..., Any], wanted: Sequence[str]) -> None:
    """Raise InputError if a user's function cannot be called with as many arguments as `wanted` names."""
    try:
        signature(function).bind(*wanted)
    except (TypeError, ValueError):
        raise InputError(
            f"{key} = {name!r}: must take ({', '.join(wanted)}), and does not; change its parameters"
        ) from None


def check_rule(name: str, rule: Any) -> None:
    """Raise InputError if `rule` is no server rule: a class whose instances take the arguments of `Server`."""
    taken = signature_of(rule.__call__).parameters if isinstance(rule, type) and callable(rule) else {}
    if [each for each in taken if each != "updates"] != ["self", "model", "mean", "total", "memory", "layout"]:
        raise InputError(
            f"server.rule = {name!r}: must be a class whose instances take (model, mean, total, memory, layout), as "
            "algorithms.Assign does; name one"
        )
    if wrong := _key_fault(rule, (), ("rule", "aggregate"), "is a key of every rule"):
        raise InputError(f"server.rule = {name!r}: must have parameters that can be keys, and {wrong}; change it")


def check_shape(name: str, function: Callable[..., Any], taken: Collection[str]) -> None:
    """Check that a function has an algorithm's shape.

    Args:
        name: name in the file.
        function: function of that name.
        taken: keys of every algorithm.

    Raises:
        InputError: the parameters have another shape, or one of them is taken.
    """
    parameters = signature(function).parameters
    if tuple(parameters)[:3] != PARTS:
        missing = [part for part in PARTS if part not in parameters]
        wrong = f"it has no {missing[0]}" if missing else f"it begins with ({', '.join([*parameters][:3])})"
    elif parameters["server"].default is Parameter.empty:
        wrong = "server has no default"
    elif loose := [key for key, each in parameters.items() if key not in PARTS and each.kind is not each.KEYWORD_ONLY]:
        wrong = f"{loose[0]} is not keyword-only"
    else:
        wrong = _key_fault(function, PARTS, taken, "is a key of every algorithm")
    if wrong:
        raise InputError(
            f"algorithm.name = {name!r}: must be of the shape `{FORM}`, and {wrong}{place_of(function)}; change the "
            "function"
        )


def check_model(name: str, model: Callable[..., Any], own: Collection[str], taken: Collection[str]) -> None:
    """Check that the parameters of a class or function can be keys of `[model]`.

    Args:
        name: name in the file.
        model: class or function of that name.
        own: names of the parameters to become keys.
        taken: keys of every model.

    Raises:
        InputError: one of the parameters cannot be a key.
    """
    parameters = signature(model).parameters
    if positional := [key for key in own if parameters[key].kind is Parameter.POSITIONAL_ONLY]:
        wrong = f"{positional[0]} is positional-only"
    else:
        passed = [key for key in parameters if key not in own]
        wrong = _key_fault(model, passed, taken, "is taken: every model has it")
    if wrong:
        raise InputError(
            f"model.name = {name!r}: must be of the shape `{MODEL_FORM}`, and {wrong}{place_of(model)}; change it"
        )


def _key_fault(function: Callable[..., Any], passed: Collection[str], taken: Collection[str], clash: str) -> str:
    """Return the reason why parameters cannot be keys, "" if they can.

    Args:
        function: function or class with the parameters.
        passed: parameters that raysim passes.
        taken: names that no key may have.
        clash: reason against such a name.
    """
    keys = {key: each for key, each in signature(function).parameters.items() if key not in passed}
    if bare := [key for key, each in keys.items() if not _has_type(each)]:
        return f"{bare[0]} has no annotation"
    if double := [key for key in keys if key in taken]:
        return f"{double[0]} {clash}"
    try:
        table_of(function, tuple(passed), ConfigTable)
    except Exception as error:  # The user's annotations may raise anything.
        return f"its parameters cannot be read ({str(error).partition(chr(10))[0]})"
    return ""


def _has_type(parameter: Parameter) -> bool:
    """Return whether a parameter has an annotation, or a default whose type is that of a key."""
    return parameter.annotation is not Parameter.empty or isinstance(parameter.default, bool | int | float | str)


def modules_of(names: Iterable[str]) -> list[ModuleType]:
    """Return the modules of the user's own objects, and all modules loaded from the same folders.

    Installed packages are left out: the actors have them, too.
    """
    found = source_folders(names)
    if not found:  # Skip the loop over thousands of modules.
        return []
    return [
        module
        for name, module in sorted(sys.modules.copy().items())
        if "." not in name and name not in (*OURS, "__main__") and isinstance(module, ModuleType)
        if str(_folder(module)) in found
    ]


def source_folders(names: Iterable[str]) -> list[str]:
    """Return the folders of the user's own modules, Python's package folders left out."""
    tops = {name.partition(":")[0].partition(".")[0] for name in names if ":" in name}
    modules = [sys.modules[top] for top in tops if top in sys.modules]
    return sorted(map(str, {folder for module in modules if (folder := _folder(module))} - _package_folders()))


@cache
def _package_folders() -> frozenset[Path]:
    return frozenset(Path(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib"))


def file_of(module: ModuleType) -> str | None:
    """Return a module's file, or a package's folder."""
    return next(iter(getattr(module, "__path__", ())), getattr(module, "__file__", None))


def _folder(module: ModuleType) -> Path | None:
    """Return the folder that contains a top-level module."""
    place = file_of(module)
    if not place:
        return None
    # A link to the user's own code may change; the thousands of installed modules, asked several times, stay.
    is_installed = place.startswith(tuple(f"{folder}{os.sep}" for folder in map(str, _package_folders())))
    return _installed_folder(place) if is_installed else Path(place).resolve().parent


@cache
def _installed_folder(place: str) -> Path:
    return Path(place).resolve().parent


def _named(key: str, thing: Any, folders: Sequence[Path]) -> Any:
    """Import the function or class that a key names, and return its name; any other value as it stands."""
    if isinstance(thing, list | tuple):
        return [_named(key, each, folders) for each in thing]
    if callable(thing):
        name = f"{thing.__module__}:{getattr(thing, '__qualname__', '<none>')}"
        if not isinstance(thing, type) and not hasattr(thing, "__qualname__"):
            raise InputError(
                f"{key} = an object of {type(thing).__qualname__}: must be a function or a class; name the class, or a "
                "function that calls the object"
            )
        if "<" in name:
            raise InputError(f"{key} = {name!r}: must be defined at the top of a module; move it there")
        return name
    if isinstance(thing, str) and ":" in thing:
        _load(key, thing, folders)
    return thing


def _load(key: str, name: str, folders: Sequence[Path]) -> None:
    module, _, path = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise InputError(f'{key} = {name!r}: must be module:function; write e.g. {key} = "mine:mine"')
    _refuse_namesake(key, name, module.partition(".")[0], folders)
    try:
        with _searching(folders), secluded(name):
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"{key} = {name!r}: {module} must be importable, and needs {error.name}") from error
        looked = ", ".join(dict.fromkeys(map(str, folders))) or "Python's path"
        raise InputError(f"{key} = {name!r}: no module {module!r} in {looked}; check the name") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # The user's module may raise anything.
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{key} = {name!r}: {module} must be importable ({what}); correct it") from error


def _refuse_namesake(key: str, name: str, top: str, folders: Sequence[Path]) -> None:
    # Python holds one module per name, and would silently return a loaded one.
    spec = PathFinder.find_spec(top, [str(folder) for folder in folders])
    there = getattr(sys.modules.get(top), "__file__", None)
    if top in sys.modules and spec is not None and spec.origin and (not there or not Path(there).samefile(spec.origin)):
        raise InputError(
            f"{key} = {name!r}: another module {top!r} is loaded already, from {there}; rename {spec.origin}"
        )


@contextmanager
def _searching(folders: Sequence[Path]) -> Iterator[None]:
    added = [str(folder) for folder in folders]
    sys.path[:0] = added
    importlib.invalidate_caches()  # The file may be new.
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)
