"""Rich's console for text from outside; every console of partitioning and raysim is one."""

from typing import Any

import rich.console
from rich.text import Text

from partitioning.common.text import printable


class Console(rich.console.Console):
    """Console that shows a string literally: it is no markup, names no emoji, and has no control characters.

    Rich passes every string through `render_str`: printed lines, cells, headings and titles.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})
