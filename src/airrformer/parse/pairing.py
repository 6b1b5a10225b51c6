"""Chains to receptors: one chain of a kind each, and all the kinds that the dataset asks for.

Words for how many chains a receptor has are those of scirpy (``chain_pairing``): VJ chains are alpha, gamma and light
ones, VDJ chains beta, delta and heavy ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

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
        status: receptor id -> scirpy's word, for the receptors that are kept.
    """

    kept: np.ndarray
    reasons: dict[int, str]
    values: dict[int, str]
    status: pd.Series


def pair_chains(chains: pd.DataFrame, dataset: Dataset) -> Pairing:
    """Choose one chain of each kind for every receptor.

    Of several chains of a kind the top one is kept: known to be productive before unknown, then more UMIs
    (``umi_count``, else ``duplicate_count``), then more reads, then the first in the file. ``several_chains: drop``
    rejects the receptor instead, unless the further chain is ambient.

    Args:
        chains: receptor_id, chain, sequence_aa, productive, umi_count, duplicate_count, consensus_count, file, line.
    """
    count = len(chains)
    receptor = pd.factorize(chains["receptor_id"])[0]
    kind = pd.Categorical(chains["chain"], categories=list(dataset.chains)).codes.astype(np.int64)
    slot = receptor * len(dataset.chains) + kind
    umis = chains["umi_count"].fillna(chains["duplicate_count"]).fillna(-1).to_numpy(np.int64)
    reads = chains["consensus_count"].fillna(-1).to_numpy(np.int64)
    productive = chains["productive"].fillna(False).to_numpy(bool)
    order = np.lexsort((np.arange(count), -reads, -umis, ~productive, slot))
    first = np.ones(count, bool)
    first[1:] = slot[order][1:] != slot[order][:-1]
    top = order[first][np.cumsum(first) - 1]  # of each chain, in `order`, the one that is kept in its place
    kept = np.zeros(count, bool)
    kept[order[first]] = True
    reasons: dict[int, str] = {}
    values: dict[int, str] = {}
    counted = kept.copy()  # chains that count for the status: neither repeated nor ambient ones
    dropped: set[int] = set()
    for i, winner in zip(order[~first].tolist(), top[~first].tolist()):
        where = _where(chains, winner, i)
        same = chains["sequence_aa"].iat[i] == chains["sequence_aa"].iat[winner]
        ambient = 0 <= umis[i] < AMBIENT_SHARE * umis[winner]
        name = chains["chain"].iat[i]
        if same:
            reasons[i], values[i] = f"{name} chain of the receptor again", f"the first: {where}"
            continue
        counted[i] = not ambient
        reasons[i] = f"second {name} chain of the receptor{', ambient' if ambient else ''}"
        values[i] = f"kept: {where}" + (f", {umis[winner]} UMIs to {umis[i]}" if umis[i] >= 0 else "")
        if dataset.several_chains == "drop" and not ambient:
            dropped.add(receptor[i])
    status = _status(chains, receptor, counted)
    for i in np.flatnonzero(kept).tolist() if dropped else ():
        if receptor[i] in dropped:
            kept[i] = False
            reasons[i], values[i] = "receptor has several chains of a kind (several_chains: drop)", ""
    if dataset.missing_chain == "reject":
        _reject_incomplete(chains, dataset, receptor, kind, kept, reasons, values)
    return Pairing(kept, reasons, values, status)


def _where(chains: pd.DataFrame, winner: int, loser: int) -> str:
    line = f"line {chains['line'].iat[winner]}"
    file = chains["file"].iat[winner]
    return line if file == chains["file"].iat[loser] else f"{file}, {line}"


def _reject_incomplete(chains, dataset, receptor, kind, kept, reasons, values) -> None:
    """Receptors that lack a kind of chain are left out, each of their chains with the names of what is missing."""
    has = np.zeros((receptor.max(initial=-1) + 1, len(dataset.chains)), bool)
    has[receptor[kept], kind[kept]] = True
    lacks = ~has.all(axis=1)
    for i in np.flatnonzero(kept & lacks[receptor]).tolist():
        missing = [name for name, there in zip(dataset.chains, has[receptor[i]]) if not there]
        reasons[i], values[i] = f"receptor lacks chain {' and '.join(missing)}", str(chains["chain"].iat[i])
        kept[i] = False


def _status(chains: pd.DataFrame, receptor: np.ndarray, counted: np.ndarray) -> pd.Series:
    """scirpy's word for each receptor, by the numbers of its VJ and VDJ chains."""
    is_vj = chains["chain"].isin(VJ_CHAINS).to_numpy(bool)
    size = receptor.max(initial=-1) + 1
    vj = np.bincount(receptor[counted & is_vj], minlength=size)
    vdj = np.bincount(receptor[counted & ~is_vj], minlength=size)
    kinds = pd.DataFrame({"receptor": receptor[counted], "chain": chains["chain"].to_numpy()[counted]})
    arms = kinds.groupby("receptor")["chain"].agg(frozenset) if _mixed(set(kinds["chain"])) else None
    words = np.select(
        [
            (vj > 2) | (vdj > 2),
            (vj == 2) & (vdj == 2),
            (vj == 2) & (vdj == 1),
            (vj == 1) & (vdj == 2),
            (vj == 1) & (vdj == 1),
            vdj == 0,
        ],
        ["multichain", "two full chains", "extra VJ", "extra VDJ", "single pair", "orphan VJ"],
        "orphan VDJ",
    )
    if arms is not None:
        words[[i for i, names in arms.items() if _mixed(set(names))]] = "ambiguous"
    ids = pd.Series(chains["receptor_id"].to_numpy()).groupby(receptor).first()
    return pd.Series(words.astype(object), index=ids.to_numpy())


def _mixed(names: set[str]) -> bool:
    """Whether chains of two kinds of receptor are together, such as alpha and delta."""
    return sum(bool(names & pair) for pair in ({"TRA", "TRB"}, {"TRG", "TRD"}, {"heavy", "light"})) > 1
