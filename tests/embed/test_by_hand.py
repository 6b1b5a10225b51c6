"""One file, one encoder, one table: ``airrformer embed FILE``."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import airrformer as af
from airrformer.embed import stage
from airrformer.embed.stage import embed_file
from airrformer.errors import UserError

CDR3S = ["CASSIRSSYEQYF", "CASSLGQAYEQYF", "CASSIRSSYEQYF", "CAWSVPLGRREKLFF", "CASSPTSGG"]


@pytest.fixture
def fasta(tmp_path):
    path = tmp_path / "some.fasta"
    path.write_text("".join(f">clone_{i}\n{sequence}\n" for i, sequence in enumerate(CDR3S)))
    return path


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz"])
@pytest.mark.parametrize("block", [50_000, 2])
def test_blocks_follow_the_file(fasta, tmp_path, monkeypatch, ending, block):
    monkeypatch.setattr(stage, "_BLOCK", block)
    output = tmp_path / f"vectors{ending}"
    embed_file(fasta, "blosum62", output)
    if ending == ".npz":
        found = np.load(output)
        ids, vectors = found["ids"].tolist(), found["X"]
    else:
        table = pd.read_parquet(output) if ending == ".parquet" else pd.read_csv(output)
        ids, vectors = table.pop("sequence_id").tolist(), table.to_numpy()
        assert list(table) == [f"blosum62_{i}" for i in range(20)]
    assert ids == [f"clone_{i}" for i in range(5)]
    np.testing.assert_allclose(vectors, af.load("blosum62").embed(CDR3S), rtol=1e-6)
    assert vectors.dtype == (np.float64 if ending == ".csv" else np.float32)


def test_what_cannot_be_pooled_is_named_by_its_id_and_nothing_is_written(fasta, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "_BLOCK", 2)
    with pytest.raises(UserError, match=r"clone_0 \(CASSIRSSYEQYF...\): no cdr1 is found"):
        embed_file(fasta, "blosum62", tmp_path / "vectors.parquet", pooling="cdr1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.fasta"]


def test_errors_count_what_was_given_and_not_what_is_distinct():
    with pytest.raises(UserError, match=r"sequence 2 \(CA1F\)"):
        af.load("blosum62").embed(["CASSF", "CASSF", "CA1F"])
