"""Groups of receptors that are too alike to stand on both sides of a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from airrformer.receptors.distances import (
    Pairs,
    cdr3_or_chain,
    chain_names,
    chain_strings,
    identity_pairs,
    linked,
    linked_pieces,
    neighbours,
    unique,
    v_domain_or_chain,
)
from airrformer.receptors.loops import LoopDistance, encode, loop_blocks, receptor_letters

if TYPE_CHECKING:  # for the signature alone: the config reads receptors, not the other way round
    from airrformer.config import ClusterSettings


def similarity_clusters(
    receptors: pd.DataFrame, chains: pd.DataFrame, receptor_kind: str, settings: ClusterSettings
) -> np.ndarray:
    """Single-linkage clusters: int (n,), one label a row of ``receptors``; as a partition free of the row order.

    By ``settings.metric``:

    ``cdr3``: the edit distances of the CDR3s, summed over the chains, are at most ``tcr_cdr3_distance``.
    ``tcrdist``: the TCRdist-like distances of CDR1 to CDR3 (``loops.LoopDistance``), summed over the chains, are at
    most ``tcrdist``. A loop that is not known costs what it does on average, so that it never makes two alike.
    ``identity``: the V domains of the first chain (heavy, where there is one) are identical in at least
    ``antibody_identity`` of the longer one's length.
    ``auto``: cdr3 for a ``TCR``, identity for an ``antibody``.

    For cdr3 and identity a receptor whose region is not known is compared by its whole chain, a chain that it lacks as
    an empty one.
    """
    ids = receptors["receptor_id"].tolist()
    chains = chains[chains["receptor_id"].isin(set(ids))]
    names = chain_names(chains)
    metric = settings.metric
    if metric == "auto":
        metric = "cdr3" if receptor_kind == "TCR" else "identity"
    if metric == "cdr3":
        items, inverse = unique(chain_strings(ids, chains, names, cdr3_or_chain))
        return linked_pieces(len(items), neighbours(items, settings.tcr_cdr3_distance))[inverse]
    if metric == "tcrdist":
        return _by_loops(ids, chains, names, settings.tcrdist)
    items, inverse = unique([item[0] for item in chain_strings(ids, chains, names[:1], v_domain_or_chain)])
    return linked(len(items), identity_pairs(items, settings.antibody_identity))[inverse]


def _by_loops(ids: Sequence[str], chains: pd.DataFrame, names: Sequence[str], most: float) -> np.ndarray:
    letters = receptor_letters(ids, chains, names)
    columns = [f"{name}_{loop}" for name in names for loop in ("cdr1", "cdr2", "cdr3")]
    # Receptors with the same loops are one; where a loop is missing, those with the same chains.
    whole = letters[[f"{name}_sequence" for name in names]].agg("\t".join, axis=1)
    letters = letters[columns].assign(whole=whole.where((letters[columns] == "").any(axis=1), ""))
    # in sorted order: what a missing loop costs is measured on a sample
    distinct = letters.drop_duplicates().sort_values([*columns, "whole"], ignore_index=True)
    place = pd.MultiIndex.from_frame(distinct).get_indexer(pd.MultiIndex.from_frame(letters))

    metric, encoded = LoopDistance(), encode(distinct[columns])
    fill = metric.fill(encoded)

    def close() -> Iterator[Pairs]:
        for rows, (block,) in loop_blocks(encoded, encoded, [metric]):
            i, j = np.nonzero(block.distances(fill) <= most)
            yield i + rows.start, j

    return linked_pieces(len(distinct), close())[place]
