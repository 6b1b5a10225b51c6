"""Networks that read a receptor and a peptide together: tokens of both -> one log-odds a pair.

Letters in shape comments: B pairs, R receptors, Q peptides, L tokens of a receptor, S tokens of a peptide, W width.
Each receptor and each peptide of a batch comes once, and pairs say by position which two they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from airrformer.classify.heads import AttentionHead
from airrformer.classify.training import picked
from airrformer.core.alphabet import CLS, EOS, ID, PAD, RESIDUES, UNK
from airrformer.core.config import SEPARATOR, ModelConfig
from airrformer.core.transformer import Stack, initialise

FORMS = ("cross", "joint")
LOOKS = ("receptor", "peptide", "both")

_IDS = np.full(256, UNK, dtype=np.int64)
for _letter in RESIDUES:
    _IDS[[ord(_letter), ord(_letter.lower())]] = ID[_letter]


class Tokens(NamedTuple):
    """Rows of tokens, padded on the right: int64 (n, L) each, and the number of tokens of each row, int64 (n,).

    segments: which loop a token is of, or for a peptide one more.
    """

    ids: Tensor
    segments: Tensor
    lengths: Tensor

    def rows(self, rows: Tensor) -> Tokens:
        """Some of them, without the columns that are padding to all of these."""
        lengths = self.lengths[rows]
        most = int(lengths.max()) if len(lengths) else 0
        return Tokens(self.ids[rows, :most], self.segments[rows, :most], lengths)

    def to(self, device: torch.device) -> Tokens:
        return Tokens(*(part.to(device) for part in self))

    @property
    def residues(self) -> Tensor:
        """What is no start, end, padding or separator: bool (n, L)."""
        return (self.ids != PAD) & (self.ids != CLS) & (self.ids != EOS) & (self.ids != SEPARATOR)


def write_loops(columns: Sequence[Sequence[str]]) -> Tokens:
    """Receptors by the loops of each column: <cls> loop | loop | loop <eos>; other letters are <unk>."""
    rows, segments = [], []
    for loops in zip(*columns, strict=True):
        row, segment = [np.array([CLS])], [0]
        for place, loop in enumerate(loops):
            row += [_ids(loop), np.array([EOS if place == len(loops) - 1 else SEPARATOR])]
            segment += [place] * (len(loop) + 1)
        rows.append(np.concatenate(row))
        segments.append(np.array(segment))
    return _padded(rows, segments)


def write_peptides(peptides: Sequence[str], segment: int) -> Tokens:
    """<cls> peptide <eos>, all of one segment."""
    rows = [np.concatenate([[CLS], _ids(peptide), [EOS]]) for peptide in peptides]
    return _padded(rows, [np.full(len(row), segment) for row in rows])


def _ids(text: str) -> np.ndarray:
    return _IDS[np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8)]


def _padded(rows: list[np.ndarray], segments: list[np.ndarray]) -> Tokens:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    there = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids, places = np.full(there.shape, PAD, dtype=np.int64), np.zeros(there.shape, dtype=np.int64)
    if len(rows):
        ids[there], places[there] = np.concatenate(rows), np.concatenate(segments)
    return Tokens(*map(torch.from_numpy, (ids, places, lengths)))


class Pairs(NamedTuple):
    """B pairs of R receptors and Q peptides: which receptor and which peptide each is of, int64 (B,)."""

    receptors: Tokens
    peptides: Tokens
    of_receptor: Tensor
    of_peptide: Tensor


class Reader(nn.Module):
    """One stack of the core; with ``looks`` a second one, whose residues look at what the first has read.

    Named as ``Transformer`` names its stacks, for ``initialise``; a ``Transformer`` of two has no segments.
    """

    def __init__(self, config: ModelConfig, looks: bool) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config, config.layers, config.alphabet_size)
        self.decoder = Stack(config, config.layers, config.alphabet_size, cross=True) if looks else None

    def read(self, tokens: Tokens) -> Tensor:
        """Last hidden states (n, L, W) of the first stack."""
        return self.encoder(tokens.ids, (self.config.layers,), tokens.segments)[0]

    def look(self, tokens: Tokens, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Last hidden states (B, L, W) of ``tokens`` beside a memory (B, S, W), of which the mask (B, S) is seen."""
        return self.decoder(tokens.ids, (self.config.layers,), tokens.segments, memory, source_mask)[0]


class Mean(nn.Module):
    """A weighted mean of residue states (n, L, W), in units of its spread: what most rows share is taken off.

    The mean over fifty residues is nearly the same for all receptors; as it is, a network takes hundreds of steps to
    see how they differ.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pool = AttentionHead(width, width, 0, 0.0)
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """(n, W)."""
        return (self.pool(states, mask) - self.shift) / self.spread

    def learn_scale(self, states: Tensor, mask: Tensor) -> None:
        found = self.pool(states, mask)
        spread = found.std(0, correction=0)
        self.shift.copy_(found.mean(0))
        self.spread.copy_(torch.where(spread > 1e-3, spread, 1.0))


class PairNetwork(nn.Module):
    """Log-odds that a receptor binds a peptide: blocks of the core, weighted means of both, and their product.

    form: ``cross``: residues of one look at those of the other, which has been read before: those of the receptor, of
    the ``peptide``, or ``both``, side by side. ``joint``: one stack reads both as one sequence.

    What tells is how the two go together, and neither by itself. A hidden layer on one mean alone is slow to find that
    out (hundreds of steps at chance); the product of the means says it from the first step on.
    """

    def __init__(self, config: ModelConfig, form: str, looks: str, dropout: float) -> None:
        super().__init__()
        self.form = form
        sides = [""] if form == "joint" else ["receptor", "peptide"] if looks == "both" else [looks]
        width = config.width
        self.readers = nn.ModuleDict({f"by_{side}": Reader(config, form == "cross") for side in sides})
        self.own = nn.ModuleDict({name: Mean(width) for name in self.readers})
        self.other = nn.ModuleDict({name: Mean(width) for name in self.readers})
        self.hidden = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(2 * len(sides) * width, width), nn.ReLU(), nn.Dropout(dropout))
        )
        self.output = nn.Linear(width + len(sides) * width, 1)
        nn.init.zeros_(self.output.weight)  # sums of products are large at first
        for reader in self.readers.values():
            initialise(reader, torch.default_generator)

    def forward(self, pairs: Pairs) -> Tensor:
        """(B, 1)."""
        means, products = [], []
        for name, reader in self.readers.items():
            own, other = self._states(reader, name, pairs)
            left, right = self.own[name](*own), self.other[name](*other)  # (B, W)
            if self.form == "cross":
                right = picked(right, pairs.of_peptide if name == "by_receptor" else pairs.of_receptor)
            means, products = [*means, left], [*products, left * right]
        return self.output(torch.cat([self.hidden(torch.cat([*means, *products], dim=1)), *products], dim=1))

    def learn_scale(self, pairs: Pairs) -> None:
        """Centre and spread of the means, as they are in these pairs."""
        with torch.inference_mode():
            for name, reader in self.readers.items():
                for mean, states in zip((self.own[name], self.other[name]), self._states(reader, name, pairs)):
                    mean.learn_scale(*states)

    def _states(self, reader: Reader, name: str, pairs: Pairs) -> tuple[Part, Part]:
        """Hidden states (B, L, W) of residues that look, which they are, bool (B, L), and the same of the others.

        In the form ``cross`` the others are as they were read before: (Q, S, W), or (R, L, W).
        """
        receptors, peptides, i, j = pairs
        if self.form == "joint":
            both = joined(receptors.rows(i), peptides.rows(j))
            states, ours = reader.read(both), both.segments < peptides.segments[:, :1].max()
            return (states, both.residues & ours), (states, both.residues & ~ours)
        if name == "by_receptor":
            asking, answering, i, j = receptors, peptides, i, j
        else:
            asking, answering, i, j = peptides, receptors, j, i
        memory, seen = reader.read(answering), answering.ids != PAD
        asking = asking.rows(i)
        return (reader.look(asking, picked(memory, j), seen[j]), asking.residues), (memory, answering.residues)


Part = tuple[Tensor, Tensor]


def joined(left: Tokens, right: Tokens) -> Tokens:
    """Rows of ``left`` with those of ``right`` behind them, without padding in between."""
    lengths = left.lengths + right.lengths
    places = torch.arange(int(lengths.max()) if len(lengths) else 0, device=lengths.device)
    first = places < left.lengths[:, None]
    second = (places < lengths[:, None]) & ~first
    ids, segments = torch.full(first.shape, PAD, device=lengths.device), torch.zeros_like(first, dtype=torch.int64)
    for where, part in ((first, left), (second, right)):
        there = part.ids != PAD
        ids[where], segments[where] = part.ids[there], part.segments[there]
    return Tokens(ids, segments, lengths)
