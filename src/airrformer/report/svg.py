"""A small drawing kit for SVG that lives inside the page.

Hand-made rather than matplotlib's so that colours are the page's CSS variables (one figure fits the light and the dark
theme and print), text stays text, every figure has alternative text, and equal results give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

MARKERS = 8  # distinct shapes; a class past the eighth repeats a shape with another colour
COLOURS = 8  # .c0 to .c7 in style.css


def number(value: float) -> str:
    """A coordinate in as few characters as a tenth of a pixel needs."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """One element. Attribute values and text are escaped; ``class_`` is class, ``stroke_width`` is stroke-width."""
    parts = [Markup("<") + name]
    for key, value in attributes.items():
        if value is not None:
            shown = number(value) if isinstance(value, float) else value
            parts.append(Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), shown))
    if not children:
        return Markup("").join([*parts, Markup("/>")])
    return Markup("").join([*parts, Markup(">"), *map(escape, children), Markup("</") + name + Markup(">")])


def text(x: float, y: float, content: object, class_: str = "", anchor: str | None = None, **more: object) -> Markup:
    return tag("text", content, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor, **more)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def marker(kind: int, x: float, y: float, r: float) -> str:
    """Path data of one mark of about the same area in each of the ``MARKERS`` shapes."""
    shape = kind % MARKERS
    if shape == 0:  # circle
        return f"M{number(x - r)} {number(y)}a{number(r)} {number(r)} 0 1 0 {number(2 * r)} 0" + (
            f"a{number(r)} {number(r)} 0 1 0 {number(-2 * r)} 0z"
        )
    s, t = 0.88 * r, 1.25 * r
    corners = {
        1: [(-t, 0.85 * r), (t, 0.85 * r), (0, -1.2 * r)],  # triangle
        2: [(-s, -s), (s, -s), (s, s), (-s, s)],  # square
        3: [(0, -t), (t, 0), (0, t), (-t, 0)],  # diamond
        4: [(-t, -0.85 * r), (t, -0.85 * r), (0, 1.2 * r)],  # triangle that stands on its tip
        5: _plus(1.2 * r, 0.4 * r),
        6: [((u + v) * 0.707, (v - u) * 0.707) for u, v in _plus(1.25 * r, 0.4 * r)],  # cross
        7: [(1.15 * r * math.cos(a), 1.15 * r * math.sin(a)) for a in (k * math.pi / 3 for k in range(6))],  # hexagon
    }[shape]
    return "M" + "L".join(f"{number(x + u)} {number(y + v)}" for u, v in corners) + "z"


def _plus(a: float, b: float) -> list[tuple[float, float]]:
    return [(-b, -a), (b, -a), (b, -b), (a, -b), (a, b), (b, b), (b, a), (-b, a), (-b, b), (-a, b), (-a, -b), (-b, -b)]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between low and high, 1, 2 or 5 times a power of ten apart."""
    raw = (high - low) / about
    if not raw > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


class Plot:
    """One panel with linear axes. Coordinates are pixels of a viewBox; the page scales it to the column."""

    def __init__(
        self,
        width: int,
        height: int,
        x_range: tuple[float, float],
        y_range: tuple[float, float] = (0, 1),
        margin: tuple[int, int, int, int] = (14, 14, 42, 48),  # top, right, bottom, left
    ) -> None:
        self.width, self.height = width, height
        self.x_range, self.y_range = x_range, y_range
        self.top, right, bottom, self.left = margin
        self.right, self.bottom = width - right, height - bottom
        self.marks: list[Markup] = []

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def add(self, *marks: Markup) -> None:
        self.marks.extend(marks)

    def x_axis(self, values: Iterable[float], label: str, form: str = "g", grid: bool = True) -> None:
        for value in values:
            at = self.x(value)
            if grid:
                self.add(line(at, self.top, at, self.bottom, "grid"))
            self.add(text(at, self.bottom + 16, format(value, form), "tick", "middle"))
        self.add(text((self.left + self.right) / 2, self.height - 6, label, "axis", "middle"))

    def y_axis(self, values: Iterable[float], label: str, form: str = "g") -> None:
        for value in values:
            at = self.y(value)
            self.add(line(self.left, at, self.right, at, "grid"))
            self.add(text(self.left - 6, at + 4, format(value, form), "tick", "end"))
        middle = (self.top + self.bottom) / 2
        self.add(text(0, 0, label, "axis", "middle", transform=f"translate(12 {number(middle)}) rotate(-90)"))

    def curve(self, points: Sequence[tuple[float, float]], class_: str) -> None:
        if points:
            data = "L".join(f"{number(self.x(x))} {number(self.y(y))}" for x, y in points)
            self.add(tag("path", d="M" + data, class_=f"curve {class_}"))

    def svg(self, slug: str, title: str, description: str) -> Markup:
        return picture(self.width, self.height, slug, title, description, self.marks)


def picture(width: float, height: float, slug: str, title: str, description: str, marks: Iterable[Markup]) -> Markup:
    """The svg element with its alternative text. ``slug`` must be unique on the page."""
    return tag(
        "svg",
        tag("title", title, id=f"{slug}-title"),
        tag("desc", description, id=f"{slug}-desc"),
        *marks,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_labelledby=f"{slug}-title {slug}-desc",
        class_="figure",
        style=f"max-width:{number(width * 1.3)}px",
    )
