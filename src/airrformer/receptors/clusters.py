"""Groups of receptors that are too alike to stand on both sides of a split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from airrformer.receptors.distances import (
    cdr3_or_chain,
    chain_names,
    chain_strings,
    identity_pairs,
    linked,
    neighbour_pairs,
    unique,
    v_domain_or_chain,
)

if TYPE_CHECKING:  # for the signature alone: the config reads receptors, not the other way round
    from airrformer.config import ClusterSettings


def similarity_clusters(
    receptors: pd.DataFrame, chains: pd.DataFrame, receptor_kind: str, settings: ClusterSettings
) -> np.ndarray:
    """Single-linkage clusters: int (n,), one label a row of ``receptors``; as a partition free of the row order.

    ``TCR``: the edit distances of the CDR3s, summed over the chains, are at most ``tcr_cdr3_distance``.
    ``antibody``: the V domains of the first chain (heavy, where there is one) are identical in at least
    ``antibody_identity`` of the longer one's length.
    A receptor whose region is not known is compared by its whole chain, a chain that it lacks as an empty one.
    """
    ids = receptors["receptor_id"].tolist()
    chains = chains[chains["receptor_id"].isin(set(ids))]
    names = chain_names(chains)
    if receptor_kind == "TCR":
        items, inverse = unique(chain_strings(ids, chains, names, cdr3_or_chain))
        pairs = neighbour_pairs(items, settings.tcr_cdr3_distance)
    else:
        items, inverse = unique([item[0] for item in chain_strings(ids, chains, names[:1], v_domain_or_chain)])
        pairs = identity_pairs(items, settings.antibody_identity)
    return linked(len(items), pairs)[inverse]
