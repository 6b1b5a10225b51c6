import numpy as np
import pandas as pd
import pytest

from airrformer.config import Dataset, Evaluation, Negatives
from airrformer.receptors.splits import (
    CannotSplit,
    assign_folds,
    deal,
    make_split,
    missing_groups,
    parent_distances,
    split_groups,
    value_bins,
)
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS

DATASET = Dataset(
    sequences="x.fasta", receptor="TCR", chains=["TRB"], groups={"donor": "subject"}, parent={"TRB": "CASSFGGCASS"}
)
EVALUATION = Evaluation(folds=3)


def make(n=90, seed=0):
    """n receptors of three classes and twelve donors, in families of three similar CDR3s."""
    rng = np.random.default_rng(seed)
    ids = [f"r{i}" for i in range(n)]
    classes = [["A"], ["B"], ["C"], ["A", "B"]]
    labels = [classes[i] for i in rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])]
    receptors = pd.DataFrame({"receptor_id": ids, "label": labels, "donor": [f"d{i}" for i in rng.integers(0, 12, n)]})
    families = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 11)) for _ in range(n // 3)]
    cdr3 = [families[i // 3][:5] + "GSA"[i % 3] + families[i // 3][6:] for i in range(n)]
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


@pytest.mark.parametrize("split", ["random", "cluster", "group", "class", "parent", "given"])
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
    with pytest.raises(CannotSplit, match="3 folds need as many groups, and there are 2"):
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


# ---------------------------------------------------------------------------------------- what the fold's models learn

ALL = ("random", "cluster", "group", "class", "parent", "given")


def classes_of(receptors, names="ABC"):
    return np.array([[name in of for name in names] for of in receptors["label"]]).astype(np.int8)


def made(split, receptors, chains, dataset=DATASET, evaluation=EVALUATION, seed=1, Y=None):
    return make_split(split, receptors, chains, dataset, evaluation, seed, classes_of(receptors) if Y is None else Y)


@pytest.mark.parametrize("split", ALL)
def test_nothing_is_tested_that_its_models_learned_from(split):
    receptors, chains = make()
    found = made(split, receptors, chains)
    assert found.name == split and found.train.shape == (found.folds.max() + 1, 90) and len(found.groups) == 90
    for fold, train in enumerate(found.train):
        assert not (train & (found.folds == fold)).any() and train.any()
    np.testing.assert_array_equal(found.folds, assign_folds(split, receptors, chains, DATASET, EVALUATION, 1))


@pytest.mark.parametrize("split", ALL)
def test_all_of_a_split_is_free_of_the_order_of_rows_and_classes(split):
    receptors, chains = make()
    order = np.random.default_rng(5).permutation(90)
    here = made(split, receptors, chains)
    there = made(split, receptors.iloc[order].reset_index(drop=True), chains[::-1])
    np.testing.assert_array_equal(here.train[:, order], there.train)
    assert [here.groups[i] for i in order] == there.groups and here.notes == there.notes
    if split == "class":
        np.testing.assert_array_equal(here.judged[order], there.judged)
        backwards = made(split, receptors, chains, Y=classes_of(receptors, "CBA"))
        np.testing.assert_array_equal(here.train, backwards.train)
        np.testing.assert_array_equal(here.judged, backwards.judged[:, ::-1])


def test_a_class_kept_back_is_never_learned_and_its_receptors_are_the_negatives():
    receptors, chains = make()
    Y = classes_of(receptors)
    found = made("class", receptors, chains)
    assert found.held.sum(axis=0).tolist() == [1, 1, 1]  # three classes, three folds
    for fold in range(3):
        (held,) = np.flatnonzero(found.held[fold])
        others = [k for k in range(3) if k != held]
        assert not (found.train[fold] & (Y[:, held] == 1)).any()
        np.testing.assert_array_equal(found.train[fold], (found.folds != fold) & (Y[:, held] == 0))
        for i in np.flatnonzero(found.folds == fold):
            is_of = Y[i, others] == 1
            # of a class that is known: for this class alone; of the class kept back only: against all known ones
            expected = is_of if is_of.any() else np.ones(2, dtype=bool)
            assert found.judged[i, others].tolist() == expected.tolist() and not found.judged[i, held]


def test_a_receptor_of_no_class_is_not_judged_by_class():
    receptors, chains = make()
    Y = classes_of(receptors)
    Y[:10] = 0
    found = made("class", receptors, chains, Y=Y)
    assert not found.judged[:10].any() and found.train[:, :10].sum(axis=0).tolist() == [2] * 10


def test_more_folds_than_classes_and_fewer():
    receptors, chains = make()
    many = made("class", receptors, chains, evaluation=Evaluation(folds=5))
    assert sorted(many.held.sum(axis=1).tolist()) == [0, 0, 1, 1, 1]
    assert not many.judged[~many.held.any(axis=1)[many.folds]].any() and "2 of 5 folds" in many.notes[1]
    few = made("class", receptors, chains, evaluation=Evaluation(folds=2))
    assert few.held.sum(axis=1).tolist() == [1, 1]  # never so many that one class alone is left to learn
    with pytest.raises(CannotSplit, match="and there are 2"):
        made("class", receptors, chains, Y=classes_of(receptors, "AB"))
    with pytest.raises(CannotSplit, match="numbers"):
        made("class", receptors, chains, Y=np.zeros((90, 1)))


def scan(steps):
    """Variants of a parent of 12 residues, ``steps`` substitutions from it, of one class and another."""
    receptors = pd.DataFrame({"receptor_id": [f"v{i:03d}" for i in range(len(steps))]})
    receptors["label"] = [[str(i % 2)] for i in range(len(steps))]
    rows = [
        dict.fromkeys(CHAIN_COLUMNS) | {"receptor_id": i, "chain": "heavy", "sequence_aa": "W" * d + "A" * (12 - d)}
        for i, d in zip(receptors["receptor_id"], steps)
    ]
    return receptors, pd.DataFrame(rows)


SCAN = Dataset(sequences="x.fasta", receptor="antibody", chains=["heavy"], parent={"heavy": "A" * 12})


def test_by_parent_folds_are_stretches_of_distance():
    receptors, chains = scan([1] * 10 + [2] * 20 + [3] * 20 + [4] * 5 + [5] * 5)
    found = made("parent", receptors, chains, SCAN, Y=np.zeros((60, 1), np.int8))
    # thirds of 60 end at 20 and 40: the nearest ends of a distance are 10 or 30 (the lower one) and 30 or 50
    assert found.folds.tolist() == [0] * 10 + [1] * 20 + [2] * 30
    assert found.groups[10] == "distance 2"
    assert found.notes[2] == "fold 2: 30 receptors, 3 to 5 edits from the parent."


def test_two_distances_make_two_folds_and_one_makes_none():
    receptors, chains = scan([1] * 30 + [4] * 6)
    found = made("parent", receptors, chains, SCAN, Y=np.zeros((36, 1), np.int8))
    assert found.train.shape == (2, 36) and "2 folds, not 3" in found.notes[-1]
    receptors, chains = scan([3] * 30)
    with pytest.raises(CannotSplit, match="all are 3 edits from it"):
        made("parent", receptors, chains, SCAN)
    with pytest.raises(CannotSplit, match="add parent"):
        made("parent", receptors, chains, SCAN.model_copy(update={"parent": None}))


def test_distances_from_a_parent():
    rows = [
        dict.fromkeys(CHAIN_COLUMNS) | {"receptor_id": i, "chain": name, "sequence_aa": s}
        for i, heavy, light in (("a", "ACDE", "KLM"), ("b", "CDEA", "KLM"), ("c", "CDE", "KLW"), ("d", "ACDE", None))
        for name, s in (("heavy", heavy), ("light", light))
        if s
    ]
    parent = {"heavy": "ACDE", "light": "KLM"}
    # b: of equal length, so four substitutions, though two edits would do; c: one edit and one substitution
    distances, of_another_length = parent_distances(list("abcd"), pd.DataFrame(rows), parent)
    assert distances.tolist() == [0, 4, 2, -1]
    heavy, differ = parent_distances(list("abcd"), pd.DataFrame(rows), {"heavy": "ACDE"})
    assert heavy.tolist() == [0, 4, 1, 0] and (of_another_length, differ) == (1, 1)


def test_a_parent_may_be_a_cdr3():
    # the CDR3s were given without anchors: the chain is the junction
    rows = [
        dict.fromkeys(CHAIN_COLUMNS) | {"receptor_id": i, "chain": "heavy", "sequence_aa": s, "junction_aa": s}
        for i, s in (("a", "CWGGDGFW"), ("b", "CWGADGYW"), ("c", "CWGGDGFFW"))
    ]
    for parent in ("WGGDGF", "CWGGDGFW"):
        distances, of_another_length = parent_distances(list("abc"), pd.DataFrame(rows), {"heavy": parent})
        assert (distances.tolist(), of_another_length) == ([0, 2, 1], 1)


def given(values, evaluation=EVALUATION, groups=("fold",)):
    receptors, chains = scan([1] * len(values))
    receptors["fold"] = values
    dataset = SCAN.model_copy(update={"groups": {name: name for name in groups}})
    return made("given", receptors, chains, dataset, evaluation, Y=np.zeros((len(values), 1), np.int8))


def test_given_folds_are_those_of_the_column():
    found = given(["10", "2", "2", "10", "1"])
    assert found.folds.tolist() == [2, 1, 1, 2, 0] and found.train.shape == (3, 5)
    assert found.train[1].tolist() == [True, False, False, True, True]
    assert found.groups == ["group 10", "group 2", "group 2", "group 10", "group 1"]


def test_what_is_given_as_train_is_never_tested():
    found = given(["Train", "val", None, " ", "train", "test"])
    assert found.folds.tolist() == [-1, 1, -1, -1, -1, 0]
    assert found.train.tolist() == [[True] * 5 + [False], [True, False, True, True, True, True]]
    assert len(set(found.groups)) == 6 and "4 receptors" in found.notes[-1]
    assert given(["train", "test"]).folds.tolist() == [-1, 0]


@pytest.mark.parametrize("values, match", [(["a", "a"], "only a"), (["train", "TRAIN"], "none but train")])
def test_given_folds_need_something_to_learn_from_and_something_to_test(values, match):
    with pytest.raises(CannotSplit, match=match):
        given(values)


def test_which_group_holds_the_folds_must_be_clear():
    with pytest.raises(CannotSplit, match="has fold, donor; say with"):
        given(["a", "b"], groups=("fold", "donor"))
    assert given(["a", "b"], Evaluation(given="fold"), ("fold", "donor")).folds.tolist() == [0, 1]
    with pytest.raises(CannotSplit, match="has no group other"):
        given(["a", "b"], Evaluation(given="other"))


def test_values_are_spread_over_the_folds():
    receptors, chains = make(90)
    receptors["label"] = np.random.default_rng(0).permutation(90) / 10
    receptors.loc[:2, "label"] = np.nan
    folds = assign_folds("random", receptors, chains, DATASET, EVALUATION, 1)
    assert folds[:3].tolist() == [-1, -1, -1] and np.bincount(folds[3:]).tolist() == [29, 29, 29]
    means = [receptors["label"][folds == fold].mean() for fold in range(3)]
    assert max(means) - min(means) < 0.3
    assert value_bins([5.0, 1.0, 1.0, 9.0], bins=2).astype(int).tolist() == [[0, 1], [1, 0], [1, 0], [0, 1]]


def test_who_is_said_not_to_be_of_a_class_takes_part_and_so_does_the_background():
    receptors, chains = make()
    receptors["not_label"] = [[] for _ in range(90)]
    receptors.loc[:29, "label"] = receptors.loc[:29, "label"].map(lambda _: [])
    receptors.loc[:19, "not_label"] = receptors.loc[:19, "not_label"].map(lambda _: ["A"])
    folds = assign_folds("random", receptors, chains, DATASET, EVALUATION, 1)
    assert (folds[20:30] == -1).all() and np.ptp(np.bincount(folds[:20], minlength=3)) <= 1
    background = DATASET.model_copy(update={"negatives": Negatives(methods=["background"])})
    assert (assign_folds("random", receptors, chains, background, EVALUATION, 1) >= 0).all()


# --------------------------------------------------------------------------------------------- receptors that are twins


def with_twins(receptors, chains, twins):
    """The same receptors with the chains of some given to others: ``twins``, {receptor: of whom}."""
    sequences = chains.set_index("receptor_id")["sequence_aa"]
    copied = [sequences[twins.get(i, i)] for i in chains["receptor_id"]]
    return receptors, chains.assign(sequence_aa=copied)


@pytest.mark.parametrize("split", ["random", "class"])
def test_receptors_with_the_same_chains_share_a_fold_and_no_other_moves(split):
    receptors, chains = make()
    before = folds_by_id(split, receptors, chains)
    twins = {"r7": "r3", "r50": "r3", "r51": "r60"}
    receptors, chains = with_twins(receptors, chains, twins)
    after = folds_by_id(split, receptors, chains)
    assert after["r3"] == after["r7"] == after["r50"] and after["r51"] == after["r60"]
    moved = {i for i in before if before[i] != after[i]}
    assert moved and moved <= {"r3", "r7", "r50", "r51", "r60"}
    found = made(split, receptors, chains)
    assert found.notes[-1] == "5 receptors are of 2 sets with the same chains; a set shares a fold."
    assert found.groups[3] == found.groups[7] == found.groups[50] and found.groups[0] == "r0"
    assert not (found.train[:, [3, 7, 50]] & (found.folds[[3, 7, 50]] == np.arange(3)[:, None])).any()


def test_twins_are_told_by_their_chains_and_not_by_their_names():
    receptors, chains = with_twins(*make(), {f"r{i}": f"r{i - 45}" for i in range(45, 90)})
    # who is called what is another matter: ids are given to other receptors, all of whom have a twin
    order = np.random.default_rng(8).permutation(90)
    names = dict(zip(receptors["receptor_id"], [f"r{i}" for i in order]))
    renamed = [table.assign(receptor_id=table["receptor_id"].map(names)) for table in (receptors, chains)]
    here, there = folds_by_id("random", receptors, chains), folds_by_id("random", *renamed)
    assert {names[i]: fold for i, fold in here.items()} == there
    assert np.ptp(np.bincount(list(here.values()))) <= 4  # 45 pairs: 28 to 32 a fold


def test_twins_without_others_are_fewer_than_the_folds():
    receptors, chains = with_twins(*make(6), {"r1": "r0", "r2": "r0", "r4": "r3", "r5": "r3"})
    with pytest.raises(CannotSplit, match="3 folds need as many different receptors, and there are 2"):
        assign_folds("random", receptors, chains, DATASET, EVALUATION, 1)


def test_what_is_placed_stays_and_the_rest_fills_the_other_folds():
    placed = np.array([0, 0, 0, 1, -1, -1, -1])
    folds = deal(list("abcdefg"), np.ones((7, 1), dtype=bool), 3, 1, placed=placed)
    assert folds[:4].tolist() == [0, 0, 0, 1] and sorted(folds[4:].tolist()) == [1, 2, 2]
