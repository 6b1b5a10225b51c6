"""Progress that fits its place: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_LINE_SECONDS = 15.0  # between two lines in a log


def track(items: Iterable[T], total: int, description: str, logger: logging.Logger) -> Iterator[T]:
    """Yield ``items``; ``total`` is their number, for the bar and the lines."""
    if sys.stderr.isatty() and total > 1:
        from rich.console import Console
        from rich.progress import track as bar

        yield from bar(items, description=description, total=total, console=Console(stderr=True), transient=True)
        return
    last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - last > _LINE_SECONDS:
            last = time.monotonic()
            logger.info("%s: %d of %d", description, done, total)
