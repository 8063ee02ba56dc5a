"""Sites of a file that can be mutated, and the mutants of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
KEY = re.compile(r"[\w./-]+")
TEXTS = {"__repr__", "__str__", "__rich__"}
"""Functions that make texts for people."""

MESSAGES = {"require", "notice", "warn", "debug", "info", "warning", "print", "cast", "TypeVar", "NewType"}
"""Functions with arguments that are texts for people or types."""


@dataclass(frozen=True)
class Mutant:
    """A change of one place in the source.

    Args:
        file: path in the tree.
        function: qualified name of the function, class or "" that contains the place.
        text: line of the place, without indentation.
        count: number of equal lines before it in the function.
        column: bytes before the place in `text`.
        kind: kind of the change.
        old: source of the place.
        new: source that replaces it.
    """

    file: str
    function: str
    text: str
    count: int
    column: int
    kind: str
    old: str
    new: str

    def __str__(self) -> str:
        place = f"{self.file} {self.function or 'module'}" + (f" #{self.count + 1}" if self.count else "")
        old, new = (" ".join(text.split())[:80] for text in (self.old, self.new))
        return f"{place}: `{self.text}` at {self.column}: {self.kind}: `{old}` -> `{new}`"


Change = tuple[str, ast.AST, str]
"""Kind, node that is replaced, and the source that replaces it."""


def source_of(node: ast.AST) -> str:
    """Return a node's source, in parentheses if its neighbours could bind tighter."""
    text = ast.unparse(node)
    is_bare = isinstance(node, ast.stmt | ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
    return text if is_bare or isinstance(node, ast.List | ast.Dict | ast.Set | ast.Tuple) else f"({text})"


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def comparisons(node: ast.Compare) -> Iterator[Change]:
    for place, operator in enumerate(node.ops):
        ops = [*node.ops[:place], COMPARISONS[type(operator)](), *node.ops[place + 1 :]]
        yield "comparison", node, source_of(ast.Compare(node.left, ops, node.comparators))


def arithmetic(node: ast.BinOp) -> Iterator[Change]:
    if is_text(node.left) or is_text(node.right):
        return
    if other := OPERATORS.get(type(node.op)):
        yield "operator", node, source_of(ast.BinOp(node.left, other(), node.right))
    if isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        yield "dropped term", node, source_of(node.left)
    if isinstance(node.op, ast.Add | ast.Mult):
        yield "dropped term", node, source_of(node.right)


def constants(node: ast.Constant) -> Iterator[Change]:
    if isinstance(node.value, bool):
        yield "flag", node, repr(not node.value)
    elif isinstance(node.value, int):
        yield "constant", node, f"{node.value + 1}"
        yield "constant", node, f"{node.value - 1}" if node.value else "(-1)"


def logic(node: ast.BoolOp) -> Iterator[Change]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "and, or", node, source_of(ast.BoolOp(other, node.values))
    for place in range(len(node.values)):
        rest = [*node.values[:place], *node.values[place + 1 :]]
        yield "dropped condition", node, source_of(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))


def arguments(node: ast.Call) -> Iterator[Change]:
    """Yield a call with two neighbouring arguments exchanged."""
    for place, (left, right) in enumerate(zip(node.args, node.args[1:], strict=False)):
        is_starred = isinstance(left, ast.Starred) or isinstance(right, ast.Starred)
        if not is_starred and ast.dump(left) != ast.dump(right):
            args = [*node.args[:place], right, left, *node.args[place + 2 :]]
            yield "swapped arguments", node, source_of(ast.Call(node.func, args, node.keywords))


def conditions(test: ast.expr) -> Iterator[Change]:
    """Yield the negation of a condition, unless another kind of mutant is the same."""
    if not isinstance(test, ast.UnaryOp | ast.Compare | ast.Constant):
        yield "negated condition", test, f"(not {source_of(test)})"


def statements(node: ast.stmt) -> Iterator[Change]:
    """Yield a statement that does nothing in the place of one that changes something."""
    if isinstance(node, ast.AugAssign):
        if other := OPERATORS.get(type(node.op)):
            yield "operator", node, ast.unparse(ast.AugAssign(node.target, other(), node.value))
        yield "dropped statement", node, "pass"
    elif isinstance(node, ast.Continue) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "dropped statement", node, "pass"


def changes(node: ast.AST) -> Iterator[Change]:
    """Yield the changes of a node itself, those of its strings apart."""
    if isinstance(node, ast.Compare):
        yield from comparisons(node)
    elif isinstance(node, ast.BinOp):
        yield from arithmetic(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield "dropped sign" if isinstance(node.op, ast.USub) else "dropped not", node, source_of(node.operand)
    elif isinstance(node, ast.Constant):
        yield from constants(node)
    elif isinstance(node, ast.BoolOp):
        yield from logic(node)
    elif isinstance(node, ast.Call) and called(node) not in MESSAGES:
        yield from arguments(node)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        if ast.unparse(node.test) != "TYPE_CHECKING":
            yield from conditions(node.test)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield from conditions(test)
    if isinstance(node, ast.stmt):
        yield from statements(node)


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's children but annotations, decorators, texts and what only types need."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    hidden = {"annotation", "returns", "decorator_list", "bases", "type_params"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            # The flag of `zip(strict=True)` matters where the lengths differ, which they never do.
            is_strict = isinstance(child, ast.keyword) and child.arg == "strict"
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and name not in hidden and not is_strict and not is_docstring:
                yield child


Found = tuple[str, ast.stmt, Change]
"""Qualified name, innermost statement, and change."""


def walk(node: ast.AST, name: str, statement: ast.stmt, keys: tuple[str, ...]) -> Iterator[Found]:
    """Yield the changes of a node and of those below it."""
    for child in children(node):
        inner_name, inner, known = name, child if isinstance(child, ast.stmt) else statement, keys
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if child.name in TEXTS:
                continue
            inner_name = f"{name}.{child.name}" if name else child.name
            if not isinstance(child, ast.ClassDef):
                known = strings(child)
        yield from ((inner_name, inner, change) for change in changes(child))
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value in known:
            others = (key for key in known if key != child.value)
            yield from ((inner_name, inner, ("wrong key", child, repr(key))) for key in others)
        if not (isinstance(child, ast.Call) and called(child) in MESSAGES):
            yield from walk(child, inner_name, inner, known)
        elif child.args:
            yield from walk(ast.Tuple(child.args[:1], ast.Load()), inner_name, inner, ())


def strings(node: ast.AST) -> tuple[str, ...]:
    """Return the strings below a node that look like keys, once each."""
    found, left = [], list(children(node))
    while left:
        child = left.pop(0)
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and KEY.fullmatch(child.value):
            found.append(child.value)
        if not (isinstance(child, ast.Call) and called(child) in MESSAGES):
            left = [*children(child), *left]
    return tuple(dict.fromkeys(found))


def mutants(file: str, source: bytes) -> Iterator[tuple[Mutant, int, int]]:
    """Yield a file's mutants, the line of each, and that of its statement; 0 for a statement of no function."""
    tree, lines = ast.parse(source), source.split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    spans = named(tree)
    inside = {
        id(inner) for node in ast.walk(tree) if is_function(node) for inner in ast.walk(node) if inner is not node
    }
    for name, statement, (kind, node, new) in walk(tree, "", ast.Pass(), ()):
        row, column = node.lineno - 1, node.col_offset  # type: ignore[attr-defined]
        begin, end = starts[row] + column, starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        text = lines[row].strip()
        count = sum(line.strip() == text for line in lines[spans[name] : row])
        indent = len(lines[row]) - len(lines[row].lstrip())
        old = source[begin:end].decode()
        mutant = Mutant(file, name, text.decode(), count, column - indent, kind, old, new)
        yield mutant, row + 1, statement.lineno if id(statement) in inside else 0


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def named(tree: ast.Module) -> dict[str, int]:
    """Return the lines before each function and class, by qualified name; the first of equal names counts."""
    found, left = {"": 0}, [("", tree)]
    while left:
        name, node = left.pop()
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
                found[inner] = min(child.lineno - 1, found.get(inner, child.lineno))
            left.append((inner, child))  # type: ignore[arg-type]
    return found


def mutated(source: bytes, mutant: Mutant) -> bytes | None:
    """Return the source with a mutant, or None if its line no longer exists."""
    lines, spans = source.split(b"\n"), named(ast.parse(source))
    rows = range(spans.get(mutant.function, len(lines)), len(lines))
    equal = [row for row in rows if lines[row].strip().decode() == mutant.text]
    if len(equal) <= mutant.count:
        return None
    row = equal[mutant.count]
    begin = sum(len(line) + 1 for line in lines[:row]) + len(lines[row]) - len(lines[row].lstrip()) + mutant.column
    old = mutant.old.encode()
    if source[begin : begin + len(old)] != old:
        return None
    return source[:begin] + mutant.new.encode() + source[begin + len(old) :]
