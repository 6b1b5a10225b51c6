"""Receptors as batches of tokens."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from airrformer.core import alphabet
from airrformer.core.config import ALPHABET_SIZE, SEPARATOR, TAGS, ModelConfig
from airrformer.pretrain.corpus import Part, build_corpus, clusters
from airrformer.pretrain.reading import LOOP_CODES, Reader, balanced, cdr3_weights, endless_batches, mixed_batches

from .conftest import make_chains, part_of

PAIRED = ModelConfig(tags=True, pairs=True, loops=True, segments=2, alphabet_size=ALPHABET_SIZE + len(TAGS))


def paired(n: int = 30) -> pd.DataFrame:
    """Each receptor has a beta and an alpha chain."""
    beta, alpha = make_chains(n), make_chains(n, seed=5)
    alpha["sequence_aa"] = "M" + alpha["sequence_aa"].str[1:]
    alpha = alpha.assign(receptor_id=beta["receptor_id"], chain="TRA", locus="TRA", v_call="TRAV1-1*01")
    return pd.concat([beta, alpha], ignore_index=True)


def corpus(table: pd.DataFrame, **options):
    return build_corpus({"toy": table}, 500, 0.2, 7, **options)


def letters(ids) -> str:
    return "".join("|" if i == SEPARATOR else alphabet.TOKENS[i] for i in ids if i < ALPHABET_SIZE)


def test_a_pair_is_read_alpha_first_and_each_token_says_what_it_is():
    part = corpus(paired()).train
    reader = Reader(part, PAIRED, ("cdrs",), pairs=True, species={"toy": "human"})
    tokens = reader.batch([0], np.zeros(len(reader), dtype=int))
    a, b = part.chains.loc[part.receptors[0]].to_dict("records")
    assert (a["locus"], b["locus"]) == ("TRA", "TRB")
    loops = [
        "|".join(c["sequence_aa"][c[f"{r}_start"] : c[f"{r}_end"]] for r in ("cdr1", "cdr2", "cdr3")) for c in (a, b)
    ]
    assert letters(tokens.ids[0].tolist()) == f"<cls>{loops[0]}<eos>{loops[1]}<eos>"
    assert [i for i in tokens.ids[0].tolist() if i >= ALPHABET_SIZE] == [
        ALPHABET_SIZE + TAGS.index(tag) for tag in ("human", "TRA", "TRB")
    ]
    for chain, text in enumerate(loops):
        for code, loop in zip(LOOP_CODES, text.split("|")):
            inside = (tokens.regions[0] == code) & (tokens.chains[0] == chain)
            assert letters(tokens.ids[0][inside].tolist()) == loop
    assert int((tokens.chains[0] >= 0).sum()) == sum(len(text) - 2 for text in loops)


@pytest.mark.parametrize(("form", "length"), [("chain", 105), ("junction", 15), ("cdrs", 26)])
def test_lengths_are_those_of_what_is_written(form, length):
    """CDR1 has 5 residues, CDR2 6, the longest CDR3 12; two separators, start and end."""
    reader = Reader(part_of(make_chains(50)), ModelConfig(loops=True), (form,))
    forms = np.zeros(len(reader), dtype=int)
    for row in range(len(reader)):
        assert reader.batch([row], forms).ids.shape[1] == reader.lengths[0, row]
    sequence = max(reader.part.chains["sequence_aa"], key=len)
    longest = {"chain": len(sequence) + 2, "junction": 12 + 4, "cdrs": 5 + 6 + 12 + 4}[form]
    assert reader.lengths.max() == longest


def test_a_chain_without_regions_is_read_whole_in_every_form():
    chains = make_chains(3).assign(cdr3_start=pd.NA, cdr3_end=pd.NA)
    for form in ("cdrs", "junction"):
        reader = Reader(part_of(chains), ModelConfig(loops=True), (form,))
        tokens = reader.batch([0], np.zeros(3, dtype=int))
        assert letters(tokens.ids[0].tolist()) == f"<cls>{reader.part.chains['sequence_aa'][0]}<eos>"


def test_forms_get_as_many_tokens_each():
    reader = Reader(part_of(make_chains(2000)), ModelConfig(loops=True), ("cdrs", "chain"))
    forms = reader.drawn_forms(torch.Generator().manual_seed(0))
    tokens = [reader.lengths[form, forms == form].sum() for form in (0, 1)]
    assert tokens[0] == pytest.approx(tokens[1], rel=0.15)


def test_an_epoch_holds_every_row_once_within_the_budget():
    lengths = np.random.default_rng(0).integers(90, 140, size=300)
    epochs = [mixed_batches(lengths, np.arange(300), 1024, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    for batches in epochs:
        assert sorted(row for batch in batches for row in batch) == list(range(300))
        assert all(len(batch) * lengths[batch].max() <= 1024 for batch in batches)
    assert epochs[0] != epochs[1]


def test_of_a_cluster_an_epoch_has_one():
    part = part_of(make_chains(40))
    reader = Reader(part, ModelConfig())
    groups = clusters(part.chains, reader.members)
    assert 1 < len(set(groups)) < len(groups)
    batches = endless_batches(reader, 4096, lambda epoch: torch.Generator().manual_seed(epoch), 0, groups)
    seen: list[int] = []
    while len(seen) < len(set(groups)):
        seen += next(batches).rows.tolist()
    assert sorted(groups[seen]) == sorted(set(groups))


def test_clusters_are_near_copies_of_one_gene():
    chains = make_chains(3).iloc[[0, 0, 0, 0]].reset_index(drop=True)
    for row, (cdr3, gene) in enumerate(
        (("ASSGLEQY", "TRBV6-1*01"), ("ASSGREQY", "TRBV6-1*02"), ("ASSGRQQY", "TRBV6-1"), ("ASSGLEQY", "TRBV28"))
    ):
        sequence = f"C{cdr3}F{row}".replace(str(row), "AGST"[row])
        chains.loc[row, ["sequence_aa", "v_call", "cdr3_start", "cdr3_end"]] = [sequence, gene, 1, 9]
    members = np.stack([np.arange(4), np.full(4, -1)], axis=1)
    found = clusters(chains, members)
    assert found[0] == found[1] == found[2] != found[3]  # each one edit from the next; another gene is another cluster


def test_chains_near_a_held_out_cdr3_do_not_train():
    table = make_chains(400)
    plain, strict = corpus(table), corpus(table, held_out_edits=1)
    out = {s[a:b] for s, a, b in plain.validation.chains[["sequence_aa", "cdr3_start", "cdr3_end"]].to_numpy()}

    def near(part):
        cdr3 = [s[a:b] for s, a, b in part.chains[["sequence_aa", "cdr3_start", "cdr3_end"]].to_numpy()]
        return sum(any(len(c) == len(o) and sum(x != y for x, y in zip(c, o)) == 1 for o in out) for c in cdr3)

    assert near(plain.train) > 0 == near(strict.train)
    pd.testing.assert_frame_equal(plain.validation.chains, strict.validation.chains)


def test_chains_near_a_held_out_cdr3_that_is_not_measured_train(monkeypatch):
    table = make_chains(400)
    strict = corpus(table, held_out_edits=1)
    monkeypatch.setattr("airrformer.pretrain.corpus._VALIDATION_CHAINS", 4)
    few = corpus(table, held_out_edits=1)
    assert len(few.validation.chains) <= 4
    assert len(strict.train.chains) < len(few.train.chains)
    assert not set(few.train.chains["sequence_aa"]) & set(strict.validation.chains["sequence_aa"])


def test_edits_may_be_named_for_some_loci():
    table = make_chains(400)
    plain, strict, other = (corpus(table, held_out_edits=edits) for edits in (0, 1, {"IGH": 1}))
    assert len(strict.train.chains) < len(plain.train.chains) == len(other.train.chains)
    pd.testing.assert_frame_equal(corpus(table, held_out_edits={"TRB": 1}).train.chains, strict.train.chains)


def test_rare_kinds_are_read_oftener():
    kinds = np.repeat([0, 1, 2], [10_000, 400, 25])
    assert np.bincount(kinds[balanced(kinds, 0.0)]).tolist() == [10_000, 400, 25]
    assert np.bincount(kinds[balanced(kinds, 1.0)]).tolist() == [25, 25, 25]
    assert np.bincount(kinds[balanced(kinds, 0.5)]).tolist() == [500, 100, 25]
    assert balanced(kinds[:0], 0.5).shape == (0,)
    lone, pair = paired().iloc[:30], paired().assign(receptor_id=lambda t: "p" + t["receptor_id"])
    lone = lone.assign(sequence_aa=lone["sequence_aa"].str.replace("Y", "W"))
    reader = Reader(corpus(pd.concat([lone, pair], ignore_index=True)).train, PAIRED, ("cdrs",), pairs=True)
    paired_ones = reader.members[:, 1] >= 0
    assert len(set(reader.kinds[paired_ones])) == len(set(reader.kinds[~paired_ones])) == 1
    assert len(set(reader.kinds)) == 2


def test_labels_follow_the_receptors():
    table = paired()
    labels = pd.Series({"r0": "B", "r1": "A", "r2": "B"})
    part = build_corpus({"toy": table}, 500, 0.01, 7, labels={"toy": labels}).train
    beta = dict(zip(table["sequence_aa"][:30], table["receptor_id"][:30]))
    for (_, b), label in zip(part.receptors, part.labels):
        receptor = beta[part.chains["sequence_aa"][b]]
        assert label == {"r0": 1, "r1": 0, "r2": 1}.get(receptor, -1)


def test_the_cdr3_weighs_more():
    regions = torch.tensor([[0, LOOP_CODES[0], LOOP_CODES[2]]])
    assert cdr3_weights(regions, 4.0).tolist() == [[1, 1, 4]]


def test_a_chain_of_a_known_and_an_unknown_receptor_is_known():
    chains = part_of(make_chains(4)).chains
    part = Part(chains, np.array([[0, 1], [0, 2], [3, -1]]), np.array([1, -1, -1]))
    assert Reader(part, ModelConfig()).labels.tolist() == [1, 1, -1, -1]
