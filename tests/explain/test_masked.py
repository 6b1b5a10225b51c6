from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import airrformer as af
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.core.weights import save
from airrformer.errors import UserError
from airrformer.explain import masked_guesses

CHAIN, REGION = "YLCASSIRSSYEQYFGPGTRLTVT", "CASSIRSSYEQYF"


@pytest.fixture
def encoder(tmp_path):
    model = Transformer(ModelConfig(layers=1, width=16, heads=2, feed_forward=32))
    initialise(model, torch.Generator().manual_seed(1))
    save(model, tmp_path / "tiny")
    return tmp_path / "tiny"


def test_a_row_a_position_with_twenty_probabilities(encoder, tmp_path):
    masked_guesses(encoder, CHAIN, REGION, tmp_path / "masked.tsv")
    table = pd.read_csv(tmp_path / "masked.tsv", sep="\t")
    assert list(table) == ["position", "residue", *AMINO_ACIDS]
    assert table["position"].tolist() == list(range(2, 15)) and "".join(table["residue"]) == REGION
    assert table[list(AMINO_ACIDS)].sum(axis=1).tolist() == pytest.approx([1] * 13, abs=1e-5)
    expected = af.load(encoder).masked_profile(CHAIN, [2])[0]
    assert np.allclose(table.loc[0, list(AMINO_ACIDS)].astype(float), expected, atol=1e-6)


def test_without_a_region_the_whole_sequence_in_either_case(encoder, tmp_path):
    masked_guesses(encoder, REGION.lower(), None, tmp_path / "masked.tsv")
    assert "".join(pd.read_csv(tmp_path / "masked.tsv", sep="\t")["residue"]) == REGION


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ("CAWSF", "region 'CAWSF' does not occur"),
        ("", "region '' does not occur"),
        ("SS", r"region 'SS' occurs in the sequence more than once, at 4 and 8"),
    ],
)
def test_a_region_that_cannot_be_placed(encoder, tmp_path, region, message):
    with pytest.raises(UserError, match=message):
        masked_guesses(encoder, CHAIN, region, tmp_path / "masked.tsv")
    assert not (tmp_path / "masked.tsv").exists()


def test_a_table_guesses_nothing(tmp_path):
    with pytest.raises(UserError, match="blosum62: this encoder is a table"):
        masked_guesses("blosum62", CHAIN, REGION, tmp_path / "masked.tsv")
