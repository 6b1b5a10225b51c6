"""Counts of k-mers and one-hot genes: a sparse baseline that learns nothing. No torch here.

Columns are fixed by the settings alone (every k-mer over the 20 amino acids, every gene of the locus that tidytcells
knows), so that the features of new receptors fit a saved classifier.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import tidytcells
from scipy import sparse

from airrformer.config import KmerEncoder
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.receptors.tables import CHAIN_LOCI

_DIGIT = {letter: i for i, letter in enumerate(AMINO_ACIDS)}


def kmer_columns(settings: KmerEncoder, chain: str) -> list[str]:
    """The names of the columns for one chain, in order."""
    names = [f"{chain}_{''.join(letters)}" for letters in product(AMINO_ACIDS, repeat=settings.k)]
    if settings.genes:
        names += [f"{chain}_{gene}" for gene in _genes(chain)]
    return names


def kmer_counts(rows: pd.DataFrame, settings: KmerEncoder, chain: str) -> sparse.csr_array:
    """(n, D) float32 for the n rows of a chains table. k-mers with a letter beyond the twenty are not counted.

    A chain without the region or without a gene call has zeros in those columns.
    """
    genes = {gene: len(AMINO_ACIDS) ** settings.k + i for i, gene in enumerate(_genes(chain))}
    row_of, columns = [], []
    for row, record in enumerate(rows.to_dict("records")):
        sequence = record["sequence_aa"]
        if settings.region is not None:
            start, end = record[f"{settings.region}_start"], record[f"{settings.region}_end"]
            sequence = "" if pd.isna(start) else sequence[start:end]
        found = [_kmer_index(sequence[i : i + settings.k]) for i in range(len(sequence) - settings.k + 1)]
        if settings.genes:
            found += [genes.get(_gene(record[call])) for call in ("v_call", "j_call")]
        columns += [column for column in found if column is not None]
        row_of += [row] * (len(columns) - len(row_of))
    counts = sparse.coo_array(
        (np.ones(len(columns), dtype=np.float32), (row_of, columns)),
        shape=(len(rows), len(kmer_columns(settings, chain))),
    )
    return counts.tocsr()  # which adds up what is named twice


def _kmer_index(kmer: str) -> int | None:
    index = 0
    for letter in kmer:
        if letter not in _DIGIT:
            return None
        index = index * len(AMINO_ACIDS) + _DIGIT[letter]
    return index


def _gene(call: object) -> str | None:
    """TRBV19*01 -> TRBV19: genes are compared without the allele."""
    return call.split("*")[0] if isinstance(call, str) else None


@cache
def _genes(chain: str) -> list[str]:
    loci = CHAIN_LOCI[chain]
    query = tidytcells.ig.query if loci[0].startswith("IG") else tidytcells.tr.query
    starts = tuple(f"{locus}{segment}" for locus in loci for segment in "VJ")
    return sorted(gene for gene in query(precision="gene") if gene.startswith(starts))
