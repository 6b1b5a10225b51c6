"""Small chains tables that look like receptors: one germline, a CDR3 that differs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from airrformer.config import Config, load_config
from airrformer.pretrain.corpus import Part
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS

FRAMEWORK, JUNCTION_END = (
    "GVTQTPKFQVLKTGQSMTLQCAQDMNHEYMSWYRQDPGMGLRLIHYSVGAGITDQGEVPNGYNVSRSTTEDFPLRLLSAAPSQTSVYFC",
    "FGPGTRLTVL",
)


def make_chains(n: int, seed: int = 0, prefix: str = "r") -> pd.DataFrame:
    """``n`` receptors of one TRB chain; every CDR3 starts with ASS and ends with EQY."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        cdr3 = "ASS" + "".join(generator.choice(list("GLRTS"), size=generator.integers(3, 7))) + "EQY"
        start = len(FRAMEWORK)
        bounds = {"fwr1": (0, 26), "cdr1": (26, 31), "fwr2": (31, 48), "cdr2": (48, 54), "fwr3": (54, start)}
        bounds |= {"cdr3": (start, start + len(cdr3)), "fwr4": (start + len(cdr3), start + len(cdr3) + 10)}
        sequence = FRAMEWORK + cdr3 + JUNCTION_END
        row = {"receptor_id": f"{prefix}{i}", "sequence_id": f"{prefix}{i}", "locus": "TRB", "chain": "TRB"}
        row |= {"sequence_aa": sequence, "v_call": "TRBV6-1*01", "j_call": "TRBJ2-7*01", "numbered": True}
        row |= {"junction_aa": f"C{cdr3}F", "productive": True, "note": None}
        row |= {f"{region}_{end}": at for region, pair in bounds.items() for end, at in zip(("start", "end"), pair)}
        rows.append(row)
    return pd.DataFrame(rows, columns=list(CHAIN_COLUMNS)).astype({column: "Int32" for column in BOUND_COLUMNS})


def part_of(chains: pd.DataFrame) -> Part:
    """Each distinct chain is a receptor."""
    distinct = chains.drop_duplicates("sequence_aa").assign(dataset="toy").reset_index(drop=True)
    receptors = np.stack([np.arange(len(distinct)), np.full(len(distinct), -1)], axis=1)
    return Part(distinct, receptors, receptors[:, 1])


@pytest.fixture
def chains() -> pd.DataFrame:
    return make_chains(60)


@pytest.fixture
def config() -> Config:
    """A config with one small encoder, ``tiny``, on the dataset ``toy``."""
    return small_config()


def small_config(corpus: object = ("toy",), **train: object) -> Config:
    settings = {"steps": 12, "batch_tokens": 1024, "learning_rate": 3e-3, "warmup_steps": 3, "validate_every": 4}
    return load_config(
        {
            "datasets": {
                "toy": {
                    "sequences": "toy.fasta",
                    "receptor": "TCR",
                    "chains": ["TRB"],
                    "labels": {"path": "toy.tsv"},
                    "groups": {"donor": "donor"},
                }
            },
            "encoders": {
                "tiny": {
                    "kind": "pretrain",
                    "corpus": corpus if isinstance(corpus, str) else list(corpus),
                    "model": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32},
                    "train": settings | train,
                }
            },
        }
    )
