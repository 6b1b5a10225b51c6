from __future__ import annotations

import pandas as pd
import pytest

from airrformer.errors import UserError
from airrformer.pretrain.corpus import build_corpus, held_out

from .conftest import make_chains


def sequences(table: pd.DataFrame) -> set[str]:
    return set(table["sequence_aa"])


def test_whole_receptors_are_held_out_and_no_sequence_is_on_both_sides(chains):
    light = chains.assign(chain="light", locus="IGK", sequence_aa=chains["sequence_aa"].str[::-1])
    paired = pd.concat([chains, light], ignore_index=True)
    corpus = build_corpus({"toy": paired}, 510, 0.2, seed=7)
    out = held_out(chains["receptor_id"], 0.2, 7)
    assert 3 <= len(out) <= 25
    for _, receptor in paired.groupby("receptor_id"):
        seen = sequences(receptor) & sequences(corpus.train.chains)
        if receptor["receptor_id"].iloc[0] in out:
            assert not seen and sequences(receptor) <= sequences(corpus.validation.chains)
    assert not sequences(corpus.train.chains) & sequences(corpus.validation.chains)
    assert sequences(corpus.train.chains) | sequences(corpus.validation.chains) == sequences(paired)


def test_a_sequence_of_a_held_out_receptor_never_trains_whoever_else_has_it(chains):
    out = next(iter(held_out(chains["receptor_id"], 0.2, 7)))
    sequence = chains.loc[chains["receptor_id"] == out, "sequence_aa"].iloc[0]
    others = chains.assign(sequence_aa=chains["sequence_aa"].where(chains["receptor_id"] != "r0", sequence))
    again = make_chains(5, prefix="other").assign(sequence_aa=sequence)
    corpus = build_corpus({"toy": others, "again": again}, 510, 0.2, seed=7)
    assert sequence not in sequences(corpus.train.chains)


def test_repeated_sequences_count_once_and_the_order_of_rows_does_not_matter(chains):
    again = chains.assign(receptor_id="again_" + chains["receptor_id"], v_call="TRBV6-2*01")
    twice = pd.concat([chains, again], ignore_index=True)
    shuffled = twice.sample(frac=1, random_state=1).reset_index(drop=True)
    first, second = (build_corpus({"toy": table}, 510, 0.1, seed=7) for table in (twice, shuffled))
    assert first.train.chains["sequence_aa"].is_unique
    pd.testing.assert_frame_equal(first.train.chains, second.train.chains)
    pd.testing.assert_frame_equal(first.validation.chains, second.validation.chains)


def test_other_receptors_do_not_move_a_receptor():
    some, more = (make_chains(n)["receptor_id"] for n in (200, 400))
    assert held_out(some, 0.1, 7) == held_out(more, 0.1, 7) & set(some)
    assert held_out(some, 0.1, 7) != held_out(some, 0.1, 8)


def test_excluded_receptors_and_their_sequences_are_nowhere(chains):
    twin = chains.assign(receptor_id="twin_" + chains["receptor_id"])
    corpus = build_corpus({"toy": chains, "twins": twin}, 510, 0.2, seed=7, excluded={"toy": {"r1", "r2"}})
    gone = sequences(chains[chains["receptor_id"].isin(["r1", "r2"])])
    assert gone and not gone & (sequences(corpus.train.chains) | sequences(corpus.validation.chains))


def test_chains_with_x_are_read_and_numbered_rows_win(chains):
    unnumbered = chains.head(3).assign(cdr3_start=pd.NA, receptor_id="a")
    with_x = chains.tail(1).assign(sequence_aa="CAXX", receptor_id="x")
    corpus = build_corpus({"toy": pd.concat([unnumbered, chains, with_x])}, 510, 0.2, seed=7)
    both = pd.concat([corpus.train.chains, corpus.validation.chains])
    assert "CAXX" in sequences(both) and both["cdr3_start"].notna().all()


def test_a_chain_that_is_too_long_is_refused_by_name_and_length(chains):
    long = chains.assign(sequence_aa=chains["sequence_aa"].where(chains.index != 7, "A" * 600))
    with pytest.raises(UserError, match=r"toy: 1 of 60 chains .* 510 residues.* 'r7' with 600; .*max_length to 602"):
        build_corpus({"toy": long}, 510, 0.1, 7)


def test_one_receptor_is_too_few(chains):
    with pytest.raises(UserError, match="too few receptors"):
        build_corpus({"toy": chains.head(1)}, 510, 0.1, 7)


def test_receptors_that_all_have_one_sequence_leave_nothing_to_train_on(chains):
    with pytest.raises(UserError, match="none is left to train on"):
        build_corpus({"toy": chains.assign(sequence_aa="CASSF")}, 510, 0.1, 7)
