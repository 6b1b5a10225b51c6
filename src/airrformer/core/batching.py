"""Which sequences go through the model together: batches of at most so many tokens, order left to the caller."""

from __future__ import annotations

from collections.abc import Sequence


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
