"""What is asked of a model in training, and of what batches. Here: the hidden residues of chains, and noised views.

An objective gives ``train_batches`` and ``validation_batches``, tuples of tensors on the CPU, and the ``loss`` of one.
Every random draw depends on the seed, on what it is for and on the number of the step or epoch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count, islice
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from airrformer.config import TrainSettings
from airrformer.core import alphabet
from airrformer.core.batching import token_batches
from airrformer.core.config import ALPHABET_SIZE, ModelConfig
from airrformer.core.transformer import Transformer
from airrformer.pretrain import masking
from airrformer.pretrain.corpus import clusters
from airrformer.pretrain.reading import FILL, LOOP_CODES, Reader, Tokens, cdr3_weights, endless_batches, mixed_batches

Batch = tuple[Tensor, ...]

# One number a purpose, so that no two draws share a stream.
WEIGHTS, EPOCH, STEP, VALIDATION, MEASURE = range(5)


def draws(seed: int, purpose: int, number: int = 0) -> torch.Generator:
    """The generator of everything that is drawn for one purpose at one step or epoch."""
    state = np.random.SeedSequence((seed, purpose, number)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


class Loss(NamedTuple):
    """The mean loss of what was to be guessed, in nats; how much of it was guessed right; how much it was."""

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


# ----------------------------------------------------------------------------------------------------- of encoders


@dataclass
class _OfReceptors:
    """What the objectives of encoders share: receptors from ``train`` and ``validation``, in batches of tokens."""

    train: Reader
    validation: Reader
    settings: TrainSettings
    seed: int

    def train_batches(self, first: int) -> Iterator[Batch]:
        batches = endless_batches(
            self.train,
            self.settings.batch_tokens,
            lambda epoch: draws(self.seed, EPOCH, epoch),
            first,
            self._groups,
            self.settings.balance,
        )
        for step, tokens in enumerate(batches, start=first):
            generator = draws(self.seed, STEP, step)
            tokens = _untagged(tokens, self.settings.hidden_tags, generator)
            yield self._asked(self.train, tokens, generator, self.settings.cdr3_weight)

    def validation_batches(self) -> list[Batch]:
        generator = draws(self.seed, VALIDATION)
        forms = self.validation.drawn_forms(generator)
        lengths = self.validation.lengths[forms, np.arange(len(self.validation))]
        return [
            self._asked(self.validation, self.validation.batch(rows, forms), generator, 1.0)
            for rows in token_batches(lengths.tolist(), self.settings.batch_tokens)
        ]

    def _asked(self, reader: Reader, tokens: Tokens, generator: torch.Generator, cdr3_weight: float) -> Batch:
        """What is asked of a batch of ``reader``; residues of the CDR3 are hidden ``cdr3_weight`` times as readily."""
        raise NotImplementedError

    def _hidden(self, tokens: Tokens, generator: torch.Generator, cdr3_weight: float) -> tuple[Tensor, Tensor]:
        """The ids with some residues hidden, and which were chosen, both (B, L)."""
        weights = cdr3_weights(tokens.regions, cdr3_weight)
        return masking.mask_residues(tokens.ids, self.settings.mask_fraction, generator, weights, self.settings.span)

    @cached_property
    def _groups(self) -> np.ndarray | None:
        """Receptors of which an epoch has one."""
        if self.settings.sampling == "all":
            return None
        return clusters(self.train.part.chains, self.train.members)


class HiddenResidues(_OfReceptors):
    """Guess hidden residues from all others (Devlin et al. 2019)."""

    def _asked(self, reader: Reader, tokens: Tokens, generator: torch.Generator, cdr3_weight: float) -> Batch:
        hidden, chosen = self._hidden(tokens, generator, cdr3_weight)
        return hidden, tokens.segments, chosen, tokens.ids[chosen]

    def loss(self, model: Transformer, batch: Batch) -> Loss:
        tokens, segments, chosen, targets = batch
        # (B, L, D) -> (chosen, D): the head runs where there is something to guess, nowhere else
        return cross_entropy(model, states(model, tokens, segments)[chosen], targets, self.settings.label_smoothing)


@dataclass
class NoisedViews(_OfReceptors):
    """Tell which two noised views are of one receptor, among all of the batch (Chen et al. 2020; SCEPTR, Nagano 2024).

    In a view residues are hidden, others are replaced by ones like them, and one chain of a pair may be missing. Two
    views are compared by the cosine of ``loop_vectors``. ``guess``: how much the hidden residues, which are guessed,
    too, count beside that; 0: they are not. ``supervised``: two receptors of one class belong together as well (Khosla
    et al. 2020).
    """

    guess: float = 0.0
    supervised: bool = False

    def _asked(self, reader: Reader, tokens: Tokens, generator: torch.Generator, cdr3_weight: float) -> Batch:
        views, noised = [], []
        for _ in range(2):
            view = _without_a_chain(tokens, reader.config, self.settings.drop_chain, generator)
            views.append(view)
            changed = view._replace(ids=_replaced(view.ids, self.settings.substitute, generator))
            noised.append(self._hidden(changed, generator, cdr3_weight))
        hidden, chosen = (torch.cat(parts) for parts in zip(*noised))
        twice = Tokens(*(torch.cat(parts) for parts in zip(*views)))
        alike = torch.eye(len(tokens.rows), dtype=torch.bool)
        if self.supervised:
            labels = torch.from_numpy(reader.labels)[tokens.rows]
            alike |= (labels[:, None] == labels) & (labels >= 0)
        return hidden, twice.segments, chosen, twice.ids[chosen], twice.regions, twice.chains, alike

    def loss(self, model: Transformer, batch: Batch) -> Loss:
        tokens, segments, chosen, targets, regions, chains, alike = batch
        found = states(model, tokens, segments)
        one, other = F.normalize(loop_vectors(found, regions, chains), dim=1).chunk(2)
        cosines = one @ other.T / self.settings.temperature  # (n, n)
        mean = (_contrast(cosines, alike) + _contrast(cosines.T, alike)) / 2
        right = alike.gather(1, cosines.argmax(1, keepdim=True)).sum()
        if self.guess:
            mean = mean + self.guess * cross_entropy(model, found[chosen], targets, self.settings.label_smoothing).mean
        return Loss(mean, right, len(one))


def _contrast(cosines: Tensor, alike: Tensor) -> Tensor:
    """Mean over the rows and over what is alike in each of -log softmax; with one in each row the cross-entropy."""
    shares = alike / alike.sum(1, keepdim=True)
    return -(cosines.log_softmax(1) * shares).sum(1).mean()


def loop_vectors(states: Tensor, regions: Tensor, chains: Tensor) -> Tensor:
    """The means over CDR1, CDR2 and CDR3 of both chains, each of length 1, side by side: float (B, 6 D).

    ``states`` (B, L, D); ``regions`` and ``chains`` (B, L) say what each token is. A loop that is not there is 0; of a
    receptor without any known loop the first is the mean over all residues. Loops stand apart, for what they share
    counts whatever the longest of them says: with few references this finds more than one mean over all (README).
    """
    groups = torch.stack([(regions == code) & (chains == chain) for chain in (0, 1) for code in LOOP_CODES], dim=-1)
    groups[..., 0] |= (chains >= 0) & ~groups.any(dim=(1, 2))[:, None]
    groups = groups.to(states.dtype)  # (B, L, 6)
    means = torch.einsum("blg,bld->bgd", groups, states).float() / groups.sum(1).clamp(min=1).unsqueeze(-1)
    return F.normalize(means, dim=2).flatten(1)


def states(model: Transformer, tokens: Tensor, segments: Tensor) -> Tensor:
    """Last hidden states (B, L, D); segments are for models that have any."""
    return model(tokens, segments=segments if model.config.segments else None)


def _untagged(tokens: Tokens, share: float, generator: torch.Generator) -> Tokens:
    """``share`` of the tags become ``<unk>``, as they are where nobody knows them."""
    is_tag = tokens.ids >= ALPHABET_SIZE
    if not is_tag.any():
        return tokens
    hidden = is_tag & (torch.rand(tokens.ids.shape, generator=generator) < share)
    return tokens._replace(ids=tokens.ids.masked_fill(hidden, alphabet.UNK))


def _without_a_chain(tokens: Tokens, config: ModelConfig, share: float, generator: torch.Generator) -> Tokens:
    """In ``share`` of the pairs one chain is not there: the other is written as if it stood alone.

    ``chains`` still says which of the two it is, for its loops are compared with those of the same chain.
    """
    draw = torch.rand(len(tokens.ids), 2, generator=generator)
    paired = (tokens.segments == 1).any(1)
    dropped = torch.where(paired & (draw[:, 0] < share), (draw[:, 1] < 0.5).long(), -1)
    gone = tokens.segments == dropped[:, None]
    gone[:, : len(config.before) + config.tags] = False  # the start and the species are of both
    left = gone.byte().argsort(dim=1, stable=True)  # what is left moves to the left
    ids, segments, regions, chains = (
        part.masked_fill(gone, value).gather(1, left) for part, value in zip(tokens[:4], FILL)
    )
    return Tokens(ids, segments.masked_fill(dropped[:, None] == 0, 0), regions, chains, tokens.rows)


def _replaced(ids: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """``share`` of the amino acids become another one, the likelier the more BLOSUM62 takes one for the other."""
    if not share:
        return ids
    letters = _like()
    new = torch.multinomial(letters[ids.flatten().clamp(max=ALPHABET_SIZE - 1)], 1, generator=generator).view(ids.shape)
    chosen = (torch.rand(ids.shape, generator=generator) < share) & torch.isin(ids, _AMINO_ACIDS)
    return torch.where(chosen, _AMINO_ACIDS[new], ids)


_AMINO_ACIDS = torch.tensor(alphabet.AMINO_ACID_IDS)


@cache
def _like() -> Tensor:
    """(alphabet, 20): how likely each amino acid stands for a token; even for what is no amino acid."""
    from Bio.Align import substitution_matrices

    scores = substitution_matrices.load("BLOSUM62")
    found = torch.full((ALPHABET_SIZE, 20), 1 / 20)
    for i, one in zip(alphabet.AMINO_ACID_IDS, alphabet.AMINO_ACIDS):
        # half bits: 2 ** (score / 2) is how many times likelier than chance
        found[i] = torch.tensor(
            [0.0 if one == other else 2 ** (scores[one][other] / 2) for other in alphabet.AMINO_ACIDS]
        )
    return found / found.sum(1, keepdim=True)


# ------------------------------------------------------------------------------------------- of encoded sequences


def endless_rows(encoded: Sequence[list[int]], settings: TrainSettings, seed: int, first: int) -> Iterator[list[int]]:
    """Rows of the training set for each step, epoch after epoch, from step ``first`` on."""
    steps = (rows for epoch in count() for rows in _epoch_rows(encoded, settings, draws(seed, EPOCH, epoch)))
    return islice(steps, first, None)


def _epoch_rows(encoded: Sequence[list[int]], settings: TrainSettings, generator: torch.Generator) -> list[list[int]]:
    lengths = np.array([len(row) for row in encoded])
    order = torch.randperm(len(lengths), generator=generator).numpy()
    return mixed_batches(lengths, order, settings.batch_tokens, generator)
