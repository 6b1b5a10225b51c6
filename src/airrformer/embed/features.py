"""A dataset's chains -> features of its receptors, for every pooling of the config in one pass over the encoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import sparse

from airrformer.config import Dataset, Encoder, KmerEncoder, Pooling
from airrformer.core.writing import LOOP_END
from airrformer.embed.encoders import BATCH_TOKENS, ResidueEncoder, residue_count
from airrformer.embed.kmers import kmer_columns, kmer_counts
from airrformer.embed.pooling import Pool, loops_together
from airrformer.embed.store import Features
from airrformer.receptors.forms import bounds_of, written_chains
from airrformer.receptors.loops import LOOPS
from airrformer.receptors.tables import CHAIN_LOCI

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
    present = {
        chain: np.array([receptor_id in rows.index for receptor_id in receptor_ids], dtype=bool)
        for chain, rows in rows_of.items()
    }
    for chain, there in present.items():
        if not there.all() and dataset.missing_chain != "zero":
            missing = receptor_ids[int(np.flatnonzero(~there)[0])]
            raise ValueError(f"receptor {missing} has no {chain} chain: parse should have rejected it")
        rows_of[chain] = rows_of[chain].loc[[receptor_id for receptor_id, has in zip(receptor_ids, there) if has]]
    if isinstance(settings, KmerEncoder):
        counted = {
            chain: (kmer_counts(rows, settings, chain), kmer_columns(settings, chain))
            for chain, rows in rows_of.items()
        }
        made = {name: counted for name in poolings}
    else:
        made = _pooled(rows_of, settings, poolings, encoder, batch_tokens)
    return {name: _side_by_side(by_chain, present, receptor_ids, dataset) for name, by_chain in made.items()}


Part = tuple[np.ndarray | sparse.csr_array, list[str]]  # of one chain: a matrix, and the names of its columns


def _side_by_side(
    parts: Mapping[str, Part], present: Mapping[str, np.ndarray], receptor_ids: Sequence[str], dataset: Dataset
) -> Features:
    """The chains of ``parts``, each in the rows of the receptors that have it."""
    matrices, names = [], []
    for chain, (matrix, columns) in parts.items():
        matrices.append(_scatter(matrix, present[chain]))
        names += columns
        if dataset.missing_chain == "zero":
            indicator = present[chain].astype(np.float32)[:, None]
            matrices.append(sparse.csr_array(indicator) if sparse.issparse(matrix) else indicator)
            names.append(f"{chain}_present")
    joined = sparse.hstack(matrices, format="csr") if sparse.issparse(matrices[0]) else np.hstack(matrices)
    return Features(list(receptor_ids), joined, names)


def _pooled(
    rows_of: Mapping[str, pd.DataFrame],
    settings: Encoder,
    poolings: Mapping[str, Pooling],
    encoder: ResidueEncoder,
    batch_tokens: int,
) -> dict[str, dict[str, Part]]:
    """By pooling and chain what the encoder makes of the rows of each chain, all of it in one pass."""
    form = getattr(settings, "sequence", ["chain"])[0]
    written = {
        chain: written_chains(rows["sequence_aa"], bounds_of(rows), form, LOOP_END) for chain, rows in rows_of.items()
    }
    sequences, loci, shift = _reads(rows_of, written, together=getattr(settings, "pairs", False))
    encoder.check_lengths([receptor for rows in rows_of.values() for receptor in rows["receptor_id"]], sequences)
    asked = []
    for pooling in poolings.values():
        kind, regions = ("mean", LOOPS) if pooling.kind == "loops" else (pooling.kind, (pooling.region,))
        for region in regions:
            spans = [region_spans(rows_of[chain]["receptor_id"], *written[chain], region, chain) for chain in rows_of]
            asked.append(Pool(kind, np.concatenate(spans) + shift[:, None]))
    ends = np.cumsum([len(rows) for rows in rows_of.values()])[:-1]
    made = iter(encoder.pool(sequences, asked, getattr(settings, "layer", -1), batch_tokens, loci))
    found = {}
    for name, pooling in poolings.items():
        loops = LOOPS if pooling.kind == "loops" else ()
        matrix = loops_together([next(made) for _ in loops]) if loops else next(made)
        parts = [f"_{loop}" for loop in loops] or [""]
        found[name] = {
            chain: (matrix_of_chain, [f"{chain}{part}_{i}" for part in parts for i in range(encoder.width)])
            for chain, matrix_of_chain in zip(rows_of, np.split(matrix, ends))
        }
    return found


def _reads(
    rows_of: Mapping[str, pd.DataFrame], written: Mapping[str, tuple[list[str], dict]], together: bool
) -> tuple[list, list, np.ndarray]:
    """What is read for each row of each chain: the chain, or with ``together`` both of its receptor, if it has both.

    Their loci; and how many residues of what is read come before those of the row's own chain, int (rows,). The alpha
    or heavy chain comes first, as in training, whatever the order of the config.
    """
    read_of = {
        chain: {
            receptor: (text, locus if isinstance(locus, str) else None)
            for receptor, text, locus in zip(rows["receptor_id"], written[chain][0], rows["locus"])
        }
        for chain, rows in rows_of.items()
    }
    order = sorted(rows_of, key=list(CHAIN_LOCI).index)
    together = together and len(rows_of) == 2
    sequences, loci, shift = [], [], []
    for chain, reads in read_of.items():
        for receptor, (text, locus) in reads.items():
            if together and all(receptor in of_chain for of_chain in read_of.values()):
                texts, named = zip(*(read_of[c][receptor] for c in order))
                sequences.append(texts)
                loci.append(named)
                shift.append(0 if chain == order[0] else residue_count(texts[0]))
            else:
                sequences.append(text)
                loci.append(locus)
                shift.append(0)
    return sequences, loci, np.array(shift, dtype=int)


def region_spans(
    ids: pd.Series, texts: Sequence[str], bounds: Mapping[str, np.ndarray], region: str | None, chain: str
) -> np.ndarray:
    """(n, 2) half-open spans of the region in ``texts``, as ``written_chains`` gives them; without a region all of it.

    A chain whose region is unknown is pooled whole, and said so.
    """
    whole = np.array([(0, residue_count(text)) for text in texts], dtype=int).reshape(-1, 2)
    if region is None:
        return whole
    known = bounds[region][:, 1] > bounds[region][:, 0]
    if not known.all():
        logger.warning(
            "%d of %d %s chains have no %s bounds (the first: %s); they are pooled over the whole chain",
            (~known).sum(), len(ids), chain, region, ids.to_numpy()[~known][0],
        )  # fmt: skip
    return np.where(known[:, None], bounds[region], whole)


def _scatter(matrix: np.ndarray | sparse.csr_array, present: np.ndarray) -> np.ndarray | sparse.csr_array:
    """Put the rows of the receptors that have the chain into their places; zeros elsewhere."""
    if present.all():
        return matrix
    place = sparse.csr_array(
        (np.ones(present.sum(), dtype=np.float32), (np.flatnonzero(present), np.arange(present.sum()))),
        shape=(len(present), int(present.sum())),
    )
    return place @ matrix
