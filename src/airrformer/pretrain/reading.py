"""Batches of receptors as tokens: which of them, in which form, and what each token is.

A receptor is one chain, or with ``pairs`` its two chains together. A chain is written whole, as its junction, or as its
CDRs; where several forms are named, each receptor of an epoch is in one of them, drawn by the seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from airrformer.core import alphabet
from airrformer.core.batching import token_batches
from airrformer.core.config import ModelConfig
from airrformer.core.writing import LOOP_END, ids_of, write
from airrformer.pretrain.corpus import Part
from airrformer.receptors.tables import REGIONS

FORMS = ("chain", "junction", "cdrs")
LOOPS = ("cdr1", "cdr2", "cdr3")
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
        for i, form in enumerate(self.forms):
            residues = [len(self._text(row, form)) for row in range(len(chains))]
            rows[i, :-1] = np.array(residues) + self.config.tags + len(self.config.after)
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

    def drawn_forms(self, generator: torch.Generator) -> np.ndarray:
        """One of the forms for each receptor, int64 (n,): the shorter the oftener, so that each has as many tokens."""
        if len(self.forms) == 1:
            return np.zeros(len(self), dtype=np.int64)
        rates = torch.from_numpy(1 / self.lengths.mean(1))
        return torch.multinomial(rates, len(self), replacement=True, generator=generator).numpy()

    def batch(self, rows: Sequence[int], forms: np.ndarray) -> Tokens:
        """The receptors of ``rows``, each in the form that ``forms`` (n,) has for it."""
        parts: list[list[np.ndarray]] = [[], [], [], []]
        for row in rows:
            chains = [chain for chain in self.members[row] if chain >= 0]
            texts = [self._text(chain, self.forms[forms[row]]) for chain in chains]
            dataset = self._dataset[chains[0]]
            species = (self.species or {}).get(dataset)
            written = write([ids_of(t) for t in texts], self.config, [self._loci[c] for c in chains], species)
            regions, owner = np.zeros(len(written.tokens), dtype=np.int64), np.full(len(written.tokens), -1)
            known = [self._regions(chain, self.forms[forms[row]]) for chain in chains]
            regions[written.residues] = np.concatenate(known)
            owner[written.residues] = np.repeat(range(len(chains)), [len(part) for part in known])
            for part, values in zip(parts, (written.tokens, written.segments, regions, owner)):
                part.append(values)
        return Tokens(*(_padded(part, value) for part, value in zip(parts, FILL)), torch.tensor(rows))

    @cached_property
    def _dataset(self) -> list[str]:
        return self.part.chains["dataset"].tolist()

    @cached_property
    def _loci(self) -> list[str | None]:
        return [locus if isinstance(locus, str) else None for locus in self.part.chains["locus"]]

    @cached_property
    def _sequences(self) -> list[str]:
        return self.part.chains["sequence_aa"].tolist()

    @cached_property
    def _bounds(self) -> np.ndarray:
        """int32 (chains, regions, 2); -1 where a region is not known."""
        columns = [f"{region}_{end}" for region in REGIONS for end in ("start", "end")]
        return (
            self.part.chains[columns].astype("Int32").fillna(-1).to_numpy(dtype=np.int32).reshape(-1, len(REGIONS), 2)
        )

    def _spans(self, row: int, form: str) -> list[tuple[int, int]] | None:
        """What of a chain is written; None: all of it, for the regions that the form asks for are not known."""
        loops = self._bounds[row, [REGIONS.index(loop) for loop in LOOPS]]
        if form == "cdrs" and (loops[:, 1] > loops[:, 0]).all() and loops.min() >= 0:
            return [tuple(span) for span in loops.tolist()]
        start, end = loops[-1].tolist()
        if form == "junction" and 0 < start < end < len(self._sequences[row]):
            return [(start - 1, end + 1)]
        return None

    def _text(self, row: int, form: str) -> str:
        sequence, spans = self._sequences[row], self._spans(row, form)
        return sequence if spans is None else LOOP_END.join(sequence[start:end] for start, end in spans)

    def _regions(self, row: int, form: str) -> np.ndarray:
        codes = np.zeros(len(self._sequences[row]), dtype=np.int64)
        for code, (start, end) in enumerate(self._bounds[row].tolist(), start=1):
            if 0 <= start < end:
                codes[start:end] = code
        spans = self._spans(row, form)
        return codes if spans is None else np.concatenate([codes[start:end] for start, end in spans])


def cdr3_weights(regions: Tensor, weight: float) -> Tensor:
    """How readily each token is hidden, float (B, L): ``weight`` in the CDR3, 1 elsewhere."""
    return torch.where(regions == LOOP_CODES[-1], weight, 1.0)


def endless_batches(
    reader: Reader, batch_tokens: int, generator_of, first: int, groups: np.ndarray | None = None
) -> Iterator[Tokens]:
    """Receptors for each step, epoch after epoch, from step ``first`` on.

    ``generator_of(epoch)`` draws. With ``groups`` (n,) an epoch has one receptor of each group, else all.
    """
    steps = (
        (rows, forms) for epoch in count() for rows, forms in _epoch(reader, batch_tokens, generator_of(epoch), groups)
    )
    for rows, forms in islice(steps, first, None):
        yield reader.batch(rows, forms)


def _epoch(
    reader: Reader, batch_tokens: int, generator: torch.Generator, groups: np.ndarray | None
) -> list[tuple[list[int], np.ndarray]]:
    order = torch.randperm(len(reader), generator=generator).numpy()
    if groups is not None:
        order = order[np.sort(np.unique(groups[order], return_index=True)[1])]  # the first of each
    forms = reader.drawn_forms(generator)
    lengths = reader.lengths[forms, np.arange(len(reader))]
    return [(rows, forms) for rows in mixed_batches(lengths, order, batch_tokens, generator)]


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
