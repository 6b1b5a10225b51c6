"""A dataset's chains -> features of its receptors, for every pooling of the config in one pass over the encoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import sparse

from airrformer.config import Dataset, Encoder, KmerEncoder, Pooling
from airrformer.core.writing import LOOP_END
from airrformer.embed.encoders import BATCH_TOKENS, LOOPS, ResidueEncoder, residue_count
from airrformer.embed.kmers import kmer_columns, kmer_counts
from airrformer.embed.pooling import Pool, loops_together
from airrformer.embed.store import Features
from airrformer.receptors.tables import CHAIN_LOCI, REGIONS

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
    together = _pairs(rows_of) if getattr(settings, "pairs", False) else {}
    parts: dict[str, list] = {name: [] for name in poolings}
    names: dict[str, list[str]] = {name: [] for name in poolings}
    for chain, rows in rows_of.items():
        present = np.array([receptor_id in rows.index for receptor_id in receptor_ids], dtype=bool)
        if not present.all() and dataset.missing_chain != "zero":
            missing = next(receptor_id for receptor_id, there in zip(receptor_ids, present) if not there)
            raise ValueError(f"receptor {missing} has no {chain} chain: parse should have rejected it")
        rows = rows.loc[[receptor_id for receptor_id, there in zip(receptor_ids, present) if there]]
        made = _chain_features(rows, chain, settings, poolings, encoder, batch_tokens, together)
        for name, (matrix, columns) in made.items():
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
    together: Mapping[str, pd.DataFrame],
) -> dict[str, tuple[np.ndarray | sparse.csr_array, list[str]]]:
    """One chain of each receptor: by pooling, its matrix and the names of its columns.

    ``together``: the rows of both chains of the receptors that have both, by chain, where the encoder reads them so.
    """
    if isinstance(settings, KmerEncoder):
        counted = kmer_counts(rows, settings, chain), kmer_columns(settings, chain)
        return {name: counted for name in poolings}
    texts, bounds = written_chains(rows, getattr(settings, "sequence", ["chain"])[0])
    asked: list[tuple[str, np.ndarray]] = []
    for pooling in poolings.values():
        regions = LOOPS if pooling.kind == "loops" else (pooling.region,)
        kind = "mean" if pooling.kind == "loops" else pooling.kind
        asked += [(kind, region_spans(rows["receptor_id"], texts, bounds, region, chain)) for region in regions]
    sequences, loci, shift = _with_partners(rows, chain, texts, settings, together)
    encoder.check_lengths(rows["receptor_id"].tolist(), sequences)
    pools = [Pool(kind, spans + shift[:, None]) for kind, spans in asked]
    made = iter(encoder.pool(sequences, pools, getattr(settings, "layer", -1), batch_tokens, loci))
    found = {}
    for name, pooling in poolings.items():
        if pooling.kind == "loops":
            columns = [f"{chain}_{loop}_{i}" for loop in LOOPS for i in range(encoder.width)]
            found[name] = loops_together([next(made) for _ in LOOPS]), columns
        else:
            found[name] = next(made), [f"{chain}_{i}" for i in range(encoder.width)]
    return found


def _pairs(rows_of: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The rows of the two chains, of the receptors that have both; none where a dataset has not two chains.

    In the order of training, alpha or heavy first, whatever that of the config.
    """
    if len(rows_of) != 2:
        return {}
    one, other = (rows.index for rows in rows_of.values())
    both = one.intersection(other, sort=False)
    ordered = sorted(rows_of, key=list(CHAIN_LOCI).index)
    return {chain: rows_of[chain].loc[both] for chain in ordered} if len(both) else {}


def _with_partners(
    rows: pd.DataFrame, chain: str, texts: list[str], settings: Encoder, together: Mapping[str, pd.DataFrame]
) -> tuple[list, list, np.ndarray]:
    """What is read for each row: its chain, or both of its receptor; their loci; residues before those of ``chain``."""
    sequences, loci = list(texts), [locus if isinstance(locus, str) else None for locus in rows["locus"]]
    shift = np.zeros(len(rows), dtype=int)
    if together:
        form = getattr(settings, "sequence", ["chain"])[0]
        pairs = list(zip(*(written_chains(part, form)[0] for part in together.values())))
        pair_loci = list(zip(*(part["locus"] for part in together.values())))
        place = {receptor: i for i, receptor in enumerate(together[chain]["receptor_id"])}
        second = chain != next(iter(together))
        for i, receptor in enumerate(rows["receptor_id"]):
            if (at := place.get(receptor)) is not None:
                sequences[i], loci[i] = pairs[at], pair_loci[at]
                shift[i] = residue_count(pairs[at][0]) if second else 0
    return sequences, loci, shift


def region_spans(
    ids: pd.Series, texts: Sequence[str], bounds: Mapping[str, np.ndarray], region: str | None, chain: str
) -> np.ndarray:
    """(n, 2) half-open spans of the region in ``texts``, which ``written_chains`` gives; without a region all of each.

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


def written_chains(rows: pd.DataFrame, form: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """Chains as an encoder reads them, and where each region then is: int (n, 2), 0, 0 where it is not known.

    ``form``: ``chain``, the whole; ``junction``, the CDR3 with its anchors; ``cdrs``, the three CDRs with ``LOOP_END``
    between them. A chain of which these are not known stays whole.
    """
    sequences = rows["sequence_aa"].tolist()
    bounds = {
        region: np.stack([rows[f"{region}_{end}"].fillna(0).to_numpy(dtype=int) for end in ("start", "end")], axis=1)
        for region in REGIONS
    }
    if form == "chain":
        return sequences, bounds
    kept = LOOPS if form == "cdrs" else ("cdr3",)
    known = np.all([bounds[region][:, 1] > bounds[region][:, 0] for region in kept], axis=0)
    if form == "junction":
        known &= (bounds["cdr3"][:, 0] > 0) & (bounds["cdr3"][:, 1] < [len(s) for s in sequences])
    texts = []
    for i, sequence in enumerate(sequences):
        spans = {region: tuple(bounds[region][i].tolist()) for region in kept}
        if not known[i]:
            texts.append(sequence)
            continue
        before = 0 if form == "cdrs" else 1  # the anchor
        texts.append(LOOP_END.join(sequence[start - before : end + before] for start, end in spans.values()))
        for region in REGIONS:
            bounds[region][i] = 0
        for region, (start, end) in spans.items():
            bounds[region][i] = before, before + end - start
            before += end - start
    return texts, bounds


def _scatter(matrix: np.ndarray | sparse.csr_array, present: np.ndarray) -> np.ndarray | sparse.csr_array:
    """Put the rows of the receptors that have the chain into their places; zeros elsewhere."""
    if present.all():
        return matrix
    place = sparse.csr_array(
        (np.ones(present.sum(), dtype=np.float32), (np.flatnonzero(present), np.arange(present.sum()))),
        shape=(len(present), int(present.sum())),
    )
    return place @ matrix
