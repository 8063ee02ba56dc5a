"""Each message that the page on troubleshooting quotes exists in the code."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from tests.kit.pages import DOCS, text_of
from tests.kit.sources import PACKAGES, files, nodes_of

PAGE = DOCS / "troubleshooting.md"
MESSAGES = re.findall(r"^### `(.+)`$", text_of(PAGE), re.MULTILINE)


def test_the_page_quotes_messages() -> None:
    assert len(MESSAGES) > 25 and len(set(MESSAGES)) == len(MESSAGES)


@cache
def texts() -> tuple[str, ...]:
    """Return all texts of the packages; a value that is filled in is an ellipsis."""
    return tuple(text for package in PACKAGES for path in files(package) for text in _texts(nodes_of(path)))


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def is_said(message: str) -> bool:
    """Return whether a text of the code has all pieces of a message in their order."""
    pieces = [piece.strip() for piece in message.split("…") if len(piece.strip()) > 2]
    pattern = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
    return any(pattern.search(text) for text in texts())


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_code(message: str) -> None:
    assert is_said(message)


def test_a_message_that_does_not_exist_is_found() -> None:
    assert not is_said("… is mising: must be given; add it, or …")
    assert not is_said("the remedy …: comes before …, the problem is missing")
