"""How well hidden residues are guessed, by region, beside two guesses that learn nothing deep.

The *unigram* knows how frequent each letter is in the region. The *position unigram* knows how frequent it is at this
offset from the start of this region of this locus. Both count the training chains, each once, and are judged on the
same residues as the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from airrformer.config import TrainSettings
from airrformer.core.alphabet import AMINO_ACID_IDS, AMINO_ACIDS, MASK
from airrformer.core.transformer import Transformer
from airrformer.core.writing import ids_of, write
from airrformer.pretrain import masking
from airrformer.pretrain.corpus import cdr3_of, encode_all
from airrformer.pretrain.objectives import MEASURE, draws
from airrformer.pretrain.train import Place
from airrformer.receptors.forms import bounds_of
from airrformer.receptors.germlines import cdr3_ends
from airrformer.receptors.tables import REGIONS

# What is reported -> the regions that it holds. The CDR3 stands whole and by where its residues come from: those that
# are the V or J gene's from the anchors on, and the rest, which a germline cannot tell.
GROUPS: dict[str, tuple[str, ...]] = {
    "framework": ("fwr1", "fwr2", "fwr3", "fwr4"),
    "cdr1_cdr2": ("cdr1", "cdr2"),
    "cdr3": ("cdr3",),
    "cdr3_germline": ("cdr3",),
    "cdr3_junction": ("cdr3",),
}

_IDS = list(AMINO_ACID_IDS)
_SMOOTHING = 1.0  # letters added, shared out by the coarser guess
_CODE = np.full(128, -1, dtype=np.int8)
_CODE[[ord(letter) for letter in AMINO_ACIDS]] = range(len(AMINO_ACIDS))
_AT_ONCE = 50_000  # chains counted together


def guess_hidden(
    model: Transformer,
    sequences: Sequence[str],
    settings: TrainSettings,
    seed: int,
    place: Place,
    loci: Sequence[str | None] = (),
) -> list[np.ndarray]:
    """For each sequence the probabilities (residues, 20) of every letter where it was hidden.

    Every residue is hidden once, ``mask_fraction`` of them at a time, as ``<mask>`` always. Rows of residues that are
    none of the twenty are 0. Which are hidden together depends on the seed and the sequences alone, so that models can
    be compared; ``loci`` are told to one that knows tags.
    """
    rounds = max(1, round(1 / settings.mask_fraction))
    generator = draws(seed, MEASURE)
    guesses: list[np.ndarray] = [np.empty(0)] * len(sequences)
    encoded = encode_all(sequences)
    tags = [*loci] if model.config.tags else []
    model.eval()
    with torch.inference_mode(), place.autocast():
        for rows, plain in masking.padded_batches(encoded, settings.batch_tokens):
            longest = max(len(sequences[row]) for row in rows)
            turn = masking.rounds_of(plain, rounds, generator)[:, 1 : 1 + longest]  # of the residues
            written = [write([ids_of(sequences[row])], model.config, tags[row : row + 1]) for row in rows]
            tokens = masking.pad([w.tokens.tolist() for w in written])
            places = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(w.residues) for w in written], batch_first=True)
            found = torch.zeros(len(rows), longest, len(_IDS))
            for i in range(rounds):
                chosen = turn == i  # never what is padded
                there = torch.zeros_like(tokens, dtype=torch.bool).scatter_(1, places, chosen)
                hidden = model(tokens.masked_fill(there, MASK).to(place.device))[there.to(place.device)]
                found[chosen] = model.logits(hidden)[:, _IDS].float().softmax(-1).cpu()
            for row, values in zip(rows, found.numpy()):
                guesses[row] = values[: len(sequences[row])]
    return guesses


def germline_residues(chains: pd.DataFrame) -> list[np.ndarray | None]:
    """Which residues of each chain's CDR3 are its genes', bool (length,): as far as they agree from either anchor.

    None where neither gene nor CDR3 is known.
    """
    found: list[np.ndarray | None] = []
    calls = ([call if isinstance(call, str) else None for call in chains[column]] for column in ("v_call", "j_call"))
    for cdr3, v_call, j_call in zip(cdr3_of(chains), *calls):
        v_end, j_start = cdr3_ends(v_call, j_call) if v_call or j_call else ("", "")
        if not (v_end and j_start and cdr3):
            found.append(None)
            continue
        left = _agreeing(cdr3, v_end)
        right = min(_agreeing(cdr3[::-1], j_start[::-1]), len(cdr3) - left)
        from_genes = np.zeros(len(cdr3), dtype=bool)
        from_genes[:left] = True
        from_genes[len(cdr3) - right :] = True
        found.append(from_genes)
    return found


def _agreeing(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


class Stretch(NamedTuple):
    """One region of one chain: the chain's row, where the region starts, and its letters as 0 to 19 (-1: none)."""

    row: int
    locus: str
    region: str
    start: int
    letters: np.ndarray


def stretches(chains: pd.DataFrame, regions: Sequence[str] = REGIONS) -> Iterator[Stretch]:
    """The known, non-empty regions of every chain."""
    sequences, loci, bounds = chains["sequence_aa"].tolist(), _loci(chains).tolist(), bounds_of(chains)
    for region in regions:
        for row, (start, end) in enumerate(bounds[:, REGIONS.index(region)].tolist()):
            if start < end:
                yield Stretch(row, loci[row], region, start, _codes(sequences[row][start:end]))


def _loci(chains: pd.DataFrame) -> pd.Series:
    return chains["locus"].fillna("").astype(str)


def _codes(letters: str) -> np.ndarray:
    """0 to 19, -1: none of the twenty."""
    return _CODE[np.frombuffer(letters.encode(), dtype=np.uint8)]


class Unigrams:
    """Letter frequencies of the training chains, by group of regions and by place."""

    def __init__(self, chains: pd.DataFrame) -> None:
        self._by_place: dict[tuple[str, str], np.ndarray] = {}  # (locus, region) -> (offsets, 20) counts
        for start in range(0, len(chains), _AT_ONCE):
            some = chains.iloc[start : start + _AT_ONCE]
            for locus, of_locus in some.groupby(_loci(some), sort=False):
                self._count(locus, of_locus["sequence_aa"].tolist(), bounds_of(of_locus))
        self._by_group = {
            group: _smoothed(
                sum(
                    (counts.sum(0) for (_, region), counts in self._by_place.items() if region in regions), np.zeros(20)
                ),
                np.full(20, 1 / 20),
            )
            for group, regions in GROUPS.items()
        }

    def _count(self, locus: str, sequences: Sequence[str], bounds: np.ndarray) -> None:
        for i, region in enumerate(REGIONS):
            found = [sequence[start:end] for sequence, (start, end) in zip(sequences, bounds[:, i].tolist())]
            codes, lengths = _codes("".join(found)), np.array([*map(len, found)])
            offsets = np.arange(len(codes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            before = self._by_place.get((locus, region), np.zeros((0, 20)))
            counts = np.zeros((max(len(before), lengths.max()), 20))
            counts[: len(before)] = before
            np.add.at(counts, (offsets[codes >= 0], codes[codes >= 0]), 1)
            self._by_place[locus, region] = counts

    def by_group(self, group: str) -> np.ndarray:
        """Probabilities (20,) of the letters anywhere in the group."""
        return self._by_group[group]

    def by_place(self, stretch: Stretch, group: str) -> np.ndarray:
        """Probabilities (length, 20) at each offset of the stretch; what was rarely seen falls back to the region."""
        counts = self._by_place.get((stretch.locus, stretch.region), np.zeros((0, 20)))
        region = _smoothed(counts.sum(0), self.by_group(group))
        counts = np.pad(counts, ((0, max(0, len(stretch.letters) - len(counts))), (0, 0)))[: len(stretch.letters)]
        return _smoothed(counts, region)


def by_locus(
    chains: pd.DataFrame, guesses: Sequence[np.ndarray], unigrams: Unigrams | None = None
) -> dict[str, dict[str, dict]]:
    """``measure`` for the chains of each locus alone."""
    loci = chains["locus"].fillna("unknown").to_numpy(dtype=object)
    return {
        locus: measure(
            chains[loci == locus].reset_index(drop=True),
            [guesses[row] for row in np.flatnonzero(loci == locus)],
            unigrams,
        )
        for locus in sorted(set(loci))
    }


def _smoothed(counts: np.ndarray, coarser: np.ndarray) -> np.ndarray:
    return (counts + _SMOOTHING * coarser) / (counts.sum(-1, keepdims=True) + _SMOOTHING)


def measure(chains: pd.DataFrame, guesses: Sequence[np.ndarray], unigrams: Unigrams | None = None) -> dict[str, dict]:
    """Accuracy and perplexity of each group of regions, of the model and, where they are given, of the two unigrams.

    ``guesses`` holds, for each row of ``chains``, the model's probabilities (residues, 20) of each letter where it was
    hidden. Residues other than the twenty are left out. None stands where a group has no residue.
    """
    report = {}
    from_genes = germline_residues(chains)
    for group, regions in GROUPS.items():
        scores: dict[str, list[np.ndarray]] = {"": []} | ({"unigram_": [], "position_unigram_": []} if unigrams else {})
        for stretch in stretches(chains, regions):
            asked = stretch.letters >= 0
            if group in ("cdr3_germline", "cdr3_junction"):
                if (germline := from_genes[stretch.row]) is None:
                    continue
                asked &= germline if group == "cdr3_germline" else ~germline
            known = np.flatnonzero(asked)
            letters = stretch.letters[known]
            model = guesses[stretch.row][stretch.start + known]  # (n, 20)
            beside = ()
            if unigrams:
                by_group = np.broadcast_to(unigrams.by_group(group), model.shape)
                beside = by_group, unigrams.by_place(stretch, group)[known]
            for name, guess in zip(scores, (model, *beside)):
                right = guess[np.arange(len(letters)), letters]
                scores[name].append(np.stack([guess.argmax(1) == letters, np.log(np.maximum(right, 1e-12))]))
        n = sum(part.shape[1] for part in scores[""])
        report[group] = {"n": n}
        for name, parts in scores.items():
            hits, logs = np.concatenate(parts, axis=1).mean(1) if n else (None, None)
            report[group][f"{name}accuracy"] = None if hits is None else float(hits)
            report[group][f"{name}perplexity"] = None if logs is None else float(np.exp(-logs))
    return report
