"""Chains to receptors: one chain of a kind each, and all the kinds that the dataset asks for."""

from __future__ import annotations

from airrformer.config import Dataset
from airrformer.parse.chains import Chain
from airrformer.parse.records import Rejection


def pair_chains(chains: list[Chain], dataset: Dataset) -> tuple[list[Chain], list[Rejection]]:
    """Keep the first chain of each kind of a receptor, and receptors that have every kind (or ``missing_chain: zero``).

    Order is kept. A cell with two alpha chains keeps the first; the second is rejected and says which was kept.
    """
    kept: list[Chain] = []
    rejected: list[Rejection] = []
    first: dict[tuple[str, str], Chain] = {}
    for chain in chains:
        key = (chain.record.receptor_id, chain.chain or "")
        if key in first:
            other = first[key].record
            where = f"line {other.line}" if other.file == chain.record.file else f"{other.file}, line {other.line}"
            rejected.append(_reject(chain, f"second {chain.chain} chain of the receptor", f"the first: {where}"))
        else:
            first[key] = chain
            kept.append(chain)
    if dataset.missing_chain == "reject":
        lacking = {}
        for chain in kept:
            receptor_id = chain.record.receptor_id
            if receptor_id not in lacking:
                lacking[receptor_id] = [name for name in dataset.chains if (receptor_id, name) not in first]
        for chain in kept:
            if missing := lacking[chain.record.receptor_id]:
                rejected.append(_reject(chain, f"receptor lacks chain {' and '.join(missing)}", chain.chain or ""))
        kept = [chain for chain in kept if not lacking[chain.record.receptor_id]]
    return kept, rejected


def _reject(chain: Chain, reason: str, value: str) -> Rejection:
    return Rejection(chain.record.file, chain.record.line, chain.record.id, reason, value)
