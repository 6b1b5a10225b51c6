"""A chain in one of the forms that encoders read, and where its regions then are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from airrformer.receptors.loops import LOOPS
from airrformer.receptors.tables import BOUND_COLUMNS, REGIONS


def bounds_of(rows: pd.DataFrame) -> np.ndarray:
    """Where each of ``REGIONS`` is in the chains of ``rows``: int32 (n, regions, 2), half-open, 0, 0 if not known."""
    ends = [rows[column].fillna(-1).to_numpy(dtype=np.int32) for column in BOUND_COLUMNS]
    places = np.stack(ends, axis=1).reshape(-1, len(REGIONS), 2)
    places[(places < 0).any(axis=2) | (places[..., 0] > places[..., 1])] = 0
    return places


def written_chains(
    sequences: Sequence[str], places: np.ndarray, form: str, between: str
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Chains as text, and where each of ``REGIONS`` then is: int (n, 2), half-open, 0, 0 where it is not known.

    ``places``: as ``bounds_of`` gives them. ``form``: ``chain``, the whole; ``junction``, the CDR3 with its anchors;
    ``cdrs``, the three CDRs with ``between`` between them. A chain of which these are not known stays whole. Bounds
    count residues, not what is between.
    """
    sequences = list(sequences)
    bounds = {region: places[:, i].astype(int) for i, region in enumerate(REGIONS)}
    if form == "chain":
        return sequences, bounds
    kept = LOOPS if form == "cdrs" else ("cdr3",)
    known = np.all([bounds[region][:, 1] > bounds[region][:, 0] for region in kept], axis=0)
    if form == "junction":
        known &= (bounds["cdr3"][:, 0] > 0) & (bounds["cdr3"][:, 1] < [len(s) for s in sequences])
    anchor = 0 if form == "cdrs" else 1
    spans = [(bounds[region] + [-anchor, anchor]).tolist() for region in kept]
    texts = [
        between.join(sequence[start:end] for start, end in places) if there else sequence
        for sequence, there, *places in zip(sequences, known.tolist(), *spans)
    ]
    before = np.full(len(sequences), anchor)
    for region in REGIONS:
        if region not in kept:
            bounds[region][known] = 0
            continue
        lengths = bounds[region][:, 1] - bounds[region][:, 0]
        moved = np.stack([before, before + lengths], axis=1)
        bounds[region] = np.where(known[:, None], moved, bounds[region])
        before = before + lengths
    return texts, bounds
