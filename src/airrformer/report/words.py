"""How numbers are written, everywhere on the page the same."""

from __future__ import annotations

from collections.abc import Iterable

UNDEFINED = "undefined"


def decimals(value: float | None, places: int = 2) -> str:
    """``0.81``; ``undefined`` for what has no value. A true minus sign, and no minus before zero."""
    if value is None or value != value:
        return UNDEFINED
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "\u2212")


def interval(metric: dict | None, places: int = 2) -> str:
    """``[0.78, 0.84]``, or nothing where there is no interval."""
    if not metric or metric.get("low") is None or metric.get("high") is None:
        return ""
    return f"[{decimals(metric['low'], places)}, {decimals(metric['high'], places)}]"


def over_classes(metric: dict) -> str:
    """The interval of a macro mean over receptors and classes, where there is one of its own: not with one class."""
    ends = {"low": metric.get("low_classes"), "high": metric.get("high_classes")}
    same = all(ends[end] == metric.get(end) for end in ends)
    return f"classes {interval(ends)}" if interval(ends) and not same else ""


def estimate(metric: dict | None) -> str:
    """A metric with its interval.

    >>> estimate({"value": 0.8123, "low": 0.779, "high": 0.84})
    '0.81 [0.78, 0.84]'
    """
    return f"{decimals((metric or {}).get('value'))} {interval(metric)}".rstrip()


def difference(first: dict | None, second: dict | None) -> float | None:
    """first - second of the values as they are shown, so that a reader who subtracts gets the same."""
    values = [(metric or {}).get("value") for metric in (first, second)]
    return None if None in values else round(round(values[0], 2) - round(values[1], 2), 2)


def signed(value: float | None, places: int = 2) -> str:
    return UNDEFINED if value is None else ("+" if value > 0 else "") + decimals(value, places)


def p_value(p: float | None) -> str:
    """``0.034``, ``0.31``, ``< 0.001``; ``unknown`` where there was no test."""
    if p is None or p != p:
        return "unknown"
    return "< 0.001" if p < 0.001 else decimals(p, 3 if p < 0.1 else 2)


def count(value: float | None, noun: str = "", plural: str | None = None) -> str:
    """``1,450 receptors``; ``1 receptor``."""
    shown = "?" if value is None else f"{int(value):,}"
    if noun:
        shown += " " + (noun if value == 1 else plural or noun + "s")
    return shown


def percent(part: float, whole: float) -> str:
    """``3.1 %``; any part at all is at least ``< 0.1 %``; its blank does not break."""
    if not whole:
        return UNDEFINED
    share = 100 * part / whole
    return "< 0.1\u00a0%" if 0 < share < 0.05 else f"{share:.1f}\u00a0%"


def listing(items: Iterable[object], limit: int | None = None) -> str:
    """``a, b and c``; past the limit ``a, b and 7 more``."""
    items = [str(item) for item in items]
    if limit is not None and len(items) > limit + 1:
        items = [*items[:limit], f"{len(items) - limit} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


def shorten(value: object, length: int = 60) -> str:
    value = str(value)
    return value if len(value) <= length else value[: length - 1] + "…"
