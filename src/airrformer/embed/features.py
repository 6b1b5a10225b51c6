"""A dataset's chains -> features of its receptors, for every pooling of the config in one pass over the encoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import sparse

from airrformer.config import Dataset, Encoder, KmerEncoder, Pooling
from airrformer.embed.encoders import BATCH_TOKENS, ResidueEncoder
from airrformer.embed.kmers import kmer_columns, kmer_counts
from airrformer.embed.pooling import Pool
from airrformer.embed.store import Features

logger = logging.getLogger(__name__)


def dataset_features(
    chains: pd.DataFrame,
    receptor_ids: Sequence[str],
    dataset: Dataset,
    settings: Encoder,
    poolings: Mapping[str, Pooling],
    encoder: ResidueEncoder | None,
    batch_tokens: int = BATCH_TOKENS,
) -> dict[str, Features]:
    """Features by the name of the pooling; row i belongs to ``receptor_ids[i]``.

    The chains of a receptor stand side by side in the order of the config, in columns ``<chain>_<i>``. With
    ``missing_chain: zero`` a receptor without a chain has zeros there and 0 in the column ``<chain>_present``.

    Args:
        chains: a chains table (receptors.tables); chains of receptors not in ``receptor_ids`` are left out.
        encoder: what turns residues into vectors; None for kinds that count (kmer).
    """
    rows_of = {
        chain: chains[chains["chain"] == chain].drop_duplicates("receptor_id").set_index("receptor_id", drop=False)
        for chain in dataset.chains
    }
    parts: dict[str, list] = {name: [] for name in poolings}
    names: dict[str, list[str]] = {name: [] for name in poolings}
    for chain, rows in rows_of.items():
        present = np.array([receptor_id in rows.index for receptor_id in receptor_ids], dtype=bool)
        if not present.all() and dataset.missing_chain != "zero":
            missing = next(receptor_id for receptor_id, there in zip(receptor_ids, present) if not there)
            raise ValueError(f"receptor {missing} has no {chain} chain: parse should have rejected it")
        rows = rows.loc[[receptor_id for receptor_id, there in zip(receptor_ids, present) if there]]
        for name, (matrix, columns) in _chain_features(rows, chain, settings, poolings, encoder, batch_tokens).items():
            parts[name].append(_scatter(matrix, present))
            names[name] += columns
            if dataset.missing_chain == "zero":
                indicator = present.astype(np.float32)[:, None]
                parts[name].append(sparse.csr_array(indicator) if sparse.issparse(matrix) else indicator)
                names[name].append(f"{chain}_present")
    ids = list(receptor_ids)
    return {
        name: Features(ids, sparse.hstack(p, format="csr") if sparse.issparse(p[0]) else np.hstack(p), names[name])
        for name, p in parts.items()
    }


def _chain_features(
    rows: pd.DataFrame,
    chain: str,
    settings: Encoder,
    poolings: Mapping[str, Pooling],
    encoder: ResidueEncoder | None,
    batch_tokens: int,
) -> dict[str, tuple[np.ndarray | sparse.csr_array, list[str]]]:
    """One chain of each receptor: by pooling, its matrix and the names of its columns."""
    if isinstance(settings, KmerEncoder):
        counted = kmer_counts(rows, settings, chain), kmer_columns(settings, chain)
        return {name: counted for name in poolings}
    sequences = rows["sequence_aa"].tolist()
    encoder.check_lengths(rows["receptor_id"].tolist(), sequences)
    pools = [Pool(pooling.kind, region_spans(rows, pooling.region, chain)) for pooling in poolings.values()]
    layer = getattr(settings, "layer", -1)
    columns = [f"{chain}_{i}" for i in range(encoder.width)]
    return {name: (m, columns) for name, m in zip(poolings, encoder.pool(sequences, pools, layer, batch_tokens))}


def region_spans(rows: pd.DataFrame, region: str | None, chain: str) -> np.ndarray | None:
    """(n, 2) half-open spans of the region; a chain whose region is unknown is pooled whole, and said so."""
    if region is None:
        return None
    start, end = rows[f"{region}_start"], rows[f"{region}_end"]
    known = (start.notna() & end.notna()).to_numpy() & (end.fillna(0) > start.fillna(0)).to_numpy()
    if not known.all():
        first = rows["receptor_id"].to_numpy()[~known][0]
        logger.warning(
            "%d of %d %s chains have no %s bounds (the first: %s); they are pooled over the whole chain",
            (~known).sum(), len(rows), chain, region, first,
        )  # fmt: skip
    spans = np.stack([start.fillna(0).to_numpy(dtype=int), end.fillna(0).to_numpy(dtype=int)], axis=1)
    spans[~known] = np.array([(0, len(sequence)) for sequence in rows["sequence_aa"][~known]]).reshape(-1, 2)
    return spans


def _scatter(matrix: np.ndarray | sparse.csr_array, present: np.ndarray) -> np.ndarray | sparse.csr_array:
    """Put the rows of the receptors that have the chain into their places; zeros elsewhere."""
    if present.all():
        return matrix
    place = sparse.csr_array(
        (np.ones(present.sum(), dtype=np.float32), (np.flatnonzero(present), np.arange(present.sum()))),
        shape=(len(present), int(present.sum())),
    )
    return place @ matrix
