"""The objective of decoders: guess each residue, and the end, from those before it.

Beside the model stands a guess from counts: how often each letter, or the end, came at this offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from airrformer.config import TrainSettings
from airrformer.core import alphabet
from airrformer.core.transformer import Transformer
from airrformer.pretrain import masking
from airrformer.pretrain.objectives import Batch, Loss, cross_entropy, endless_rows
from airrformer.pretrain.train import Place
from airrformer.receptors.tables import BOUND_COLUMNS

_GUESSED = (*alphabet.AMINO_ACID_IDS, alphabet.EOS)


@dataclass
class NextResidue:
    """``train`` and ``validation`` are encoded sequences, start and end included."""

    train: Sequence[list[int]]
    validation: Sequence[list[int]]
    settings: TrainSettings
    seed: int

    def train_batches(self, first: int) -> Iterator[Batch]:
        for rows in endless_rows(self.train, self.settings, self.seed, first):
            yield (masking.pad([self.train[row] for row in rows]),)

    def validation_batches(self) -> list[Batch]:
        return [(tokens,) for _, tokens in masking.padded_batches(self.validation, self.settings.batch_tokens)]

    def loss(self, model: Transformer, batch: Batch) -> Loss:
        (tokens,) = batch
        return cross_entropy(model, *following(model, tokens), self.settings.label_smoothing)


def following(model: Transformer, tokens: Tensor, source: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """States (n, D) of all tokens but the last of ``tokens`` (B, L), and what follows each (n,); no padding in them."""
    targets = tokens[:, 1:]
    visible = targets != alphabet.PAD  # (B, L - 1)
    return model(tokens[:, :-1], source)[visible], targets[visible]


def junctions(chains: pd.DataFrame) -> pd.DataFrame:
    """A chains table whose sequences are the junctions, CDR3 and both anchors; rows without one are left out."""
    table = chains[chains["junction_aa"].notna()].copy()
    table["sequence_aa"] = table["junction_aa"]
    return table.assign(**dict.fromkeys(BOUND_COLUMNS, pd.array([pd.NA] * len(table), dtype="Int32")))


def measure(
    model: Transformer,
    train: Sequence[list[int]],
    validation: Sequence[list[int]],
    settings: TrainSettings,
    place: Place,
) -> dict[str, float | int]:
    """Perplexity and share guessed right over the residues and ends of ``validation``, beside those of the counts.

    Letters other than the twenty are read but not guessed. The counts, of ``train``, are by offset, one of each letter
    added.
    """
    log_p, right = [], []
    model.eval()
    with torch.inference_mode(), place.autocast():
        for _, tokens in masking.padded_batches(validation, settings.batch_tokens):
            states, targets = following(model, tokens.to(place.device))
            scores = model.logits(states).float().log_softmax(-1)
            known = torch.isin(targets, torch.tensor(_GUESSED, device=targets.device))
            log_p.append(scores.gather(1, targets[:, None])[known, 0].cpu().numpy())
            right.append((scores.argmax(-1) == targets)[known].cpu().numpy())
    counted_log_p, counted_right = _by_offset(train, validation)
    return {
        "n": sum(map(len, log_p)),
        "perplexity": math.exp(-np.concatenate(log_p).mean()),
        "accuracy": float(np.concatenate(right).mean()),
        "position_unigram_perplexity": math.exp(-counted_log_p.mean()),
        "position_unigram_accuracy": float(counted_right.mean()),
    }


def _by_offset(train: Sequence[list[int]], validation: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """log p of each true token of ``validation`` by its offset, and whether it is the likeliest there."""
    column = np.full(len(alphabet.TOKENS), -1)
    column[list(_GUESSED)] = range(len(_GUESSED))
    longest = max(len(row) for part in (train, validation) for row in part)
    counts = np.ones((longest, len(_GUESSED)))
    for row in train:
        codes = column[row[1:]]
        np.add.at(counts, (np.flatnonzero(codes >= 0), codes[codes >= 0]), 1)
    log_p = np.log(counts / counts.sum(1, keepdims=True))
    codes = [column[row[1:]] for row in validation]
    offsets, letters = (
        np.concatenate(parts) for parts in ([np.flatnonzero(c >= 0) for c in codes], [c[c >= 0] for c in codes])
    )
    return log_p[offsets, letters], log_p.argmax(1)[offsets] == letters
