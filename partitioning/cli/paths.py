"""Paths on a command line, checked before anything else."""

import click

from partitioning.common.paths import check_path


class PathOption(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """Type of a path: refuses a text that cannot be one, and returns a `Path`."""

    name = "path"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> object:
        """Return the path; raise InputError if the text is none."""
        if not isinstance(value, str):
            return value
        hint = "the path" if parameter is None else parameter.get_error_hint(context).strip("'")
        return check_path(hint, value)


PATH = PathOption()
"""The only type of a path option."""
