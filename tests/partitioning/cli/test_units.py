import pytest

from partitioning import InputError
from partitioning.cli.make import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MB", 256_000_000),
        ("256MiB", 268_435_456),
        ("1.5 GiB", 1_610_612_736),
        ("2gb", 2_000_000_000),
        ("10KB", 10_000),
        ("1KiB", 1024),
        ("100B", 100),
    ],
)
def test_amounts_are_bytes(text, size):
    assert parse_bytes(text) == size


WRONG = ["", "256", "MB", "-1MB", "1e3MB", "0MB", "0.1B", "1TB", "1M", "1MB 2KB", "١x", "9" * 400 + "MB"]


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_refused(text):
    with pytest.raises(InputError, match=r"^--memory is .*: give a number above 0 and one of 'B', 'KB', .* as 256MB$"):
        parse_bytes(text)
