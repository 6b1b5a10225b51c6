"""The original encoder-decoder's first task: write a random string backwards.

The source is read whole, the target written from left to right, so that its residue i must be looked up at the
source's residue n - 1 - i: what cross-attention learns stands on the anti-diagonal, and can be seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from airrformer.config import TrainSettings
from airrformer.core import alphabet
from airrformer.core.decoding import beam_search, greedy
from airrformer.core.transformer import Transformer
from airrformer.pretrain import masking
from airrformer.pretrain.causal import following
from airrformer.pretrain.objectives import MEASURE, STEP, VALIDATION, Batch, Loss, cross_entropy, draws
from airrformer.pretrain.train import Place

SHORTEST, LONGEST = 8, 16  # residues
EXAMPLE = "CASSIRSSYEQYF"
_AMINO_ACIDS = torch.tensor(alphabet.AMINO_ACID_IDS)
_VALIDATION, _MEASURED, _BEAM = 512, 1_000, 8  # strings, strings, hypotheses


@dataclass
class Reversal:
    """Every batch is new strings of 8 to 16 residues, each length and residue as likely as any other."""

    settings: TrainSettings
    seed: int

    def train_batches(self, first: int) -> Iterator[Batch]:
        rows = max(1, self.settings.batch_tokens // (LONGEST + 2))
        for step in itertools.count(first):
            yield pairs(random_strings(rows, draws(self.seed, STEP, step)))

    def validation_batches(self) -> list[Batch]:
        return [pairs(random_strings(_VALIDATION, draws(self.seed, VALIDATION)))]

    def loss(self, model: Transformer, batch: Batch) -> Loss:
        source, target = batch
        return cross_entropy(model, *following(model, target, source), self.settings.label_smoothing)


def random_strings(n: int, generator: torch.Generator) -> list[Tensor]:
    """``n`` strings of residue ids, each (8 to 16,) int64."""
    lengths = torch.randint(SHORTEST, LONGEST + 1, (n,), generator=generator).tolist()
    letters = torch.randint(len(_AMINO_ACIDS), (sum(lengths),), generator=generator)
    return list(_AMINO_ACIDS[letters].split(lengths))


def pairs(strings: list[Tensor]) -> Batch:
    """Sources (B, L) and targets (B, L), the same strings backwards; start and end stand round both."""

    def framed(residues: Tensor) -> list[int]:
        return [alphabet.CLS, *residues.tolist(), alphabet.EOS]

    return masking.pad([framed(s) for s in strings]), masking.pad([framed(s.flip(0)) for s in strings])


def measure(model: Transformer, seed: int, place: Place) -> dict[str, object]:
    """How many of 1,000 new strings come out exactly, greedily and by a beam of eight, and the mean score of each.

    ``antidiagonal``: for each layer of the decoder, the share of the cross-attention that lies on the residue to be
    written next, averaged over the residues of all strings and the heads.
    """
    source, target = place.move(pairs(random_strings(_MEASURED, draws(seed, MEASURE))))
    wanted = [row[row != alphabet.PAD].tolist()[1:-1] for row in target]
    model.eval()
    with torch.inference_mode():
        greedily = greedy(model, alphabet.CLS, alphabet.EOS, LONGEST + 2, source)
        by_beam = [best for best, *_ in beam_search(model, alphabet.CLS, alphabet.EOS, LONGEST + 2, _BEAM, source)]
        maps = model.cross_attention_maps(target[:, :-1], source)
        written = greedy(model, alphabet.CLS, alphabet.EOS, LONGEST + 2, _example(place)[0])[0].tokens
    numbers: dict[str, object] = {"n": _MEASURED, "beam_width": _BEAM}
    for name, found in (("greedy", greedily), ("beam", by_beam)):
        numbers[f"{name}_exact"] = sum(f.complete and f.tokens == w for f, w in zip(found, wanted))
        numbers[f"{name}_mean_score"] = float(np.mean([f.score for f in found]))
    lengths = [len(row) for row in wanted]
    numbers["antidiagonal"] = [float(torch.cat(list(_antidiagonal(layer, lengths))).mean()) for layer in maps]
    return numbers | {"example": EXAMPLE, "example_reversed": "".join(alphabet.TOKENS[token] for token in written)}


def cross_attention(model: Transformer, place: Place) -> pd.DataFrame:
    """Where the decoder looks while it writes ``CASSIRSSYEQYF`` backwards, mean over the heads.

    Columns: layer (from 1), writes (the index of the token that is written, and ``written``, its letter), then one
    column a token of the source, ``<index>_<letter>``. The numbers of a row sum to 1.
    """
    source, target = _example(place)
    with torch.inference_mode():
        maps = model.cross_attention_maps(target[:, :-1], source)
    names = [f"{i}_{alphabet.TOKENS[token]}" for i, token in enumerate(source[0].tolist())]
    tables = []
    for layer, weights in enumerate(maps, start=1):
        table = pd.DataFrame(weights[0].mean(0).float().cpu().numpy(), columns=names)
        table.insert(0, "layer", layer)
        table.insert(1, "writes", range(len(table)))
        table.insert(2, "written", [alphabet.TOKENS[token] for token in target[0, 1:].tolist()])
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _example(place: Place) -> Batch:
    return place.move(pairs([torch.tensor(alphabet.encode(EXAMPLE)[1:-1])]))


def _antidiagonal(weights: Tensor, lengths: list[int]) -> Iterator[Tensor]:
    """Of (B, H, L, S): for each string of n residues the weights (H, n) of residue i on residue n - 1 - i."""
    for row, n in enumerate(lengths):
        at = torch.arange(n, device=weights.device)
        yield weights[row, :, at, n - at].flatten()  # the start token stands before the source's residues
