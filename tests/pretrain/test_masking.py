from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airrformer.core import alphabet
from airrformer.pretrain.masking import mask_residues, pad, rounds_of

LONG = "CASSIRSSYEQYFGPGTRLTVTDGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYW" * 2


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def many(rows: int = 2000) -> torch.Tensor:
    return pad([alphabet.encode(LONG), alphabet.encode(LONG[:40])] * (rows // 2))


def test_fifteen_percent_of_each_row_is_chosen():
    tokens = many(20)
    _, chosen = mask_residues(tokens, 0.15, generator())
    assert chosen.sum(1).tolist() == [round(0.15 * len(LONG)), 6] * 10


def test_of_the_chosen_80_percent_are_masked_10_random_10_kept():
    tokens = many()
    hidden, chosen = mask_residues(tokens, 0.15, generator())
    before, after = tokens[chosen], hidden[chosen]
    n = len(before)
    masked = (after == alphabet.MASK).sum().item() / n
    other = ((after != alphabet.MASK) & (after != before)).sum().item() / n
    kept = (after == before).sum().item() / n
    # the standard error is 0.4 / sqrt(n), here 0.003; a random letter is the same one in 1 of 20
    assert n > 20_000
    assert masked == pytest.approx(0.8, abs=0.01)
    assert other == pytest.approx(0.1 * 19 / 20, abs=0.008)
    assert kept == pytest.approx(0.1 + 0.1 / 20, abs=0.008)


def test_random_letters_are_all_twenty_alike():
    tokens = pad([alphabet.encode("A" * 200)] * 500)
    hidden, chosen = mask_residues(tokens, 0.5, generator())
    letters = hidden[chosen & (hidden != alphabet.MASK) & (hidden != alphabet.ID["A"])]
    counts = torch.bincount(letters, minlength=len(alphabet.TOKENS))[list(alphabet.AMINO_ACID_IDS)]
    others = counts[1:].float()  # without A
    assert counts.sum() == len(letters)
    assert (others - others.mean()).abs().max() < 5 * others.mean().sqrt()


def test_every_place_is_chosen_as_often_as_any_other():
    tokens = many()[::2]
    _, chosen = mask_residues(tokens, 0.15, generator())
    share = chosen.float().mean(0)[1:-1]
    assert (share - 0.15).abs().max() < 5 * (0.15 * 0.85 / len(tokens)) ** 0.5 + 0.005


def test_what_is_not_chosen_stays():
    tokens = many(10)
    hidden, chosen = mask_residues(tokens, 0.15, generator())
    assert torch.equal(hidden[~chosen], tokens[~chosen])


@given(
    st.lists(st.text("ACDEFGHIKLMNPQRSTVWYXBZUO", min_size=1, max_size=30), min_size=1, max_size=5), st.integers(0, 99)
)
def test_only_amino_acids_are_chosen_and_at_least_one_a_row(sequences, seed):
    tokens = pad([alphabet.encode(sequence) for sequence in sequences])
    hidden, chosen = mask_residues(tokens, 0.15, generator(seed))
    assert set(tokens[chosen].tolist()) <= set(alphabet.AMINO_ACID_IDS)
    for sequence, row in zip(sequences, chosen):
        assert row.any() == any(letter in alphabet.AMINO_ACIDS for letter in sequence)
    for special in (alphabet.CLS, alphabet.EOS, alphabet.PAD):
        assert torch.equal(hidden == special, tokens == special)


def test_the_generator_alone_decides():
    tokens = many(20)
    first, again, other = (mask_residues(tokens, 0.15, generator(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_in_rounds_every_amino_acid_is_hidden_once_and_evenly():
    tokens = pad([alphabet.encode("CASSXIRSSYEQYF"), alphabet.encode("AX")])
    turns = rounds_of(tokens, 7, generator())
    is_letter = torch.isin(tokens, torch.tensor(alphabet.AMINO_ACID_IDS))
    assert torch.equal(turns >= 0, is_letter)
    assert torch.bincount(turns[0][turns[0] >= 0], minlength=7).tolist() == [2, 2, 2, 2, 2, 2, 1]


def test_weighted_residues_are_chosen_more_often():
    """Three times the weight, about three times as often, and as many residues a row; no weights are weights of 1."""
    tokens = pad([alphabet.encode("A" * 100)]).repeat(400, 1)
    weights = torch.ones(tokens.shape)
    weights[:, 1:11] = 3.0
    _, chosen = mask_residues(tokens, 0.15, generator(), weights)
    assert (chosen.sum(1) == 15).all()
    rate = chosen.float().mean(0)
    assert 2.5 < rate[1:11].mean() / rate[11:101].mean() < 3.1  # a little below 3: what is chosen is not put back
    plain, even = (
        mask_residues(tokens, 0.15, generator())[1],
        mask_residues(tokens, 0.15, generator(), weights / weights)[1],
    )
    assert torch.equal(plain, even)
