import numpy as np
import pandas as pd
import pytest

from airrformer.classify.negatives import BACKGROUND, EXCLUDED, GIVEN, SWAPPED, label_matrix, shortfalls, summary
from airrformer.config import Negatives

ZERO = np.zeros(200, dtype=np.int64)


def table(labels, not_labels=None):
    receptors = pd.DataFrame({"receptor_id": [f"r{i}" for i in range(len(labels))], "label": labels})
    return receptors if not_labels is None else receptors.assign(not_label=not_labels)


def matrix(receptors, classes=("A", "B"), folds=None, seed=1, same=None, **settings):
    folds = ZERO[: len(receptors)] if folds is None else np.asarray(folds)
    return label_matrix(receptors, classes, Negatives(**settings), folds, seed, same)


def test_what_nobody_says_is_unknown_where_negatives_are_given():
    Y, method = matrix(table([["A"], ["B"], [], ["A", "B"]], [["B"], [], ["A"], []]))
    assert Y.tolist() == [[1, 0], [-1, 1], [0, -1], [1, 1]]
    assert method.tolist() == [[0, GIVEN], [0, 0], [GIVEN, 0], [0, 0]]
    assert Y.dtype == np.int8 and method.dtype == np.uint8


def test_without_any_no_the_other_classes_are_the_negatives():
    receptors = table([["A"], ["B"], [], ["A", "B"], ["small"]])
    Y, method = matrix(receptors)
    assert Y.tolist() == [[1, 0], [0, 1], [-1, -1], [1, 1], [0, 0]]
    assert set(method[Y == 0]) == {SWAPPED}
    assert matrix(receptors.assign(not_label=[[]] * 5))[0].tolist() == Y.tolist()


@pytest.mark.parametrize("no", ["0", "-1"])
def test_one_class_and_its_lack(no):
    Y, method = matrix(table([["yes"], [no], []]), ["yes"])
    assert Y[:, 0].tolist() == [1, 0, -1] and method[:, 0].tolist() == [0, GIVEN, 0]
    # with more classes 0 is one like others
    Y, method = matrix(table([["yes"], [no], ["other"]]), ["yes"])
    assert Y[:, 0].tolist() == [1, 0, 0] and set(method[1:, 0]) == {SWAPPED}


def test_methods_side_by_side():
    receptors = table([["A"], ["B"], [], [], ["B"]], [["B"], [], ["A"], [], ["A"]])
    Y, method = matrix(receptors, methods=["given", "swapped", "background"])
    assert Y.tolist() == [[1, 0], [0, 1], [0, -1], [0, 0], [0, 1]]
    assert method.tolist() == [
        [0, GIVEN], [SWAPPED, 0], [GIVEN, 0], [BACKGROUND, BACKGROUND], [GIVEN, 0],
    ]  # fmt: skip
    assert matrix(receptors, methods=["background"])[0].tolist() == [[1, -1], [-1, 1], [-1, -1], [0, 0], [-1, 1]]


def test_what_binds_under_another_id_is_no_negative():
    # r1 has the chains of r0, which is of A; r3, without a label, has those of r2, which is of B
    receptors = table([["A"], ["B"], ["B"], []])
    Y, method = matrix(receptors, same=np.array([7, 7, 3, 3]), methods=["swapped", "background"])
    assert Y.tolist() == [[1, -1], [-1, 1], [0, 1], [0, -1]]
    assert method.tolist() == [[0, EXCLUDED], [EXCLUDED, 0], [SWAPPED, 0], [BACKGROUND, EXCLUDED]]
    found = summary(Y, method, ["A", "B"], Negatives(methods=["swapped", "background"]), 1)
    assert found["excluded"] == 3
    assert found["classes"]["B"] == {"positives": 2, "swapped": 0, "background": 0, "unknown": 2, "excluded": 2}


def test_a_no_that_is_said_stays_said():
    Y, _ = matrix(table([["A"], []], [[], ["A"]]), ["A"], same=np.array([0, 0]))
    assert Y[:, 0].tolist() == [1, 0]


def many(n=200, seed=0):
    rng = np.random.default_rng(seed)
    labels = [[["A"], ["B"], ["C"], []][i] for i in rng.choice(4, n, p=[0.06, 0.34, 0.3, 0.3])]
    return table(labels), rng.integers(0, 3, n)


def test_a_ratio_holds_within_each_fold():
    receptors, folds = many()
    Y, method = matrix(receptors, ["A", "B"], folds, methods=["swapped", "background"], ratio=2)
    for fold in range(3):
        positives = ((Y[:, 0] == 1) & (folds == fold)).sum()
        assert positives > 2
        for code in (SWAPPED, BACKGROUND):
            assert ((method[:, 0] == code) & (folds == fold)).sum() == 2 * positives
        # of B there are so many that all free receptors are taken
        free = np.array([names not in (["B"], []) for names in receptors["label"]]) & (folds == fold)
        assert ((method[:, 1] == SWAPPED) & (folds == fold)).sum() == min(
            free.sum(), 2 * ((Y[:, 1] == 1) & (folds == fold)).sum()
        )
    assert (Y[(method == 0)] != 0).all()


def test_the_draw_hangs_on_ids_and_the_seed_alone():
    receptors, folds = many()
    settings = dict(methods=["swapped", "background"], ratio=0.5)
    Y, method = matrix(receptors, ["A", "B"], folds, **settings)
    order = np.random.default_rng(2).permutation(200)
    again = matrix(receptors.iloc[order].reset_index(drop=True), ["A", "B"], folds[order], **settings)
    np.testing.assert_array_equal(again[0], Y[order])
    np.testing.assert_array_equal(again[1], method[order])
    backwards = matrix(receptors, ["B", "A"], folds, **settings)
    np.testing.assert_array_equal(backwards[0][:, ::-1], Y)
    assert (matrix(receptors, ["A", "B"], folds, seed=2, **settings)[0] != Y).any()


def test_the_summary_counts_what_was_made():
    receptors, folds = many()
    settings = Negatives(methods=["swapped"], ratio=1)
    Y, method = label_matrix(receptors, ["A"], settings, folds, 3)
    found = summary(Y, method, ["A"], settings, 3)
    positives = int((Y == 1).sum())
    assert found == {
        "methods": ["swapped"], "ratio": 1, "seed": 3, "excluded": 0,
        "classes": {"A": {"positives": positives, "swapped": positives, "unknown": 200 - 2 * positives, "excluded": 0}},
    }  # fmt: skip
    assert summary(*matrix(table([["A"], ["B"]])), ["A", "B"], Negatives(), 1)["methods"] == ["swapped"]


def test_a_ratio_that_is_not_reached_is_said():
    receptors = table([["A"]] * 10 + [["B"]] * 4)
    settings = Negatives(methods=["swapped"], ratio=2)
    Y, method = label_matrix(receptors, ["A", "B"], settings, np.zeros(14, dtype=int), 1)
    found = summary(Y, method, ["A", "B"], settings, 1)
    assert shortfalls(found, 3) == ["A: 4 swapped negatives, where a ratio of 2 asks for 20: there are no more."]
    assert shortfalls(found | {"ratio": None}, 3) == []


def test_nobody():
    Y, method = matrix(table([]), ["A"])
    assert Y.shape == method.shape == (0, 1)
