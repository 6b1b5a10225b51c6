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


class PairNetwork(nn.Module):
    """Log-odds that a receptor binds a peptide, from tokens of the core: blocks, a weighted mean, one hidden layer.

    form: ``cross``: residues of one look at those of the other, which has been read before: those of the receptor, of
    the ``peptide``, or ``both``, side by side. ``joint``: one stack reads both as one sequence.
    """

    def __init__(self, config: ModelConfig, form: str, looks: str, dropout: float) -> None:
        super().__init__()
        self.form = form
        sides = [""] if form == "joint" else ["receptor", "peptide"] if looks == "both" else [looks]
        self.readers = nn.ModuleDict({f"by_{side}": Reader(config, form == "cross") for side in sides})
        self.pools = nn.ModuleDict({name: AttentionHead(config.width, config.width, 0, 0.0) for name in self.readers})
        self.top = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(len(sides) * config.width, config.width), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(config.width, 1)),
        )
        for reader in self.readers.values():
            initialise(reader, torch.default_generator)

    def forward(self, pairs: Pairs) -> Tensor:
        """(B, 1)."""
        found = [
            self.pools[name](*self._states(reader, name, pairs)) for name, reader in self.readers.items()
        ]  # of each (B, W)
        return self.top(torch.cat(found, dim=1))

    def _states(self, reader: Reader, name: str, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Hidden states (B, L, W) of each pair's residues, and which they are, bool (B, L)."""
        receptors, peptides, i, j = pairs
        if self.form == "joint":
            both = joined(receptors.rows(i), peptides.rows(j))
            return reader.read(both), both.residues
        if name == "by_receptor":
            asking, answering, i, j = receptors, peptides, i, j
        else:
            asking, answering, i, j = peptides, receptors, j, i
        memory, seen = reader.read(answering), answering.ids != PAD
        asking = asking.rows(i)
        return reader.look(asking, memory[j], seen[j]), asking.residues


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
