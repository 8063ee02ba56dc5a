"""The hook that fills the generated parts of the pages."""

import importlib.util
from types import ModuleType

import pytest

from tests.kit.pages import DOCS


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "hooks" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
