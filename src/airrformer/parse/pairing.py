"""Chains to receptors: one chain of a kind each, and all the kinds that the dataset asks for.

Words for how many chains a receptor has are those of scirpy (``chain_pairing``): VJ chains are alpha, gamma and light
ones, VDJ chains beta, delta and heavy ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airrformer.config import Dataset

VJ_CHAINS = frozenset({"TRA", "TRG", "light"})
# A further chain of a kind with less than this share of the UMIs of the first is taken for ambient RNA.
AMBIENT_SHARE = 0.1


@dataclass(frozen=True)
class Pairing:
    """What becomes of each chain, in the order of the chains.

    Attributes:
        kept: bool for each chain.
        reasons, values: for those that are not kept, why, and what the reason points to.
        receptor_ids: those with a chain that is kept, in the order of first appearance.
        status: scirpy's word for each of them.
        repeats: int, on how many rows each stands: of its kind of chain that is there most often, the one that is kept.
    """

    kept: np.ndarray
    reasons: dict[int, str]
    values: dict[int, str]
    receptor_ids: list[str]
    status: list[str]
    repeats: np.ndarray


def pair_chains(chains: pa.Table, dataset: Dataset) -> Pairing:
    """Choose one chain of each kind for every receptor.

    Of several chains of a kind the top one is kept: known to be productive before unknown, then more UMIs
    (``umi_count``, else ``duplicate_count``), then more reads, then the first in the file. ``several_chains: drop``
    rejects the receptor instead, unless the further chain is ambient.

    Args:
        chains: receptor_id, chain, sequence_aa, productive, umi_count, duplicate_count, consensus_count, file, line.
    """
    count = chains.num_rows
    ids = pc.dictionary_encode(chains["receptor_id"].combine_chunks())
    receptor = ids.indices.to_numpy(zero_copy_only=False)
    names = chains["chain"].combine_chunks().cast(pa.string())
    kind = pc.index_in(names, pa.array(dataset.chains)).to_numpy(zero_copy_only=False).astype(np.int64)
    slot = receptor * len(dataset.chains) + kind
    umis = _numbers(pc.coalesce(chains["umi_count"], chains["duplicate_count"]))
    reads = _numbers(chains["consensus_count"])
    productive = pc.fill_null(chains["productive"], False).to_numpy()
    order = np.lexsort((np.arange(count), -reads, -umis, ~productive, slot))
    first = np.ones(count, bool)
    first[1:] = slot[order][1:] != slot[order][:-1]
    top = order[first][np.cumsum(first) - 1]  # of each chain, in `order`, the one that is kept in its place
    kept = np.zeros(count, bool)
    kept[order[first]] = True
    reasons: dict[int, str] = {}
    values: dict[int, str] = {}
    rows = np.ones(slot.max(initial=-1) + 1, np.int64)  # of each slot, those with the chain that is kept
    counted = kept.copy()  # chains that count for the status: neither repeated nor ambient ones
    dropped: set[int] = set()
    for i, winner in zip(order[~first].tolist(), top[~first].tolist()):
        name, where = dataset.chains[kind[i]], _where(chains, winner, i)
        if chains["sequence_aa"][i] == chains["sequence_aa"][winner]:
            reasons[i], values[i] = f"{name} chain of the receptor again", f"the first: {where}"
            rows[slot[i]] += 1
            continue
        ambient = 0 <= umis[i] < AMBIENT_SHARE * umis[winner]
        counted[i] = not ambient
        reasons[i] = f"second {name} chain of the receptor{', ambient' if ambient else ''}"
        values[i] = f"kept: {where}" + (f", {umis[winner]} UMIs to {umis[i]}" if umis[i] >= 0 else "")
        if dataset.several_chains == "drop" and not ambient:
            dropped.add(receptor[i])
    for i in np.flatnonzero(kept).tolist() if dropped else ():
        if receptor[i] in dropped:
            kept[i] = False
            reasons[i], values[i] = "receptor has several chains of a kind (several_chains: drop)", ""
    if dataset.missing_chain == "reject":
        _reject_incomplete(dataset, receptor, kind, kept, reasons, values)
    left = np.unique(receptor[kept])
    status = _status(dataset, receptor, kind, counted)[left]
    repeats = np.ones(receptor.max(initial=-1) + 1, np.int64)
    np.maximum.at(repeats, receptor, rows[slot])
    left_ids = ids.dictionary.take(pa.array(left)).to_pylist()
    return Pairing(kept, reasons, values, left_ids, status.tolist(), repeats[left])


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(column, -1).to_numpy()


def _where(chains: pa.Table, winner: int, loser: int) -> str:
    line = f"line {chains['line'][winner]}"
    file = chains["file"][winner].as_py()
    return line if file == chains["file"][loser].as_py() else f"{file}, {line}"


def _reject_incomplete(
    dataset: Dataset,
    receptor: np.ndarray,
    kind: np.ndarray,
    kept: np.ndarray,
    reasons: dict[int, str],
    values: dict[int, str],
) -> None:
    """Receptors that lack a kind of chain are left out, each of their chains with the names of what is missing."""
    has = np.zeros((receptor.max(initial=-1) + 1, len(dataset.chains)), bool)
    has[receptor[kept], kind[kept]] = True
    lacks = ~has.all(axis=1)
    for i in np.flatnonzero(kept & lacks[receptor]).tolist():
        missing = [name for name, there in zip(dataset.chains, has[receptor[i]]) if not there]
        reasons[i], values[i] = f"receptor lacks chain {' and '.join(missing)}", dataset.chains[kind[i]]
        kept[i] = False


def _status(dataset: Dataset, receptor: np.ndarray, kind: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """scirpy's word for each receptor, by the numbers of its VJ and VDJ chains."""
    counts = np.zeros((receptor.max(initial=-1) + 1, len(dataset.chains)), int)
    np.add.at(counts, (receptor[counted], kind[counted]), 1)
    is_vj = np.array([name in VJ_CHAINS for name in dataset.chains])
    vj, vdj = counts[:, is_vj].sum(axis=1), counts[:, ~is_vj].sum(axis=1)
    pairs = [{"TRA", "TRB"}, {"TRG", "TRD"}, {"heavy", "light"}]
    of_pair = np.array([[name in pair for pair in pairs] for name in dataset.chains])
    mixed = (counts @ of_pair > 0).sum(axis=1) > 1
    return np.select(
        [
            (vj > 2) | (vdj > 2),
            mixed,
            (vj == 2) & (vdj == 2),
            (vj == 2) & (vdj == 1),
            (vj == 1) & (vdj == 2),
            (vj == 1) & (vdj == 1),
            vdj == 0,
        ],
        ["multichain", "ambiguous", "two full chains", "extra VJ", "extra VDJ", "single pair", "orphan VJ"],
        "orphan VDJ",
    ).astype(object)
