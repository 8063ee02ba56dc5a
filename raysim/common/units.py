"""Readable units of bytes, seconds and shares."""

from math import inf

MINUTE, HOUR = 60, 3600
SHORT = 0.0995  # seconds below which milliseconds have more digits


def human_bytes(count: float) -> str:
    """Return bytes in decimal units: `950 B`, `1.25 MB`."""
    units = ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if abs(count) < 999.5 or unit == units[-1]:  # 999.5 and more would be rounded to 1,000
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"


def human_seconds(seconds: float) -> str:
    """Return a duration: `85 µs`, `4.2 ms`, `0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 10 min`; `∞` for a virtual one."""
    if seconds == inf:
        return "∞"
    if 0 < seconds < SHORT:
        return f"{1e3 * seconds:.3g} ms" if seconds >= SHORT / 1e3 else f"{1e6 * seconds:.0f} µs"
    if seconds < MINUTE:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE:02d} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} min"


def percent(share: float) -> str:
    """Return a share in percent: `81.3 %`."""
    return f"{100 * share:.1f} %"
