"""What every classifier of the config promises, and every part that learns from letters.

scikit-learn's own checks pass arrays of numbers and one label a row. The binary estimators beneath pass them
(test_vectors, test_kernels); what is here learns from Y, int8 (n, K), or from letters, so that its promises are checked
one by one.
"""

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from airrformer.classify.families import FAMILIES, PerClass
from airrformer.classify.models import Task, fit, take
from airrformer.classify.multi_kernel import MultiKernelRidge, MultiKernelSVC, ViewKernel
from airrformer.classify.residue_heads import ResidueHeadClassifier, Residues, ResidueSource
from airrformer.classify.residues import Completed, LettersOf, LettersOneHot, PhysChem, ResidueCNN
from airrformer.classify.stacking import Stack
from airrformer.config import Classifier, LettersEncoder
from airrformer.embed.encoders import Blosum62

SMALL = {
    "random_forest": {"trees": 5, "grid": {"min_samples_leaf": [3]}},
    "gradient_boosting": {"min_samples_leaf": 5, "grid": {"trees": [5], "leaves": [4]}},
    "rbf_svm": {"grid": {"C": [1], "gamma": [1]}},
    "distance_svm": {"grid": {"C": [1], "bandwidth": [0.3]}},
    "density_ratio": {"grid": {"bandwidth": [0.2]}},
    "density_stack": {"grid": {"C": [0.1]}},
    "logistic_regression": {"grid": {"C": [1]}},
    "linear_svm": {"grid": {"C": [0.01]}},
    "mlp": {"grid": {"alpha": [1]}},
    "cnn": {"models": 2, "grid": {"channels": [8]}},
    "residue_head": {"models": 2, "hidden": 8, "epochs": 3},
    "k_nearest_neighbors": {"grid": {"n_neighbors": [5]}},
    "multi_kernel": {"kernels": [{}], "grid": {"C": [1]}},  # which kernels, the task says
}
KERNELS = ViewKernel("letters", options={}, reader=Completed()), ViewKernel("numbers", form="gaussian")
NOT_OF_VECTORS = {"cnn"}
CASES = [(kind, view) for kind in sorted(FAMILIES) for view in ("numbers", "letters") if kind != "residue_head"]
CASES = [(kind, view) for kind, view in CASES if view == "letters" or kind not in NOT_OF_VECTORS]
CASES += [("multi_kernel", "both"), ("residue_head", "residues")]


def receptors(view, n=60, seed=0):
    """X and Y, int8 (n, 3): two classes of which a tenth is not known, and one of which nobody is said to be."""
    if view == "both":
        views = {name: receptors(name, n, seed)[0] for name in ("letters", "numbers")}
        return views, receptors("letters", n, seed)[1]
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 2, n)
    Y = np.stack([which, 1 - which, np.where(which, 0, -1)], axis=1).astype(np.int8)
    Y[rng.random((n, 3)) < 0.1] = -1
    if view == "numbers":
        return rng.normal(size=(n, 6)) + which[:, None], Y
    loops = ["CAS" + "SW"[k] + "".join(rng.choice(list("ADEFGHK"), rng.integers(6, 9))) for k in which]
    genes = rng.integers(0, 4, n)
    letters = {"cdr1": [f"SG{'ADEF'[g]}T" for g in genes], "cdr2": [f"YN{'ADEF'[g]}E" for g in genes], "cdr3": loops}
    if view == "residues":
        table = {"TRB_sequence": [f"QQ{loop}FG" for loop in loops], "TRB_span": [f"2:{2 + len(s)}" for s in loops]}
        return Residues(pd.DataFrame(table | {"TRB_locus": "TRB"}), ResidueSource(Blosum62)), Y
    letters |= {"v": [f"TRBV{g}" for g in genes], "j": ["TRBJ1-1"] * n, "sequence": [f"QQ{loop}FG" for loop in loops]}
    return pd.DataFrame({f"TRB_{part}": texts for part, texts in letters.items()}, dtype=object), Y


def task_of(kind, view, seed=3):
    settings = TypeAdapter(Classifier).validate_python({"kind": kind, **SMALL[kind]})
    letters = LettersEncoder(kind="letters") if view == "letters" else None
    return Task(settings, seed, letters=letters, kernels=KERNELS if view == "both" else ())


def fitted(kind, view, seed=3):
    X, Y = receptors(view)
    return fit(task_of(kind, view, seed), X, Y, np.arange(60) % 2)


def rows(X, order):
    return take(X, np.array(order, dtype=int))


@pytest.mark.parametrize("kind, view", CASES)
def test_scores_of_new_receptors(kind, view):
    """Shape and range, NaN for the class without positives and nowhere else; order and company change nothing."""
    model, (X, _) = fitted(kind, view), receptors(view, 20, seed=1)
    assert model.trained.tolist() == [True, True, False]
    P = model.scores(X)
    assert P.shape == (20, 3) and P.dtype == np.float64
    assert np.isnan(P).tolist() == [[False, False, True]] * 20
    assert P[:, :2].min() >= 0 and P[:, :2].max() <= 1
    order = np.random.default_rng(2).permutation(20)
    np.testing.assert_allclose(model.scores(rows(X, order)), P[order], atol=1e-6)
    np.testing.assert_allclose(model.scores(rows(X, [7])), P[[7]], atol=1e-6)
    assert model.scores(rows(X, [])).shape == (0, 3)


@pytest.mark.parametrize("kind, view", CASES)
def test_one_seed_one_model(kind, view):
    X, _ = receptors(view, 20, seed=1)
    np.testing.assert_array_equal(fitted(kind, view).scores(X), fitted(kind, view).scores(X))


@pytest.mark.parametrize("kind, view", CASES)
def test_parameters_are_kept_and_nothing_is_learned_before_fit(kind, view):
    X, Y = receptors(view)
    task = task_of(kind, view)
    (point,) = task.family.grid(task.settings)
    model = task.family.estimator(task.settings, point, X, 3)
    given = model.get_params()
    assert list(clone(model).get_params()) == list(given)
    assert clone(model).set_params(**model.get_params(deep=False)).get_params(deep=False) == model.get_params(
        deep=False
    )
    known = Y[:, :2]
    if view != "letters" or task.family.reads_letters:
        model.fit(X, known)
        changed = {name: value for name, value in model.get_params().items() if not hasattr(value, "get_params")}
        for name, value in changed.items():
            assert value is given[name] or value == given[name], f"fit changes {name}"


# ------------------------------------------------------------------------------------------------- parts by themselves


@pytest.mark.parametrize(
    "unfitted",
    [
        *(LettersOneHot(), PhysChem(), LettersOf(), Completed(), ResidueCNN(), ResidueHeadClassifier()),
        PerClass(LogisticRegression()),
        *(Stack(["numbers"]), MultiKernelSVC(KERNELS), MultiKernelRidge(KERNELS)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_what_is_not_fitted_says_so(unfitted):
    X, _ = receptors("letters")
    ask = next(name for name in ("transform", "predict_proba", "predict") if hasattr(unfitted, name))
    with pytest.raises(NotFittedError):
        getattr(unfitted, ask)(X)


@pytest.mark.parametrize(
    "estimator",
    [
        LettersOneHot(["TRB"], ["cdr3"], "blosum", True, "mean"),
        PhysChem(["TRB"], ["cdr3"], "mean"),
        LettersOf(["cdr1"]),
        ResidueCNN(channels=7, n_models=2),
        ResidueHeadClassifier("antiberty", "cnn", "lora", lora_rank=4, n_models=2),
        PerClass(LogisticRegression(C=7)),
        Stack(["a", "b"], True, True),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_parameters_go_round(estimator):
    given = estimator.get_params(deep=False)
    copy = clone(estimator)
    assert {name: str(value) for name, value in copy.get_params(deep=False).items()} == {
        name: str(value) for name, value in given.items()
    }
    assert type(estimator)(**given).get_params(deep=False) == given
    name, value = next(iter(given.items()))
    assert copy.set_params(**{name: value}) is copy and copy.get_params()[name] is value
    with pytest.raises(ValueError, match="Invalid parameter"):
        copy.set_params(no_such=1)


@pytest.mark.parametrize("transformer", [LettersOneHot(), LettersOneHot(encoding="codes"), PhysChem()])
def test_transformers_of_letters(transformer):
    (X, _), (new, _) = receptors("letters"), receptors("letters", 20, seed=1)
    new.loc[3:5, [name for name in new if name.startswith("TRB")]] = ""
    before = X.copy()
    made = clone(transformer).fit(X)
    matrix = made.transform(new)
    assert X.equals(before) and matrix.shape == (20, len(made.get_feature_names_out()))
    order = np.arange(20)[::-1]
    backwards = made.transform(new.iloc[order])
    matrix, backwards = (m.toarray() if sparse.issparse(m) else m for m in (matrix, backwards))
    np.testing.assert_array_equal(backwards, matrix[order])
    assert np.isfinite(matrix).all()


def test_a_stack_knows_nothing_where_a_member_does_not():
    """Scores of a class are NaN where one member's are; the weights are learned from the others."""
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (40, 2)).astype(np.int8)
    scores = np.clip(rng.normal(0.5 + 0.2 * (Y - 0.5), 0.1, (2, 40, 2)), 0.01, 0.99)
    scores[1, :5, 1] = np.nan
    stack = Stack(["a", "b"]).weigh(scores, Y)
    combined = stack.combine(scores)
    assert combined.shape == (40, 2) and (np.isnan(combined) == np.isnan(scores).any(axis=0)).all()
    again = Stack(["a", "b"]).weigh(scores[:, ::-1], Y[::-1])
    np.testing.assert_allclose(again.combine(scores), combined, atol=1e-6)
