"""Which sequences go through the model together: batches of at most so many tokens, order left to the caller."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

# Rows of tokens in one line without any padding, (T,): how many rows there are and how long each is, for each length in
# turn, such as ((2, 17), (3, 18)) of 88 tokens.
Runs = tuple[tuple[int, int], ...]


def token_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices into ``lengths``, grouped so that rows x longest row <= ``batch_tokens``; similar lengths together.

    Sorting by length keeps padding small. A row longer than the budget is a batch of its own. Every index occurs once.

    >>> token_batches([5, 9, 5, 8], batch_tokens=18)
    [[0, 2], [3, 1]]
    """
    batches: list[list[int]] = []
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        # ascending, so that row i is the longest of the batch that it joins
        if batch and (len(batch) + 1) * lengths[i] > batch_tokens:
            batches.append(batch)
            batch = []
        batch.append(i)
    return [*batches, batch] if batch else batches


def line_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices into ``lengths``, the shortest first, in batches of about ``batch_tokens`` tokens in line.

    A row longer than the budget is a batch of its own. Every index occurs once.

    >>> line_batches([5, 9, 5, 8], batch_tokens=18)
    [[0, 2, 3], [1]]
    """
    batches: list[list[int]] = []
    left = 0
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if lengths[i] > left:
            batches.append([])
            left = batch_tokens
        batches[-1].append(i)
        left -= lengths[i]
    return batches


def runs_of(lengths: Sequence[int]) -> Runs:
    """
    >>> runs_of([17, 17, 18, 18, 18])
    ((2, 17), (3, 18))
    """
    return tuple((len(list(rows)), length) for length, rows in groupby(lengths))
