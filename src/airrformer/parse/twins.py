"""Receptors with the same chains: found, counted, and made one where the dataset asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Twins:
    """Which receptors have the same chains: the residues, V gene and J gene of each are equal.

    Attributes:
        ids: the n receptors, in the order of first appearance.
        first: int (n,), for each the position of the first receptor with the same chains, which may be itself.
        repeats: int (n,), on how many rows of the input each stands.
    """

    ids: list[str]
    first: np.ndarray
    repeats: np.ndarray

    @cached_property
    def sizes(self) -> np.ndarray:
        """int (n,): at the first receptor of a group how many are in it, 0 elsewhere."""
        return np.bincount(self.first, minlength=len(self.ids))

    @cached_property
    def is_first(self) -> np.ndarray:
        return self.first == np.arange(len(self.ids))

    @cached_property
    def first_of(self) -> dict[str, str]:
        """Receptor -> the first one with its chains; those that are the first themselves are not among them."""
        return {self.ids[i]: self.ids[self.first[i]] for i in np.flatnonzero(~self.is_first).tolist()}

    def summary(self) -> dict[str, int]:
        groups = self.sizes[self.sizes > 1]
        return {"receptors": int(groups.sum()), "groups": len(groups), "largest": int(groups.max(initial=1))}

    def occurrences(self, rows: dict[str, int] | None = None) -> np.ndarray:
        """int (n,): on how many rows the receptor or one with its chains stands; ``rows``: id -> how many, if counted
        elsewhere (in a table of labels)."""
        own = self.repeats if rows is None else np.array([max(1, rows.get(i, 1)) for i in self.ids], dtype=np.int64)
        return np.bincount(self.first, weights=own, minlength=len(self.ids)).astype(np.int64)[self.first]


def find_twins(chains: pa.Table, kinds: Sequence[str], ids: list[str], repeats: np.ndarray) -> Twins:
    """Compare receptors by their chains.

    Args:
        chains: receptor_id, chain, sequence_aa, v_call, j_call; at most one of a kind for a receptor of ``ids``.
        kinds: the kinds of chain that a receptor may have.
    """
    receptor = pc.index_in(chains["receptor_id"], pa.array(ids, pa.string())).to_numpy()
    names = chains["chain"].cast(pa.string())
    kind = pc.index_in(names, pa.array(kinds, pa.string())).to_numpy()
    same = np.zeros(chains.num_rows, np.int64)
    for column in ("sequence_aa", "v_call", "j_call"):
        values = chains[column].cast(pa.large_string()).combine_chunks()  # may be more than 2 GB
        codes = pc.dictionary_encode(values, null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        same = _together(same, codes)
    receptors = np.zeros(len(ids), np.int64)
    for k in range(len(kinds)):
        of_kind = np.zeros(len(ids), np.int64)  # 0: the receptor lacks it
        of_kind[receptor[kind == k]] = same[kind == k] + 1
        receptors = _together(receptors, of_kind)
    _, first, group = np.unique(receptors, return_index=True, return_inverse=True)
    return Twins(ids, first[group], repeats)


def _together(codes: np.ndarray, more: np.ndarray) -> np.ndarray:
    """One code for each pair of codes, int64 from 0 without gaps, so that products stay small."""
    return pd.factorize(codes * (int(more.max(initial=0)) + 1) + more)[0].astype(np.int64)
