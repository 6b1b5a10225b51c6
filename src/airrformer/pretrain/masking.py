"""Which residues are hidden, and as what: 80 % ``<mask>``, 10 % another letter, 10 % kept (Devlin et al. 2019).

Only the twenty amino acids are ever chosen: no start, end or padding, and no X, for there is no right guess for it.
Token tensors are (B, L) int64 on the CPU, where all randomness is drawn; True in a ``chosen`` mask (B, L) means that
the residue is to be guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from airrformer.core import alphabet
from airrformer.core.batching import token_batches
from airrformer.core.config import ALPHABET_SIZE, TAGS

_MASKED, _RANDOM = 0.8, 0.1  # of the chosen; the rest is kept
_LONGEST_SPAN = 10
_AMINO_ACIDS = torch.tensor(alphabet.AMINO_ACID_IDS)
_IS_AMINO_ACID = torch.zeros(ALPHABET_SIZE + len(TAGS), dtype=torch.bool)
_IS_AMINO_ACID[_AMINO_ACIDS] = True


def pad(encoded: Sequence[list[int]]) -> Tensor:
    """Rows of token ids -> (B, L), filled up with ``<pad>`` on the right."""
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in encoded], batch_first=True, padding_value=alphabet.PAD
    )


def padded_batches(encoded: Sequence[list[int]], batch_tokens: int) -> Iterator[tuple[list[int], Tensor]]:
    """Every row once, in batches of similar lengths: (which rows, their tokens (B, L)); see ``token_batches``."""
    for rows in token_batches([len(row) for row in encoded], batch_tokens):
        yield rows, pad([encoded[row] for row in rows])


def mask_residues(
    tokens: Tensor,
    fraction: float,
    generator: torch.Generator,
    weights: Tensor | None = None,
    span: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Hide ``fraction`` of each row's residues, at least one: (tokens to read, chosen).

    With ``weights`` (B, L), above 0, a residue of twice the weight is chosen about twice as often. With ``span`` above
    1 neighbours are hidden together, so many on average (Joshi et al. 2020).
    """
    order = _random_order(tokens, generator, weights, span)
    count = (_IS_AMINO_ACID[tokens].sum(1, keepdim=True) * fraction).round().clamp(min=1)
    chosen = order < count  # (B, L); residues alone have an order below infinity
    fate = torch.rand(tokens.shape, generator=generator)
    letters = _AMINO_ACIDS[torch.randint(len(_AMINO_ACIDS), tokens.shape, generator=generator)]
    hidden = tokens.masked_fill(chosen & (fate < _MASKED), alphabet.MASK)
    return torch.where(chosen & (fate >= _MASKED) & (fate < _MASKED + _RANDOM), letters, hidden), chosen


def rounds_of(tokens: Tensor, rounds: int, generator: torch.Generator) -> Tensor:
    """In which of ``rounds`` passes each residue is hidden, so that every one is hidden once: (B, L), -1 for never."""
    order = _random_order(tokens, generator)
    return torch.where(order.isinf(), -1.0, order % rounds).long()


def _random_order(
    tokens: Tensor, generator: torch.Generator, weights: Tensor | None = None, span: float = 1.0
) -> Tensor:
    """The residues of each row in random order, 0, 1, 2 ... (B, L) float; infinity for what is no amino acid."""
    draws = torch.rand(tokens.shape, generator=generator)
    if weights is not None:
        # waiting times at rates of the weights: the first come are a weighted draw without replacement
        draws = -torch.log1p(-draws) / weights
    draws = draws.masked_fill(~_IS_AMINO_ACID[tokens], torch.inf)
    if span > 1:
        draws = _in_spans(draws, span, generator)
    order = draws.argsort(dim=1, stable=True).argsort(1).float()
    return order.masked_fill(~_IS_AMINO_ACID[tokens], torch.inf)


def _in_spans(draws: Tensor, span: float, generator: torch.Generator) -> Tensor:
    """Each residue comes when the first of the spans that cover it does; their lengths are geometric, mean ``span``."""
    uniform = torch.rand(draws.shape, generator=generator)
    more = (torch.log1p(-uniform) / math.log1p(-1 / span)).floor()  # residues after the first, 0 or more
    found = draws.clone()
    for step in range(1, min(_LONGEST_SPAN, draws.shape[1])):
        reaches = draws[:, :-step].masked_fill(more[:, :-step] < step, torch.inf)
        found[:, step:] = torch.minimum(found[:, step:], reaches)
    return found
