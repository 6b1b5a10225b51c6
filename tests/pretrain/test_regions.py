from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.pretrain.regions import Unigrams, measure, stretches
from airrformer.receptors.tables import BOUND_COLUMNS

from .conftest import FRAMEWORK, make_chains


def certain(chains: pd.DataFrame) -> list[np.ndarray]:
    """A model that is always right."""
    return [np.eye(20)[[AMINO_ACIDS.index(letter) for letter in s]] for s in chains["sequence_aa"]]


def one_chain(sequence: str, locus: str = "TRB", **bounds: tuple[int, int]) -> pd.DataFrame:
    row = {"sequence_aa": sequence, "locus": locus, "v_call": None, "j_call": None} | dict.fromkeys(
        BOUND_COLUMNS, pd.NA
    )
    row |= {f"{region}_{end}": at for region, pair in bounds.items() for end, at in zip(("start", "end"), pair)}
    return pd.DataFrame([row]).astype({column: "Int32" for column in BOUND_COLUMNS})


def test_stretches_are_the_known_regions():
    found = list(stretches(one_chain("CASXGPF", cdr3=(1, 4), fwr4=(4, 7))))
    assert [(s.region, s.start, s.letters.tolist()) for s in found] == [
        ("cdr3", 1, [AMINO_ACIDS.index("A"), AMINO_ACIDS.index("S"), -1]),
        ("fwr4", 4, [AMINO_ACIDS.index(letter) for letter in "GPF"]),
    ]


@pytest.mark.parametrize("bounds", [(3, 1), (pd.NA, 2), (1, pd.NA), (0, 0)])
def test_bounds_that_are_none_are_no_region(bounds):
    chains = one_chain("CASF", cdr3=bounds)
    assert list(stretches(chains)) == []
    (stretch,) = stretches(one_chain("CASF", cdr3=(0, 2)))
    assert Unigrams(chains).by_place(stretch, "cdr3") == pytest.approx(1 / 20)


def test_unigrams_by_hand():
    # CDR3 letters of the training chains: A A S
    training = pd.concat([one_chain("AS", cdr3=(0, 2)), one_chain("A", cdr3=(0, 1))], ignore_index=True)
    unigrams = Unigrams(training)
    a, s = AMINO_ACIDS.index("A"), AMINO_ACIDS.index("S")
    by_region = unigrams.by_group("cdr3")
    assert by_region[[a, s]] == pytest.approx([(2 + 1 / 20) / 4, (1 + 1 / 20) / 4])
    (stretch,) = stretches(one_chain("ASS", cdr3=(0, 3)))
    by_place = unigrams.by_place(stretch, "cdr3")
    back_off = (np.array([2, 1]) + by_region[[a, s]]) / 4  # the region of this locus, smoothed by the group
    assert by_place[0, a] == pytest.approx((2 + back_off[0]) / 3)
    assert by_place[1, s] == pytest.approx((1 + back_off[1]) / 2)
    assert by_place[2, [a, s]] == pytest.approx(back_off)  # an offset that was never seen
    assert by_place.sum(1) == pytest.approx(1) and by_region.sum() == pytest.approx(1)


def test_a_locus_that_was_never_seen_falls_back_to_the_region():
    unigrams = Unigrams(one_chain("AAS", cdr3=(0, 3)))
    (stretch,) = stretches(one_chain("AS", locus="IGH", cdr3=(0, 2)))
    assert unigrams.by_place(stretch, "cdr3") == pytest.approx(np.tile(unigrams.by_group("cdr3"), (2, 1)))


def test_measure_counts_residues_and_knows_a_perfect_guess():
    chains = make_chains(30)
    report = measure(chains, certain(chains), Unigrams(make_chains(30, seed=1)))
    lengths = (chains["cdr3_end"] - chains["cdr3_start"]).sum()
    assert report["cdr3"]["n"] == lengths
    assert report["framework"]["n"] == 30 * (26 + 17 + (len(FRAMEWORK) - 54) + 10)
    assert report["cdr3"]["accuracy"] == 1 and report["cdr3"]["perplexity"] == pytest.approx(1)
    # one germline: its letters are known by their place, but not by their region
    assert report["framework"]["position_unigram_accuracy"] == 1
    assert report["framework"]["position_unigram_perplexity"] < 1.2 < 10 < report["framework"]["unigram_perplexity"]


def test_letters_beyond_the_twenty_are_not_judged():
    chains = one_chain("AXS", cdr3=(0, 3))
    report = measure(chains, [np.full((3, 20), 1 / 20)], Unigrams(chains))
    assert report["cdr3"]["n"] == 2 and report["cdr3"]["perplexity"] == pytest.approx(20)


def test_without_numbered_chains_nothing_is_claimed():
    chains = one_chain("CASSF")
    report = measure(chains, [np.full((5, 20), 1 / 20)], Unigrams(chains))
    assert report["cdr3"] == {
        "n": 0,
        **{
            f"{who}{what}": None for who in ("", "unigram_", "position_unigram_") for what in ("accuracy", "perplexity")
        },
    }
