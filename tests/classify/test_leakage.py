import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from airrformer.classify import leakage
from airrformer.classify.leakage import corpus_distances, corpus_leakage, leakage_table, shortcut_leaks
from airrformer.receptors.splits import Split
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS

DATA = Path(os.environ.get("AIRRFORMER_DATA", ""))


def tables(strings, **columns):
    """Receptors r0, r1, ... with these CDR3s, each a TRB chain or a TRA and a TRB chain; None: no chain."""
    ids = [f"r{i}" for i in range(len(strings))]
    rows = [
        dict.fromkeys(CHAIN_COLUMNS)
        | {"receptor_id": i, "chain": name, "sequence_aa": f"QQC{s}FGG", "cdr3_start": 3, "cdr3_end": 3 + len(s)}
        | {"v_call": "V1*01", "j_call": "J1*01", "cdr1_start": 0, "cdr1_end": 1}
        for i, of in zip(ids, strings)
        for name, s in zip(("TRB", "TRA"), (of,) if isinstance(of, str) else of)
        if s is not None
    ]
    chains = pd.DataFrame(rows).astype({column: "Int32" for column in BOUND_COLUMNS})
    return pd.DataFrame({"receptor_id": ids} | columns), chains


def split(folds, train=None, judged=None):
    folds = np.array(folds)
    train = folds != np.arange(folds.max() + 1)[:, None] if train is None else np.array(train)
    return Split("random", folds, train, [str(i) for i in range(len(folds))], judged)


BASE = "SIRSSYEQ"
STRINGS = [BASE, BASE, "SIRSAYEQ", "SIRAAYEQ", "SIAAAYEQ", "WWWWWWWWW"]  # 0, 0, 1, 2, 3 edits from the first


def test_tests_are_counted_by_the_nearest_that_their_models_learned_from():
    receptors, chains = tables(STRINGS)
    # fold 0 tests the first; the others are learned from
    for learned, expected in (([1], [1, 1, 1]), ([2], [0, 1, 1]), ([3], [0, 0, 1]), ([4, 5], [0, 0, 0])):
        folds = [0] + [-1] * 5
        train = [[i in learned for i in range(6)]]
        found = leakage_table(receptors, chains, [split(folds, train)])
        assert found == dict(zip(("exact", "distance_1", "distance_2", "of"), [*expected, 1]))


def test_edits_are_summed_over_the_chains():
    receptors, chains = tables([(BASE, "AVTGN"), ("SIRSAYEQ", "AVTGN"), ("SIRSAYEQ", "AVTGK")])
    found = leakage_table(receptors, chains, [split([0, 0, 1])])
    # the last is one edit from the second and two from the first
    assert found == {"exact": 0, "distance_1": 2, "distance_2": 3, "of": 3}


def test_what_the_models_do_not_learn_from_does_not_leak():
    receptors, chains = tables([BASE, BASE, BASE])
    everything = split([0, 1, 2])
    assert leakage_table(receptors, chains, [everything])["exact"] == 3
    train = everything.train.copy()
    train[0] = [False, False, False]
    assert leakage_table(receptors, chains, [split([0, 1, 2], train)])["exact"] == 2


def test_several_cross_validations_add_up_and_who_is_not_judged_does_not_count():
    receptors, chains = tables([BASE, BASE, "WWWWWWW"])
    apart, together = split([0, 1, 0]), split([0, 0, 1])
    assert leakage_table(receptors, chains, [apart, together]) == {
        "exact": 2, "distance_1": 2, "distance_2": 2, "of": 6,
    }  # fmt: skip
    judged = np.array([[True, False], [False, False], [False, True]])
    assert leakage_table(receptors, chains, [split([0, 1, 0], judged=judged)])["of"] == 2
    assert leakage_table(receptors, chains, [split([0, -1, 1])]) == {
        "exact": 1, "distance_1": 1, "distance_2": 1, "of": 2,
    }  # fmt: skip


def test_the_order_of_rows_changes_nothing_and_dense_sets_are_gone_through_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    strings = ["SI" + "".join(rng.choice(list("ACD"), 6)) for _ in range(300)]
    receptors, chains = tables(strings)
    folds = rng.integers(0, 3, 300)
    before = leakage_table(receptors, chains, [split(folds)])
    assert before["exact"] < before["distance_1"] <= before["distance_2"] <= 300
    order = rng.permutation(300)
    assert leakage_table(receptors.iloc[order], chains[::-1], [split(folds[order])]) == before
    leakage._kept_pairs.cache_clear()
    monkeypatch.setattr(leakage, "_PAIRS_KEPT", 10)
    assert leakage_table(receptors, chains, [split(folds)]) == before


@pytest.mark.skipif(not (DATA / "trastuzumab_dms").is_dir(), reason="AIRRFORMER_DATA names no folder with the data")
def test_a_mutational_scan_of_29041_variants():
    table = pd.read_csv(DATA / "trastuzumab_dms" / "mHER_H3_train80.csv.gz")
    receptors, chains = tables(sorted(set(table["AASeq"])))
    folds = np.random.default_rng(0).integers(0, 3, len(receptors))
    started = time.monotonic()
    found = leakage_table(receptors, chains, [split(folds)] * 3)
    assert time.monotonic() - started < 60
    assert found["of"] == 3 * 29041 and found["exact"] == 0
    # 1,082 pairs are one edit apart: two thirds of these lie in two folds, and each counts twice at most
    assert 3 * 1000 < found["distance_1"] < 3 * 2 * 1082 * 0.75 < found["distance_2"]


def test_what_an_encoder_has_read():
    receptors, chains = tables([(BASE, "AVTGN"), ("SIRSAYEQ", None), ("SIRAAYEQ", "AVTGNKKK"), ("WWWWWWW", "KKKKKK")])
    _, corpus = tables([(BASE, "AVTGN")])
    corpus.loc[corpus["chain"] == "TRA", "sequence_aa"] = "AVTGN"  # the same CDR3, other residues around it
    corpus.loc[corpus["chain"] == "TRA", ["cdr3_start", "cdr3_end"]] = [0, 5]
    assert corpus_distances(receptors, chains, corpus).tolist() == [0, 1, 2, 3]
    found = corpus_leakage(receptors, chains, corpus, [split([0, 1, 0, -1])])
    assert found == {
        "exact": 1, "distance_1": 2, "distance_2": 3, "of": 3,
        "folds": [
            {"trial": 0, "fold": 0, "exact": 1, "distance_1": 1, "distance_2": 2, "of": 2},
            {"trial": 0, "fold": 1, "exact": 0, "distance_1": 1, "distance_2": 1, "of": 1},
        ],
    }  # fmt: skip
    # an alpha chain is not a beta chain, and what has no CDR3 is like nothing
    corpus["chain"] = "TRG"
    assert corpus_distances(receptors, chains, corpus).tolist() == [3] * 4
    chains[["cdr3_start", "cdr3_end"]] = pd.NA
    _, corpus = tables([(BASE, "AVTGN")])
    assert corpus_distances(receptors, chains, corpus).tolist() == [0, 3, 3, 3]


# ------------------------------------------------------------------------------------------ labels told from elsewhere


def distinct(n, seed=0):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("ACDEFGHIKL"), 10)) for _ in range(n)]


def check(found, name):
    (entry,) = [entry for entry in found if entry["check"] == name]
    return entry


def binary(n=100, seed=0):
    return np.random.default_rng(seed).permutation(np.arange(n) % 2).astype(np.int8)[:, None]


def test_a_fair_set_has_no_warnings():
    Y = binary(400)
    rng = np.random.default_rng(1)
    receptors, chains = tables(
        distinct(400),
        label=[["A"] if y else [] for y in Y[:, 0]],
        not_label=[[] if y else ["A"] for y in Y[:, 0]],
        occurrences=rng.integers(1, 4, 400),
        donor=[f"d{i}" for i in rng.integers(0, 20, 400)],
    )
    chains.loc[rng.random(400) < 0.3, "j_call"] = None
    found = shortcut_leaks(receptors, chains, Y, ["A"])
    assert [entry["check"] for entry in found] == [
        "labelled_elsewhere", "occurrences", "missing", "group donor", "both_labels",
    ]  # fmt: skip
    assert [entry["level"] for entry in found] == ["fine"] * 5
    assert check(found, "both_labels")["auroc"] == 1 and abs(check(found, "group donor")["auroc"] - 0.5) < 0.1


def test_who_is_labelled_elsewhere_gives_away_the_negatives():
    # three classes of ten; the negatives that are given for A are B's and C's positives, but for two
    labels = [["A"]] * 10 + [["B"]] * 10 + [["C"]] * 10 + [[], []]
    not_labels = [[]] * 10 + [["A"]] * 20 + [["A"]] * 2
    receptors, chains = tables(distinct(32), label=labels, not_label=not_labels)
    Y = np.full((32, 3), -1, dtype=np.int8)
    Y[:10, 0], Y[10:20, 1], Y[20:30, 2] = 1, 1, 1
    Y[10:, 0] = 0
    entry = check(shortcut_leaks(receptors, chains, Y, ["A", "B", "C"]), "labelled_elsewhere")
    # 20 of 22 negatives are elsewhere: they rank above all positives, the other two tie
    assert entry["classes"] == {"A": pytest.approx(21 / 22), "B": None, "C": None}
    assert entry["level"] == "bad"
    # of the 30 positives, of all classes, those of B and C are said not to be of A
    assert entry["sentence"].startswith(
        "of the negatives that are given, 91% of another class, 0% not of one; of the positives, 0% of another class, "
        "67% not of one; "
    )


def test_swapped_negatives_are_of_another_class_by_construction():
    labels = [["A"], ["B"]] * 20
    Y = np.array([[1, 0], [0, 1]] * 20, dtype=np.int8)
    receptors, chains = tables(distinct(40), label=labels, not_label=[[]] * 40)
    assert "labelled_elsewhere" not in [e["check"] for e in shortcut_leaks(receptors, chains, Y, ["A", "B"])]


def test_how_often_a_receptor_stands_there():
    Y = binary()
    receptors, chains = tables(distinct(100), label=[[]] * 100, occurrences=np.where(Y[:, 0] == 1, 1, 3))
    entry = check(shortcut_leaks(receptors, chains, Y, ["A"]), "occurrences")
    assert entry["auroc"] == 1 and entry["level"] == "bad"
    assert entry["sentence"].startswith("positives stand there 1.00 times on average, negatives 3.00 times")


@pytest.mark.parametrize(
    "what, column", [("the V gene of TRB", "v_call"), ("the CDR1 of TRB", "cdr1_start"), ("the chain TRB", None)]
)
def test_what_is_missing_for_one_class(what, column):
    Y = binary()
    strings = [(s, s) for s in distinct(100)]
    gone = (Y[:, 0] == 0) & (np.arange(100) % 5 > 0)  # four of five negatives
    if column is None:
        strings = [(None, s) if g else (s, s) for (s, _), g in zip(strings, gone)]
    receptors, chains = tables(strings, label=[[]] * 100)
    if column is not None:
        lacking = set(receptors["receptor_id"][gone])
        chains.loc[(chains["chain"] == "TRB") & chains["receptor_id"].isin(lacking), column] = None
    entry = check(shortcut_leaks(receptors, chains, Y, ["A"]), "missing")
    share = gone[Y[:, 0] == 0].mean()
    assert entry["auroc"] == pytest.approx(0.5 + share / 2) and entry["level"] == "bad"
    assert entry["sentence"].startswith(f"{what} is missing in 0% of the positives of A and {share:.0%}")


def test_the_paper_tells_the_label():
    Y = binary(200)
    papers = [f"{'yes' if y else 'no'}{i % 7}" for i, y in enumerate(Y[:, 0])]
    receptors, chains = tables(distinct(200), label=[[]] * 200, paper=papers, lonely=[f"x{i}" for i in range(200)])
    found = shortcut_leaks(receptors, chains, Y, ["A"])
    assert check(found, "group paper")["auroc"] == 1 and check(found, "group paper")["level"] == "bad"
    assert not [e for e in found if e["check"] == "group lonely"]  # a value a receptor says nothing of others


def test_both_labels_on_the_same_chains():
    strings = distinct(100)
    strings[1] = strings[0]
    Y = (np.arange(100) % 2).astype(np.int8)[:, None]
    receptors, chains = tables(strings, label=[[]] * 100)
    entry = check(shortcut_leaks(receptors, chains, Y, ["A"]), "both_labels")
    # one of 50 positives ties with one negative and with no other: half a pair of 2,500 is lost
    assert entry["auroc"] == pytest.approx(1 - 0.5 / 2500)
    assert entry["level"] == "bad" and "1 times" in entry["sentence"] and "2.0%" in entry["sentence"]


def test_a_few_receptors_are_no_proof():
    receptors, chains = tables(distinct(8), label=[[]] * 8, occurrences=[1, 2, 1, 1, 2, 2, 1, 2])
    Y = np.array([0, 1] * 4, dtype=np.int8)[:, None]
    entry = check(shortcut_leaks(receptors, chains, Y, ["A"]), "occurrences")
    assert entry["auroc"] == 0.75 and entry["level"] == "fine"  # three standard errors are 0.87


def test_one_label_is_undefined():
    receptors, chains = tables(distinct(20), label=[["A"]] * 20, not_label=[[]] * 20, donor=["x", "y"] * 10)
    found = shortcut_leaks(receptors, chains, np.ones((20, 1), dtype=np.int8), ["A"])
    assert {entry["auroc"] for entry in found} == {None} and {entry["level"] for entry in found} == {"fine"}


@pytest.mark.skipif(not (DATA / "immrep22").is_dir(), reason="AIRRFORMER_DATA names no folder with the data")
def test_the_negatives_of_immrep22_are_the_positives_of_other_files():
    files = sorted((DATA / "immrep22" / "train").glob("*.tsv.gz"))
    table = pd.concat([pd.read_csv(file, sep="\t").assign(epitope=file.name.split(".")[0]) for file in files])
    classes = sorted(table["epitope"].unique())
    said = {}
    for a, b, epitope, label in zip(table["TRA_aa"], table["TRB_aa"], table["epitope"], table["Label"]):
        said.setdefault((b, a), {})[epitope] = label
    label, not_label = ([[e for e in of if of[e] == sign] for of in said.values()] for sign in (1, -1))
    receptors, chains = tables(list(said), label=label, not_label=not_label)
    chains["sequence_aa"] = [chain for pair in said for chain in pair]
    Y = np.array([[{1: 1, -1: 0, None: -1}[of.get(name)] for name in classes] for of in said.values()], dtype=np.int8)
    entry = check(shortcut_leaks(receptors, chains, Y, classes), "labelled_elsewhere")
    assert entry["level"] == "bad" and entry["auroc"] == pytest.approx(0.824, abs=0.002)


@pytest.mark.skipif(not (DATA / "spike_vs_ha_abs").is_dir(), reason="AIRRFORMER_DATA names no folder with the data")
def test_the_paper_and_the_missing_chains_of_spike_and_haemagglutinin():
    table = pd.read_csv(DATA / "spike_vs_ha_abs" / "spike_ha_train_val.csv.gz").fillna("")
    receptors, chains = tables(table["CDRH3_AA"].tolist(), label=[[]] * len(table), paper=table["reference"])
    chains["v_call"] = table["v_call_heavy"].to_numpy()
    Y = (table["antigen"] == "Spike").to_numpy(dtype=np.int8)[:, None]
    found = shortcut_leaks(receptors, chains, Y, ["Spike"])
    assert check(found, "group paper")["auroc"] > 0.99
    assert check(found, "group paper")["level"] == "bad"
