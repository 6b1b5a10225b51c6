from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import airrformer as af
from airrformer.cli import app
from airrformer.core import weights
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.core.weights import save
from airrformer.errors import UserError
from airrformer.explain import guess_lines, masked_guesses

CHAIN, REGION = "YLCASSIRSSYEQYFGPGTRLTVT", "CASSIRSSYEQYF"
# TRBV19 up to its CDR3, a public CDR3 that binds GILGFVFTL on HLA-A*02:01, and the rest of TRBJ2-7
TRB = (
    "MSNQVLCCVVLCLLGANTVDGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYYSQIVNDFQKGDIAEGYSVSREKKESFPLTVTSAQKNPTAFYL"
    "CASSIRSSYEQYFGPGTRLTVT"
)
HEAVY = (
    "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYC"
    "AAPYCSSISCNDGFDIWGQGTMVTVSS"
)
LINE = re.compile(r"position (\d+)(?:, (\d+) in the region)?: p\((.)\) = ([\d.]+); likeliest (.*)")


@pytest.fixture
def encoder(tmp_path):
    model = Transformer(ModelConfig(layers=1, width=16, heads=2, feed_forward=32))
    initialise(model, torch.Generator().manual_seed(1))
    save(model, tmp_path / "tiny")
    return tmp_path / "tiny"


def printed(*arguments) -> list[str]:
    done = CliRunner().invoke(app, ["explain", "masked", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_a_row_a_position_with_twenty_probabilities(encoder, tmp_path):
    returned = masked_guesses(encoder, CHAIN, REGION, tmp_path / "masked.tsv")
    table = pd.read_csv(tmp_path / "masked.tsv", sep="\t")
    assert list(table) == list(returned) == ["position", "residue", *AMINO_ACIDS]
    assert table["position"].tolist() == list(range(2, 15)) and "".join(table["residue"]) == REGION
    assert table[list(AMINO_ACIDS)].sum(axis=1).tolist() == pytest.approx([1] * 13, abs=1e-5)
    expected = af.load(encoder).masked_profile(CHAIN, [2])[0]
    assert np.allclose(table.loc[0, list(AMINO_ACIDS)].astype(float), expected, atol=1e-6)


def test_without_a_region_the_whole_sequence_in_either_case(encoder):
    assert "".join(masked_guesses(encoder, REGION.lower())["residue"]) == REGION


def test_a_line_a_hidden_residue_in_the_order_asked_for(encoder):
    lines = printed("--encoder", encoder, "--sequence", CHAIN, "--positions", "7,2")
    found = [LINE.fullmatch(line).groups() for line in lines]
    assert [(position, within, residue) for position, within, residue, *_ in found] == [
        ("7", None, "R"),
        ("2", None, "C"),
    ]
    for position, _, residue, p, likeliest in found:
        expected = af.load(encoder).masked_probabilities(CHAIN, int(position))
        assert float(p) == pytest.approx(expected[residue], abs=5e-4)
        best = sorted(expected.items(), key=lambda item: -item[1])[:4]
        assert likeliest == ", ".join(f"{letter} {value:.3f}" for letter, value in best)


def test_residues_of_a_region_are_counted_in_it_too(encoder, tmp_path):
    output = tmp_path / "masked.tsv"
    lines = printed("--encoder", encoder, "--sequence", CHAIN, "--region", REGION.lower(), "--output", output)
    found = [LINE.fullmatch(line).groups()[:3] for line in lines]
    assert found == [(str(i + 1), str(i), residue) for i, residue in enumerate(REGION, start=1)]
    assert pd.read_csv(output, sep="\t")["position"].tolist() == list(range(2, 15))


def test_a_letter_that_is_none_of_the_twenty_has_no_probability(encoder):
    line = guess_lines(masked_guesses(encoder, "CAXF", positions=[2]))[0]
    assert line.startswith("position 2: X, none of the twenty; likeliest ")


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--positions", "3,24"], "position 24 is outside the sequence: its 24 residues count from 0"),
        (["--positions", "-1"], "position -1 is outside"),
        (["--positions", "3;4"], "--positions '3;4': numbers joined by commas"),
        (["--positions", ""], "--positions '': numbers joined by commas"),
        (["--positions", "3", "--region", REGION], "a region and positions were given"),
        (["--region", "SS"], "more than once"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_hidden_is_a_mistake_of_the_users(encoder, monkeypatch, capsys, options, message):
    arguments = ["explain", "masked", "--encoder", str(encoder), "--sequence", CHAIN, *options]
    monkeypatch.setattr("sys.argv", ["airrformer", *arguments])
    with pytest.raises(SystemExit) as left:
        af.cli.main()
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "") and message in err


def test_a_table_guesses_nothing(tmp_path):
    with pytest.raises(UserError, match="blosum62: this encoder is a table"):
        masked_guesses("blosum62", CHAIN, REGION, tmp_path / "masked.tsv")


def test_a_decoder_guesses_nothing(tmp_path):
    save(Transformer(ModelConfig(form="decoder", layers=1, width=16, heads=2, feed_forward=32)), tmp_path / "writer")
    with pytest.raises(UserError, match="decoder"):
        masked_guesses(tmp_path / "writer", CHAIN, REGION)


@pytest.mark.skipif(weights.find_local("antiberty") is None, reason="AntiBERTy's weights are not on this machine")
def test_antiberty_knows_the_cysteine_before_a_heavy_cdr3():
    cysteine = HEAVY.index("CAAPY")
    lines = printed("--encoder", "antiberty", "--sequence", HEAVY, "--positions", f"{cysteine},{cysteine + 3}")
    (_, _, residue, p, likeliest), (_, _, _, p_of_p, _) = (LINE.fullmatch(line).groups() for line in lines)
    assert residue == "C" and float(p) > 0.9 and likeliest.startswith("C ")
    assert float(p_of_p) < 0.5  # the loop itself is open


@pytest.mark.skipif(
    weights.find_local("esm2_t12_35M_UR50D") is None, reason="the weights of esm2_t12_35M_UR50D are not on this machine"
)
def test_esm2_35m_on_a_public_receptor():
    """The numbers of the teaching material: the cysteine is certain, the R that is read by the peptide is not."""
    assert len(TRB) == 131
    guesses = masked_guesses("esm2_t12_35M_UR50D", TRB, REGION, device="cpu")
    assert guesses.loc[0, "C"] == pytest.approx(0.982, abs=5e-4)
    assert guesses.loc[5, "R"] == pytest.approx(0.031, abs=5e-4)
    top = guesses.loc[5, list(AMINO_ACIDS)].astype(float).nlargest(4)
    assert list(top.index) == ["S", "L", "T", "P"]
    assert top.tolist() == pytest.approx([0.18, 0.12, 0.11, 0.08], abs=5e-3)
