"""Which sequences go through the model together, and how they lie there without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

Run = tuple[int, int]  # so many rows, each of so many tokens


@dataclass(frozen=True)
class Line:
    """The tokens of padded rows (B, L) in one line (T,), the rows by their length, without the padding.

    place: where each token stands among the B L, int64 (T,). at: where in its row, int64 (T,). runs: the rows of each
    length in turn. shape: (B, L).
    """

    place: Tensor
    at: Tensor
    runs: tuple[Run, ...]
    shape: tuple[int, int]

    @classmethod
    def of(cls, token_mask: Tensor) -> Line | None:
        """From ``token_mask`` (B, L); None where padding stands elsewhere than on the right."""
        columns = torch.arange(token_mask.shape[1], device=token_mask.device)
        lengths = token_mask.sum(1)
        if not torch.equal(token_mask, columns < lengths[:, None]):
            return None
        order = lengths.argsort(stable=True)
        rows, at = token_mask[order].nonzero(as_tuple=True)
        runs = tuple((len(list(of)), length) for length, of in groupby(lengths[order].tolist()))
        return cls(order[rows] * token_mask.shape[1] + at, at, runs, tuple(token_mask.shape))

    def join(self, padded: Tensor) -> Tensor:
        """(B, L, ...) -> (T, ...)."""
        return padded.flatten(0, 1).index_select(0, self.place)

    def padded(self, joined: Tensor) -> Tensor:
        """(T, D) -> (B, L, D), 0 where there is padding."""
        return (
            joined.new_zeros(self.shape[0] * self.shape[1], joined.shape[1])
            .index_copy(0, self.place, joined)
            .unflatten(0, self.shape)
        )

    def rows(self, joined: Tensor) -> list[Tensor]:
        """(T, ...) -> for each run (n, L, ...)."""
        parts = joined.split([n * length for n, length in self.runs])
        return [part.unflatten(0, run) for part, run in zip(parts, self.runs)]


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
