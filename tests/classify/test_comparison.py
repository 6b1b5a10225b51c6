"""Paired comparisons against scikit-learn and scipy, and the control: models of random scores do not differ."""

import itertools
import time

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr, ttest_1samp
from sklearn.metrics import roc_auc_score

from airrformer.classify.comparison import COLUMNS, compare_models, corrected_t_test, holm
from airrformer.classify.metrics import bootstrap_weights
from airrformer.errors import UserError


def study(n=150, K=3, folds=3, seeds=(1, 2), rng=0):
    """Labels (n, K) and the fold of each receptor under each seed (S, n)."""
    rng = np.random.default_rng(rng)
    Y = rng.random((n, K)) < 0.3
    return Y, np.stack([rng.permutation(np.arange(n) % folds) for _ in seeds])


def predictions(Y, folds, scores, split="random"):
    """A predictions table; scores (S, n, K)."""
    S, (n, K) = len(folds), Y.shape
    s, k, receptor = (axis.ravel() for axis in np.meshgrid(range(S), range(K), range(n), indexing="ij"))
    columns = {"split": split, "seed": s + 1, "fold": folds[s, receptor], "class": np.array(list("XYZVW"))[k]}
    columns |= {"receptor_id": np.char.add("r", np.char.zfill(receptor.astype(str), 4))}
    columns |= {"label": Y[receptor, k].astype(int), "score": scores[s, receptor, k]}
    return pd.DataFrame(columns)


def models(Y, folds, strengths, rng=1):
    rng = np.random.default_rng(rng)
    return {
        name: predictions(Y, folds, rng.normal(size=(len(folds), *Y.shape)) + strength * Y)
        for name, strength in strengths.items()
    }


def macro(table):
    """Macro AUROC (folds, then classes) and that of each fold, by scikit-learn."""
    cells = table.groupby(["seed", "fold", "class"])[["label", "score"]].apply(
        lambda rows: roc_auc_score(rows["label"], rows["score"]) if rows["label"].nunique() == 2 else np.nan
    )
    return cells.groupby("class").mean().mean(), cells.groupby(["seed", "fold"]).mean().dropna().to_numpy()


def test_difference_and_interval_are_those_of_repeated_rows():
    Y, folds = study()
    tables = models(Y, folds, {"good": 1.0, "poor": 0.4})
    row = compare_models(tables, "poor", "random", resamples=8, seed=3).iloc[0]
    weights = bootstrap_weights(len(Y), 8, 3)
    differences = []
    for r in range(9):
        drawn = {
            name: table.loc[np.repeat(table.index, weights[table["receptor_id"].str[1:].astype(int), r])]
            for name, table in tables.items()
        }
        differences.append(macro(drawn["good"])[0] - macro(drawn["poor"])[0])
    assert (row["a"], row["b"], row["split"], row["folds"], row["note"]) == ("good", "poor", "random", 6, "")
    assert row["difference"] == pytest.approx(differences[0], abs=1e-12)
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    assert (row["low"], row["high"]) == (pytest.approx(low, abs=1e-12), pytest.approx(high, abs=1e-12))


def test_p_is_the_corrected_one_of_the_folds():
    Y, folds = study()
    tables = models(Y, folds, {"good": 1.0, "poor": 0.8})
    row = compare_models(tables, "poor", "random", 10, 3).iloc[0]
    d = macro(tables["good"])[1] - macro(tables["poor"])[1]
    assert row["p"] == pytest.approx(corrected_t_test(d, 50 / 100, seeds=2)[0]) and row["p_holm"] == row["p"]


def test_without_correction_it_is_the_ordinary_t_test():
    d = np.random.default_rng(0).normal(0.3, 1, 10)
    assert corrected_t_test(d, 0)[0] == pytest.approx(ttest_1samp(d, 0).pvalue)
    assert corrected_t_test(d, 1 / 9)[0] > corrected_t_test(d, 0)[0]
    # twice the variance of the mean: the t of a sample that is sqrt(2) times closer to 0
    halved = (d - d.mean()) + d.mean() / np.sqrt(2)
    assert corrected_t_test(d, 1 / 10)[0] == pytest.approx(ttest_1samp(halved, 0).pvalue)


def test_where_there_is_no_test():
    assert np.isnan(corrected_t_test(np.array([0.1]), 0.5)[0])
    p, note = corrected_t_test(np.array([0.5, 0.5, 0.5]), 0.5)
    assert np.isnan(p) and "the same difference" in note
    assert corrected_t_test(np.zeros(3), 0.5) == (1.0, "")
    assert "one fold a seed" in corrected_t_test(np.array([0.1, 0.2]), np.nan)[1]


def test_holm():
    found = holm(np.array([0.01, np.nan, 0.04, 0.03, 0.005]))
    np.testing.assert_allclose(found, [0.03, np.nan, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.6, 0.9])), [1, 1])
    assert np.isnan(holm(np.array([np.nan]))).all() and not len(holm(np.array([])))


def test_holm_is_closed_testing_of_bonferroni():
    p = np.random.default_rng(0).random(5) ** 3
    for i, corrected in enumerate(holm(p)):
        families = [f for size in range(1, 6) for f in itertools.combinations(range(5), size) if i in f]
        assert corrected == pytest.approx(max(min(1, len(f) * min(p[list(f)])) for f in families))


def test_all_pairs_or_against_one():
    Y, folds = study()
    tables = models(Y, folds, {"a": 1.5, "b": 0.2, "c": 0.2})
    pairs = compare_models(tables, None, "random", 50, 3)
    assert tuple(pairs.columns) == COLUMNS
    assert list(zip(pairs["a"], pairs["b"])) == [("a", "b"), ("a", "c"), ("b", "c")]
    against = compare_models(tables, "b", "random", 50, 3)
    assert list(zip(against["a"], against["b"])) == [("a", "b"), ("c", "b")]
    assert against["difference"][0] == pairs["difference"][0] and against["difference"][1] == -pairs["difference"][2]
    assert pairs["low"][0] > 0 and pairs["p_holm"][0] < 0.05
    np.testing.assert_allclose(pairs["p_holm"], holm(pairs["p"].to_numpy()))
    assert compare_models({"a": tables["a"]}, None, "random", 50, 3).empty
    assert tuple(compare_models({"a": tables["a"]}, "a", "random", 50, 3).columns) == COLUMNS


def test_the_order_of_rows_and_how_ids_were_read_change_nothing():
    Y, folds = study()
    tables = models(Y, folds, {"a": 1.0, "b": 0.2})
    expected = compare_models(tables, None, "random", 50, 3)
    shuffled = tables["b"].sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(compare_models(tables | {"b": shuffled}, None, "random", 50, 3), expected)
    numbered = {name: t.assign(receptor_id=t["receptor_id"].str[1:].astype(int) + 1000) for name, t in tables.items()}
    numbered["b"]["receptor_id"] = numbered["b"]["receptor_id"].astype(str)
    pd.testing.assert_frame_equal(compare_models(numbered, None, "random", 50, 3), expected)


def test_a_model_does_not_differ_from_itself():
    Y, folds = study()
    table = models(Y, folds, {"a": 1.0})["a"]
    row = compare_models({"a": table, "b": table}, None, "random", 50, 3).iloc[0]
    assert row[["difference", "low", "high", "p", "p_holm"]].tolist() == [0, 0, 0, 1, 1]


def test_one_fold_has_an_interval_and_no_p():
    Y, folds = study(seeds=(1,))
    tables = models(Y, folds * 0, {"a": 1.0, "b": 0.2})
    row = compare_models(tables, None, "random", 50, 3).iloc[0]
    assert row["low"] < row["difference"] < row["high"]
    assert np.isnan([row["p"], row["p_holm"]]).all() and row["folds"] == 1 and "fewer than 2 folds" in row["note"]


def test_undefined_folds_do_not_count():
    Y, folds = study(seeds=(1,))
    Y[folds[0] == 0] = False  # one label in fold 0
    Y[folds[0] == 1, 2] = True
    tables = models(Y, folds, {"a": 1.0, "b": 0.2})
    row = compare_models(tables, None, "random", 50, 3).iloc[0]
    assert row["folds"] == 2 and row["note"] == "4 of 9 pairs of fold and class have one label only"
    assert row["difference"] == pytest.approx(macro(tables["a"])[0] - macro(tables["b"])[0], abs=1e-12)
    nothing = models(Y & False, folds, {"a": 1.0, "b": 0.2})
    row = compare_models(nothing, None, "random", 50, 3).iloc[0]
    assert np.isnan([row["difference"], row["low"], row["high"], row["p"]]).all() and row["folds"] == 0


def test_unknown_labels_are_left_out():
    Y, folds = study()
    tables = models(Y, folds, {"a": 1.0, "b": 0.2})
    unknown = np.random.default_rng(0).random(len(tables["a"])) < 0.2
    marked = {name: table.assign(label=table["label"].mask(unknown, -1)) for name, table in tables.items()}
    without = {name: table[~unknown] for name, table in tables.items()}
    found, expected = (compare_models(t, None, "random", 20, 3) for t in (marked, without))
    pd.testing.assert_frame_equal(found, expected)


def test_what_cannot_be_compared():
    Y, folds = study()
    tables = models(Y, folds, {"a": 1.0, "b": 0.2})
    b = tables["b"]

    def fails(table, message, split="random"):
        with pytest.raises(UserError, match=message):
            compare_models(tables | {"b": table}, None, split, 10, 3)

    fails(b[b.index != 7], "receptor r0007, class X, seed 1, fold . was tested by a and not by b")
    fails(b.assign(fold=(b["fold"] + 1) % 3), "was tested by")
    fails(b.assign(seed=b["seed"] + 1), "was tested by")
    fails(b.assign(label=b["label"].mask(b.index == 7, 1 - b["label"])), "receptor r0007 has another label for class X")
    fails(pd.concat([b, b.iloc[[7]]]), "predictions of b: receptor r0007, class X, seed 1, fold . occurs twice")
    fails(b.drop(columns="fold"), "predictions of b have no column fold")
    fails(b.assign(label=b["score"]), "label .* is not 1, 0 or -1 .unknown.; if it is a number")
    fails(b, "predictions of a have no row of split cluster", split="cluster")
    with pytest.raises(UserError, match="model 'c' to compare with is not among the models: a, b"):
        compare_models(tables, "c", "random", 10, 3)


# ------------------------------------------------------------------------------------------------- numbers, by Spearman


def measured(strengths, n=90, seeds=(1, 2)):
    """Predictions of values from -3 to 3 by models that see so much of them; None: one number for all."""
    rng = np.random.default_rng(4)
    folds = np.stack([rng.permutation(np.arange(n) % 3) for _ in seeds])
    values = np.linspace(-3, 3, n)
    values[10] = -1.0  # as unknown labels are written: here it is a value
    noise = {name: rng.normal(size=(len(seeds), n, 1)) for name in strengths}
    return {
        name: predictions(values[:, None] > 9, folds, np.zeros((len(seeds), n, 1))).assign(
            label=np.tile(values, len(seeds)),
            score=2.0 if strength is None else (strength * values[:, None] + noise[name]).ravel(),
        )
        for name, strength in strengths.items()
    }


def spearmans(table):
    return table.groupby(["seed", "fold"])[["label", "score"]].apply(
        lambda rows: spearmanr(rows["label"], rows["score"]).statistic
    )


def test_numbers_are_compared_by_rank():
    tables = measured({"good": 1.5, "poor": 0.3, "flat": None})
    found = compare_models(tables, "good", "random", 50, 3, numbers=True).set_index("a")
    d = spearmans(tables["poor"]) - spearmans(tables["good"])
    row = found.loc["poor"]
    assert row["difference"] == pytest.approx(d.mean(), abs=1e-12) and len(d) == row["folds"] == 6
    assert row["low"] < row["difference"] < row["high"] < 0 and row["note"] == ""
    assert row["p"] == pytest.approx(corrected_t_test(d.to_numpy(), 30 / 60, seeds=2)[0]) and row["p_holm"] == row["p"]
    # a model that predicts one number has no order, and takes no fold from the others
    flat = found.loc["flat"]
    assert np.isnan(flat[["difference", "low", "high", "p", "p_holm"]].astype(float)).all() and flat["folds"] == 0
    assert flat["note"].endswith("6 of 6 folds have no order: a model predicts one number for all")


def test_a_fold_without_an_order_counts_for_no_pair_that_it_is_of():
    tables = measured({"good": 1.5, "poor": 0.3, "partly": 0.5}, seeds=(1,))
    partly = tables["partly"]
    tables["partly"] = partly.assign(score=partly["score"].mask(partly["fold"] == 1, 0.0))
    found = compare_models(tables, "good", "random", 20, 3, numbers=True).set_index("a")
    assert found["folds"].to_dict() == {"poor": 3, "partly": 2}
    assert found.loc["partly", "note"].startswith("1 of 3 folds have no order")


# -------------------------------------------------------------------------------------------------- the random control


def test_random_scores_do_not_differ():
    """560 pairs of models that know nothing, in 20 studies: 95 % of the intervals hold 0, and p is careful."""
    studies = []
    for number in range(20):
        Y, folds = study(n=90, K=2, folds=5, seeds=(1,), rng=number)
        tables = models(Y, folds, {f"m{i}": 0.0 for i in range(8)}, rng=1000 + number)
        studies.append(compare_models(tables, None, "random", 200, number))
    compared = pd.concat(studies)
    assert len(compared) == 560
    assert 0.91 <= ((compared["low"] <= 0) & (compared["high"] >= 0)).mean() <= 0.99
    assert (compared["p"] < 0.05).mean() <= 0.06
    assert (compared["p_holm"] >= compared["p"]).all()


@pytest.mark.parametrize("seeds", [1, 3])
def test_models_trained_on_random_labels_do_not_differ(seeds):
    """The same with training, 400 studies of 24 positives and 56 negatives, 4 folds, two nearest-mean models each.

    The folds share training receptors: the ordinary test finds differences everywhere, the corrected one does not.
    """
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 2, 80, 8))
    differences = []
    for _ in range(seeds):
        dealt = np.concatenate([rng.permuted(np.tile(np.arange(size) % 4, (400, 1)), axis=1) for size in (24, 56)], 1)
        order = np.argsort(dealt, axis=1, kind="stable")  # by fold, in each the 6 positives first
        Z = np.take_along_axis(X, order[:, None, :, None], axis=2).reshape(400, 2, 4, 20, 8)
        positive, negative = Z[..., :6, :].sum(axis=3), Z[..., 6:, :].sum(axis=3)
        positive, negative = (
            part.sum(axis=2, keepdims=True) - part for part in (positive, negative)
        )  # the other folds
        scores = np.einsum("abfmd,abfd->abfm", Z, positive / 18 - negative / 42)
        aurocs = (scores[..., :6, None] > scores[..., None, 6:]).mean(axis=(-1, -2))
        differences.append(aurocs[:, 0] - aurocs[:, 1])
    differences = np.concatenate(differences, axis=1)  # (studies, folds of all seeds)
    corrected = np.mean([corrected_t_test(d, 20 / 60, seeds)[0] < 0.05 for d in differences])
    ordinary = np.mean([corrected_t_test(d, 0)[0] < 0.05 for d in differences])
    assert 0.02 <= corrected <= 0.09 and ordinary > 0.12 * seeds


def test_many_models_take_little_time():
    rng = np.random.default_rng(0)
    Y, folds = study(n=1500, K=5, folds=3, seeds=(1,))
    table = predictions(Y, folds, np.zeros((1, 1500, 5)))
    tables = {f"m{i}": table.assign(score=rng.random(len(table))) for i in range(10)}
    started = time.process_time()
    assert len(compare_models(tables, None, "random", 500, 3)) == 45
    assert time.process_time() - started < 5  # 0.4 s on an idle machine
