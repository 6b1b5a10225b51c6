"""What is asked of a model in training, and of what batches. Here: the hidden residues of chains.

An objective gives ``train_batches`` and ``validation_batches``, tuples of tensors on the CPU, and the ``loss`` of one.
Every random draw depends on the seed, on what it is for and on the number of the step or epoch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from airrformer.config import TrainSettings
from airrformer.core.batching import token_batches
from airrformer.core.transformer import Transformer
from airrformer.pretrain import masking

Batch = tuple[Tensor, ...]

# One number a purpose, so that no two draws share a stream.
WEIGHTS, EPOCH, STEP, VALIDATION, MEASURE = range(5)


def draws(seed: int, purpose: int, number: int = 0) -> torch.Generator:
    """The generator of everything that is drawn for one purpose at one step or epoch."""
    state = np.random.SeedSequence((seed, purpose, number)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


class Loss(NamedTuple):
    """Mean cross-entropy of what was to be guessed, in nats; how much of it was guessed right; how much it was."""

    mean: Tensor
    right: Tensor
    n: int


class Objective(Protocol):
    def train_batches(self, first: int) -> Iterator[Batch]:
        """Without end, from step ``first`` on."""

    def validation_batches(self) -> list[Batch]:
        """The same ones at every call, drawn by the seed."""

    def loss(self, model: Transformer, batch: Batch) -> Loss:
        """Of one batch, on the model's device."""


def cross_entropy(model: Transformer, hidden: Tensor, targets: Tensor, smoothing: float) -> Loss:
    """Of the last states (n, D) against the true tokens (n,). The labels are smoothed in training alone."""
    logits = model.logits(hidden).float()
    mean = F.cross_entropy(logits, targets, label_smoothing=smoothing if model.training else 0.0)
    return Loss(mean, (logits.argmax(-1) == targets).sum(), len(targets))


@dataclass
class HiddenResidues:
    """Guess hidden residues from all others (Devlin et al. 2019).

    ``train`` and ``validation`` are encoded sequences; ``weights``, one number a token of each training sequence, says
    how readily it is hidden in training.
    """

    train: Sequence[list[int]]
    validation: Sequence[list[int]]
    settings: TrainSettings
    seed: int
    weights: Sequence[Tensor] | None = None

    def train_batches(self, first: int) -> Iterator[Batch]:
        for step, rows in enumerate(endless_rows(self.train, self.settings, self.seed, first), start=first):
            tokens = masking.pad([self.train[row] for row in rows])
            weights = pad_sequence([self.weights[row] for row in rows], True, 1.0) if self.weights else None
            yield self._hide(tokens, draws(self.seed, STEP, step), weights)

    def validation_batches(self) -> list[Batch]:
        generator = draws(self.seed, VALIDATION)
        return [
            self._hide(tokens, generator)
            for _, tokens in masking.padded_batches(self.validation, self.settings.batch_tokens)
        ]

    def loss(self, model: Transformer, batch: Batch) -> Loss:
        hidden_tokens, chosen, targets = batch
        # (B, L, D) -> (chosen, D): the head runs where there is something to guess, nowhere else
        return cross_entropy(model, model(hidden_tokens)[chosen], targets, self.settings.label_smoothing)

    def _hide(self, tokens: Tensor, generator: torch.Generator, weights: Tensor | None = None) -> Batch:
        hidden, chosen = masking.mask_residues(tokens, self.settings.mask_fraction, generator, weights)
        return hidden, chosen, tokens[chosen]


def endless_rows(encoded: Sequence[list[int]], settings: TrainSettings, seed: int, first: int) -> Iterator[list[int]]:
    """Rows of the training set for each step, epoch after epoch, from step ``first`` on."""
    steps = (rows for epoch in count() for rows in epoch_rows(encoded, settings, draws(seed, EPOCH, epoch)))
    return islice(steps, first, None)


def epoch_rows(encoded: Sequence[list[int]], settings: TrainSettings, generator: torch.Generator) -> list[list[int]]:
    """Every row once, in batches of similar lengths in random order.

    Lengths are stretched at random by up to a tenth before they are sorted: batches differ from epoch to epoch and
    hold chains of several kinds, while little of them is padding.
    """
    lengths = torch.tensor([len(row) for row in encoded])
    order = torch.randperm(len(lengths), generator=generator)
    stretched = lengths[order] * (1 + 0.1 * torch.rand(len(lengths), generator=generator))
    batches = token_batches(stretched.ceil().int().tolist(), settings.batch_tokens)
    return [[int(order[i]) for i in batches[b]] for b in torch.randperm(len(batches), generator=generator).tolist()]
