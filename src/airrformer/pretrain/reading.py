"""Batches of receptors as tokens: which of them, in which form, and what each token is.

A receptor is one chain, or with ``pairs`` its two chains together. A chain is written whole, as its junction, or as its
CDRs; where several forms are named, each receptor of an epoch is in one of them, drawn by the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from airrformer.core import alphabet
from airrformer.core.batching import token_batches
from airrformer.core.config import ModelConfig
from airrformer.core.writing import LOOP_END, ids_of, write
from airrformer.pretrain.corpus import Part
from airrformer.receptors.forms import bounds_of, written_chains
from airrformer.receptors.loops import LOOPS
from airrformer.receptors.tables import REGIONS

# What a token is: 0 no residue of a known region, then REGIONS in order.
LOOP_CODES = tuple(1 + REGIONS.index(loop) for loop in LOOPS)


class Tokens(NamedTuple):
    """A batch, int64 (B, L): ids, segments, the region of each token (0: none) and which chain it is of (-1: none).

    Rows are padded on the right with ``<pad>``, segment 0, region 0 and chain -1. ``rows`` (B,): which receptors.
    """

    ids: Tensor
    segments: Tensor
    regions: Tensor
    chains: Tensor
    rows: Tensor


FILL = (alphabet.PAD, 0, 0, -1)  # what rows of each of the first four are padded with
_AT_ONCE = 100_000  # chains written together to be measured


@dataclass
class Reader:
    """Writes the receptors of ``part`` as the model of ``config`` reads them.

    forms: in which a chain may be written. species: of each dataset, where it is known.
    pairs: whether the chains of a receptor stand together; else each distinct chain is read by itself.
    """

    part: Part
    config: ModelConfig
    forms: tuple[str, ...] = ("chain",)
    pairs: bool = False
    species: dict[str, str | None] | None = None

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def members(self) -> np.ndarray:
        """int64 (n, 2): rows of the chains of what is read; -1 where there is no second."""
        if self.pairs:
            return self.part.receptors
        return np.stack([np.arange(len(self.part.chains)), np.full(len(self.part.chains), -1)], axis=1)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each receptor in each of the forms, int64 (forms, n)."""
        chains, around = self.part.chains, len(self.config.before) + self.config.tags
        rows = np.zeros((len(self.forms), len(chains) + 1), dtype=np.int64)  # the last row: no second chain
        for form in range(len(self.forms)):
            for start in range(0, len(chains), _AT_ONCE):
                some = np.arange(start, min(start + _AT_ONCE, len(chains)))
                rows[form, some] = [*map(len, self._written(some, form)[0])]
        rows[:, :-1] += self.config.tags + len(self.config.after)
        return around + rows[:, self.members[:, 0]] + rows[:, self.members[:, 1]]

    @cached_property
    def labels(self) -> np.ndarray:
        """int64 (n,): as those of ``part``. A chain that several receptors have is told by the last of them."""
        if self.pairs:
            return self.part.labels
        found = np.full(len(self), -1, dtype=np.int64)
        known = self.part.labels >= 0
        for chain in self.part.receptors.T:
            there = known & (chain >= 0)
            found[chain[there]] = self.part.labels[there]
        return found

    @cached_property
    def kinds(self) -> np.ndarray:
        """The loci of each receptor, as numbers from 0: int64 (n,)."""
        loci = np.array([*(locus or "" for locus in self._loci), ""], dtype=str)  # the last: no second chain
        return np.unique(loci[self.members], axis=0, return_inverse=True)[1].ravel()

    def drawn_forms(self, generator: torch.Generator) -> np.ndarray:
        """One of the forms for each receptor, int64 (n,): the shorter the oftener, so that each has as many tokens."""
        if len(self.forms) == 1:
            return np.zeros(len(self), dtype=np.int64)
        rates = torch.from_numpy(1 / self.lengths.mean(1))
        return torch.multinomial(rates, len(self), replacement=True, generator=generator).numpy()

    def batch(self, rows: Sequence[int], forms: np.ndarray) -> Tokens:
        """The receptors of ``rows``, each in the form that ``forms`` (n,) has for it."""
        parts: list[list[np.ndarray]] = [[], [], [], []]
        for chains, texts, bounds in self._read(rows, forms):
            species = (self.species or {}).get(self._dataset[chains[0]])
            written = write([*map(ids_of, texts)], self.config, [self._loci[c] for c in chains], species)
            owner = np.full(len(written.tokens), -1)
            owner[written.residues] = written.segments[written.residues]
            regions = np.zeros(len(written.tokens), dtype=np.int64)
            for i, of_chain in enumerate(bounds):
                residues = np.flatnonzero(owner == i)
                for code, (start, end) in enumerate(of_chain.tolist(), start=1):
                    regions[residues[start:end]] = code
            for part, values in zip(parts, (written.tokens, written.segments, regions, owner)):
                part.append(values)
        return Tokens(*(_padded(part, value) for part, value in zip(parts, FILL)), torch.tensor(rows))

    @cached_property
    def _dataset(self) -> list[str]:
        return self.part.chains["dataset"].tolist()

    @cached_property
    def _loci(self) -> list[str | None]:
        return [locus if isinstance(locus, str) else None for locus in self.part.chains["locus"]]

    def _read(self, rows: Sequence[int], forms: np.ndarray) -> Iterator[tuple[np.ndarray, list[str], list[np.ndarray]]]:
        """Of each receptor its chains, these as text, and the bounds of their regions, int (regions, 2) each."""
        rows = np.asarray(rows)
        found = {}
        for form in np.unique(forms[rows]).tolist():
            members = self.members[rows[forms[rows] == form]]
            chains = members[members >= 0]
            texts, bounds = self._written(chains, form)
            found |= {(form, chain): of for chain, *of in zip(chains.tolist(), texts, np.stack([*bounds.values()], 1))}
        for row in rows:
            chains = self.members[row][self.members[row] >= 0]
            texts, bounds = zip(*(found[forms[row], chain] for chain in chains.tolist()))
            yield chains, texts, bounds

    def _written(self, chains: np.ndarray, form: int) -> tuple[list[str], dict[str, np.ndarray]]:
        """Some chains in one of the forms: written when they are read, for a corpus may have millions."""
        return written_chains(self._sequences[chains], self._bounds[chains], self.forms[form], LOOP_END)

    @cached_property
    def _sequences(self) -> np.ndarray:
        return self.part.chains["sequence_aa"].to_numpy(dtype=object)

    @cached_property
    def _bounds(self) -> np.ndarray:
        return bounds_of(self.part.chains)


def cdr3_weights(regions: Tensor, weight: float) -> Tensor:
    """How readily each token is hidden, float (B, L): ``weight`` in the CDR3, 1 elsewhere."""
    return torch.where(regions == LOOP_CODES[-1], weight, 1.0)


def endless_batches(
    reader: Reader,
    batch_tokens: int,
    generator_of: Callable[[int], torch.Generator],
    first: int,
    groups: np.ndarray | None = None,
    balance: float = 0.0,
) -> Iterator[Tokens]:
    """Receptors for each step, epoch after epoch, from step ``first`` on.

    ``generator_of(epoch)`` draws. With ``groups`` (n,) an epoch has one receptor of each group, else all. ``balance``:
    see ``balanced``.
    """
    steps = (batch for epoch in count() for batch in _epoch(reader, batch_tokens, generator_of(epoch), groups, balance))
    for rows, forms in islice(steps, first, None):
        yield reader.batch(rows, forms)


def _epoch(
    reader: Reader, batch_tokens: int, generator: torch.Generator, groups: np.ndarray | None, balance: float
) -> list[tuple[list[int], np.ndarray]]:
    order = torch.randperm(len(reader), generator=generator).numpy()
    if groups is not None:
        order = order[np.sort(np.unique(groups[order], return_index=True)[1])]  # the first of each
    if balance:
        order = order[balanced(reader.kinds[order], balance)]
    forms = reader.drawn_forms(generator)
    lengths = reader.lengths[forms, np.arange(len(reader))]
    return [(rows, forms) for rows in mixed_batches(lengths, order, batch_tokens, generator)]


def balanced(kinds: np.ndarray, balance: float) -> np.ndarray:
    """Which of the rows, of some ``kinds`` (n,), an epoch has: bool (n,); the first of each kind.

    Of a kind with n in proportion to n ** (1 - balance), all of the rarest.
    """
    _, of, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    most = np.ceil(counts ** (1 - balance) * min(counts, default=1) ** balance - 1e-9)
    return pd.Series(of).groupby(of).cumcount().to_numpy() < most[of]


def mixed_batches(
    lengths: np.ndarray, order: np.ndarray, batch_tokens: int, generator: torch.Generator
) -> list[list[int]]:
    """The rows of ``order``, each once, in batches of similar ``lengths`` in random order.

    Lengths are stretched at random by up to a tenth before they are sorted: batches differ from epoch to epoch and
    hold chains of several kinds, while little of them is padding.
    """
    stretched = torch.tensor(lengths[order]) * (1 + 0.1 * torch.rand(len(order), generator=generator))
    batches = token_batches(stretched.ceil().int().tolist(), batch_tokens)
    return [order[batches[b]].tolist() for b in torch.randperm(len(batches), generator=generator).tolist()]


def _padded(rows: list[np.ndarray], value: int) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], True, value)
