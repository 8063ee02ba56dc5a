"""A strike on any system call that writes: the command, continued, ends with the same result."""

import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, which builds the library that strikes")

FULL = "disk full from a call on"


@pytest.mark.parametrize(
    "options",
    [
        ("--only", "population", "--count", "6"),
        pytest.param(("--count", "100"), marks=pytest.mark.slow),
        pytest.param(
            ("--only", "fedbn", "--each", "disk full from a call on", "--count", "200"), marks=pytest.mark.slow
        ),
    ],
)
def test_a_struck_command_ends_with_the_result_of_an_undisturbed_one(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.faults.writes", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
