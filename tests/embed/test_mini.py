"""The encoder that ships with the package: that it is there, what its card says, and what it knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import airrformer as af
from airrformer.core.config import FAMILIES
from airrformer.core.weights import find_local, sha256
from airrformer.embed.stage import load_encoder
from airrformer.errors import UserError
from airrformer.paths import Results

BETA = (
    "NAGVTQTPKFQVLKTGQSMTLQCAQDMNHEYMSWYRQDPGMGLRLIHYSVGAGITDQGEVPNGYNVSRSTTEDFPLRLLSAAPSQTSVYFCASSYSGQGNEQYFGPGTRLTVT"
)


@pytest.fixture(scope="module")
def mini():
    return af.load("airrformer-mini", device="cpu")


def test_it_comes_with_the_package_and_is_small():
    file = Path(find_local("airrformer-mini"))
    assert file.parent.parent.parent == Path(af.__file__).parent
    assert file.stat().st_size <= 8_000_000
    card = (file.parent / "card.md").read_text(encoding="utf-8")
    for word in ("without any label", "sha256", "licence", "OLGA", "antiberty", "few-shot"):
        assert word.lower() in card.lower(), word
    metrics = json.loads((file.parent / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["corpus"] == ["controls", "repertoires", "drawn_tcr", "heavy", "light", "drawn_antibodies"]
    assert sha256(file) in card


def test_it_is_what_its_row_says(mini):
    assert mini.model.config == FAMILIES["airrformer-mini"]


def test_it_knows_the_germline_and_the_anchors(mini):
    """Of a rearranged chain that it has not seen as such it guesses the framework and both anchors."""
    places = [BETA.index("CASS"), BETA.index("FGPG"), 20, 34]
    profile = mini.masked_profile(BETA, places)
    letters = ["ACDEFGHIKLMNPQRSTVWY"[i] for i in profile.argmax(1)]
    assert letters[:2] == ["C", "F"] and letters[2:] == [BETA[20], BETA[34]]


def test_a_receptor_is_nearer_to_its_variants_than_to_others(mini):
    pairs = [
        ("ATGYPS|ATKADDK|ALSDSGGSNYKLT", "MNHEY|SVGAGI|ASSYSGQGNEQY"),
        ("ATGYPS|ATKADDK|ALSDTGGSNYKLT", "MNHEY|SVGAGI|ASSYSGQGSEQY"),
        ("TSESDYY|QEAYKQQN|AYRSALNDYKLS", "SGHVS|FQNEAQ|ASSLGTGGYEQY"),
    ]
    vectors = mini.embed(pairs, pooling="loops", loci=[("TRA", "TRB")] * 3)
    cosines = vectors @ vectors.T / 6
    assert cosines[0, 1] > 0.9 > cosines[0, 2] + 0.2
    assert np.isfinite(vectors).all() and vectors.dtype == np.float32


def test_the_stage_needs_no_folder_of_it(tmp_path):
    results = Results(tmp_path)
    assert load_encoder("mini", results, "small", "cpu", "fp32").width == 96
    with pytest.raises(UserError, match="neither a folder with an encoder nor one of"):
        load_encoder("antiberty", results, "large", "cpu", "fp32")
