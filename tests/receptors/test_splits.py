import numpy as np
import pandas as pd
import pytest

from airrformer.config import Dataset, Evaluation
from airrformer.receptors.splits import CannotSplit, assign_folds, deal, missing_groups, split_groups
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS

DATASET = Dataset(sequences="x.fasta", receptor="TCR", chains=["TRB"], groups={"donor": "subject"})
EVALUATION = Evaluation(folds=3)


def make(n=90, seed=0):
    """n receptors of three classes and twelve donors, in families of similar CDR3s."""
    rng = np.random.default_rng(seed)
    ids = [f"r{i}" for i in range(n)]
    classes = [["A"], ["B"], ["C"], ["A", "B"]]
    labels = [classes[i] for i in rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])]
    receptors = pd.DataFrame({"receptor_id": ids, "label": labels, "donor": [f"d{i}" for i in rng.integers(0, 12, n)]})
    families = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 11)) for _ in range(n // 3)]
    cdr3 = [families[i // 3][:5] + rng.choice(list("GS")) + families[i // 3][6:] for i in range(n)]
    rows = [
        dict.fromkeys(CHAIN_COLUMNS)
        | {"receptor_id": i, "chain": "TRB", "sequence_aa": s, "cdr3_start": 0, "cdr3_end": len(s)}
        for i, s in zip(ids, cdr3)
    ]
    return receptors, pd.DataFrame(rows).astype({column: "Int32" for column in BOUND_COLUMNS})


def folds_by_id(split, receptors, chains, seed=1, evaluation=EVALUATION):
    return dict(
        zip(receptors["receptor_id"], assign_folds(split, receptors, chains, DATASET, evaluation, seed).tolist())
    )


@pytest.mark.parametrize("split", ["random", "cluster", "group"])
def test_shuffled_rows_fall_into_the_same_folds(split):
    receptors, chains = make()
    shuffled = receptors.sample(frac=1, random_state=3).reset_index(drop=True)
    other_chains = chains.sample(frac=1, random_state=4).reset_index(drop=True)
    assert folds_by_id(split, receptors, chains) == folds_by_id(split, shuffled, other_chains)


@pytest.mark.parametrize("split", ["random", "cluster", "group"])
def test_every_fold_has_its_share_of_each_class(split):
    receptors, chains = make(300)
    folds = assign_folds(split, receptors, chains, DATASET, EVALUATION, 1)
    slack = {"random": 1, "cluster": 3, "group": 8}[split]
    for name in "ABC":
        counts = np.bincount(folds[[name in names for names in receptors["label"]]], minlength=3)
        assert counts.max() - counts.min() <= slack, (name, counts)


@pytest.mark.parametrize("split", ["cluster", "group"])
def test_what_stands_together_stays_together(split):
    receptors, chains = make()
    groups = split_groups(split, receptors, chains, DATASET, EVALUATION)
    folds = assign_folds(split, receptors, chains, DATASET, EVALUATION, 1)
    assert len(set(groups)) < len(groups)
    assert pd.Series(folds).groupby(groups).nunique().max() == 1


def test_seeds_give_other_folds():
    receptors, chains = make()
    for split in ("random", "cluster"):
        assert folds_by_id(split, receptors, chains, 1) != folds_by_id(split, receptors, chains, 2)


def test_receptors_without_a_label_are_never_tested_and_change_nothing():
    receptors, chains = make()
    before = folds_by_id("cluster", receptors, chains)
    receptors = receptors.copy()
    receptors["label"] = [[] if i < 5 else names for i, names in enumerate(receptors["label"])]
    after = folds_by_id("cluster", receptors, chains)
    assert [after[f"r{i}"] for i in range(5)] == [-1] * 5 and set(before.values()) == {0, 1, 2}
    only = receptors[5:].reset_index(drop=True)
    assert folds_by_id("cluster", only, chains) == {i: fold for i, fold in after.items() if fold >= 0}


def test_a_receptor_without_a_group_is_one_of_its_own():
    receptors, chains = make()
    receptors["donor"] = receptors["donor"].where(receptors["donor"] != "d1")
    receptors.loc[0, "donor"] = " "
    missing = missing_groups(receptors["donor"])
    groups = pd.Series(split_groups("group", receptors, chains, DATASET, EVALUATION))
    assert missing.sum() >= 2 and groups[missing].nunique() == missing.sum()


def test_what_cannot_be_split_says_why():
    receptors, chains = make()
    with pytest.raises(CannotSplit, match="names no groups"):
        assign_folds("group", receptors, chains, DATASET.model_copy(update={"groups": {}}), EVALUATION, 1)
    receptors["donor"] = ["d1", "d2"] * 45
    with pytest.raises(CannotSplit, match="2 groups are fewer than the 3 folds"):
        assign_folds("group", receptors, chains, DATASET, EVALUATION, 1)


def test_labels_may_be_arrays_as_parquet_gives_them(tmp_path):
    receptors, chains = make()
    receptors.to_parquet(tmp_path / "r.parquet")
    again = pd.read_parquet(tmp_path / "r.parquet")
    for split in ("random", "group"):
        assert folds_by_id(split, receptors, chains) == folds_by_id(split, again, chains)


def test_rare_classes_are_spread_too():
    membership = np.zeros((100, 2), dtype=bool)
    membership[:, 0] = True
    membership[:6] = [[False, True]] * 6
    folds = deal([f"g{i}" for i in range(100)], membership, 3, 1)
    assert np.bincount(folds[:6], minlength=3).tolist() == [2, 2, 2]
    assert np.ptp(np.bincount(folds)) <= 1
