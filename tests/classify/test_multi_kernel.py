import numpy as np
import pytest
import skops.io
from classify.test_kernels import receptors
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

from airrformer.classify.kernels import DistanceSVC
from airrformer.classify.models import Task, fit
from airrformer.classify.multi_kernel import MultiKernelRidge, MultiKernelSVC, ViewKernel
from airrformer.classify.persistence import TRUSTED_TYPES
from airrformer.classify.residues import LettersOneHot
from airrformer.config.classifiers import MultiKernelClassifier
from airrformer.receptors.loops import LoopDistance


def numbers(n=200, D=6, seed=0):
    """Two views, of which each tells half of the label."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(n, D)), rng.normal(5, 3, size=(n, D))
    return {"a": A, "b": B}, A[:, 0] + (B[:, 0] - 5) / 3


def some(X, rows):
    return {name: view[rows] for name, view in X.items()}


def by_hand(A, B, bandwidth, form):
    """The kernel of one view between all of A and B, scaled and as wide as A says."""
    mean, scale = A.mean(axis=0), A.std(axis=0)
    A, B = (A - mean) / scale, (B - mean) / scale
    picked = A[np.linspace(0, len(A) - 1, 120).astype(int)]
    pairs = np.triu_indices(120, 1)
    h = bandwidth * np.linalg.norm(picked[:, None] - picked, axis=2)[pairs].mean()
    d = np.linalg.norm(A[:, None] - B, axis=2)
    return np.exp(-d / h) if form == "exponential" else np.exp(-0.5 * (d / h) ** 2)


def test_the_kernels_are_combined_by_their_weights():
    X, score = numbers()
    y = (score > 0).astype(np.int8)
    parts = [ViewKernel("a", 3, 0.4), ViewKernel("b", 1, 0.7, "gaussian")]
    train, test = some(X, slice(0, 150)), some(X, slice(150, None))

    def kernel(left, right):
        first = by_hand(left["a"], right["a"], 0.4, "exponential")
        return 0.75 * first + 0.25 * by_hand(left["b"], right["b"], 0.7, "gaussian")

    def product(left, right):
        first = by_hand(left["a"], right["a"], 0.4, "exponential")
        return first**1.5 * by_hand(left["b"], right["b"], 0.7, "gaussian") ** 0.5

    wanted = SVC(C=2, kernel="precomputed").fit(kernel(train, train), y[:150])
    found = MultiKernelSVC(parts, C=2).fit(train, y[:150, None])
    np.testing.assert_allclose(
        found.decision_function(test)[:, 0], wanted.decision_function(kernel(train, test).T), atol=1e-4
    )

    for combine, wanted in (
        ("product", product(train, test)),
        ("both", (product(train, test) + kernel(train, test)) / 2),
    ):
        found = MultiKernelSVC(parts, combine=combine).fit(train, y[:150, None])
        references = [part.fit(train).known() for part in found.parts]
        queries = [part.queries(test) for part in found.parts]
        np.testing.assert_allclose(found._table(queries, references), wanted.T, atol=1e-5)

    ridge = MultiKernelRidge(parts, C=5).fit(train, score[:150])
    centre = score[:150].mean()
    K, weights = kernel(train, train), np.eye(150) - 1 / 150  # an intercept that costs nothing centres the kernel
    same = KernelRidge(alpha=0.1, kernel="precomputed").fit(weights @ K @ weights, score[:150] - centre)
    offset = (K @ weights @ same.dual_coef_).mean()
    wanted = kernel(train, test).T @ weights @ same.dual_coef_ - offset + centre
    np.testing.assert_allclose(ridge.predict(test), wanted, atol=1e-4)


def test_two_views_know_more_than_one():
    X, score = numbers(400)
    Y = (score > 0).astype(np.int8)[:, None]
    train, test = some(X, slice(0, 250)), some(X, slice(250, None))

    def quality(*views):
        model = MultiKernelSVC([ViewKernel(view, form="gaussian") for view in views]).fit(train, Y[:250])
        return roc_auc_score(Y[250:, 0], model.predict_proba(test)[:, 0])

    assert quality("a", "b") > max(quality("a"), quality("b")) + 0.1
    ridge = MultiKernelRidge([ViewKernel("a", form="gaussian"), ViewKernel("b", form="gaussian")]).fit(
        train, score[:250]
    )
    assert np.corrcoef(ridge.predict(test), score[250:])[0, 1] > 0.9


def test_one_kernel_of_letters_is_the_distance_svm():
    letters, Y = receptors()
    options = LoopDistance(smaller=0.7).__dict__
    alone = DistanceSVC(C=3, bandwidth=0.3, options=options).fit(letters[:160], Y[:160])
    summed = MultiKernelSVC([ViewKernel("x/y", bandwidth=0.3, options=options)], C=3).fit(
        {"x/y": letters[:160]}, Y[:160]
    )
    np.testing.assert_allclose(
        summed.predict_proba({"x/y": letters[160:]}), alone.predict_proba(letters[160:]), atol=1e-5
    )


def test_a_grid_gives_what_each_machine_gives():
    letters, Y = receptors()
    X = {"loops": letters, "onehot": letters}
    parts = [ViewKernel("loops", options={}), ViewKernel("onehot", reader=LettersOneHot(), form="gaussian")]
    train, test = ({name: view.iloc[rows] for name, view in X.items()} for rows in (slice(0, 160), slice(160, None)))
    grid = MultiKernelSVC(parts).grid_scores(train, Y[:160], test, [0.3, 3])
    for C, scores in zip([0.3, 3], grid):
        np.testing.assert_allclose(
            MultiKernelSVC(parts, C=C).fit(train, Y[:160]).predict_proba(test), scores, atol=1e-6
        )
    assert not np.allclose(*grid)


def test_landmarks_are_nearly_as_good_as_everyone():
    X, score = numbers(900)
    Y = (score > 0).astype(np.int8)[:, None]
    parts = [ViewKernel("a", form="gaussian", bandwidth=1), ViewKernel("b", form="gaussian", bandwidth=1)]
    train, test = some(X, slice(0, 600)), some(X, slice(600, None))
    exact = MultiKernelSVC(parts).fit(train, Y[:600]).decision_function(test)[:, 0]
    few = MultiKernelSVC(parts, exact=100, landmarks=200).fit(train, Y[:600])
    assert len(few.coef_) == 200  # the others are forgotten
    assert np.corrcoef(few.decision_function(test)[:, 0], exact)[0, 1] > 0.97
    ridge = MultiKernelRidge(parts, exact=100, landmarks=200).fit(train, score[:600])
    assert np.corrcoef(ridge.predict(test), score[600:])[0, 1] > 0.95


def test_a_class_without_both_labels_is_left_alone():
    X, score = numbers()
    Y = np.stack([score > 0, score < 9, score > 1], axis=1).astype(np.int8)
    Y[:50, 2] = -1
    probabilities = MultiKernelSVC([ViewKernel("a")]).fit(X, Y).predict_proba(X)
    assert np.isnan(probabilities[:, 1]).all() and not np.isnan(probabilities[:, [0, 2]]).any()
    alone = MultiKernelSVC([ViewKernel("a")]).fit(X, Y[:, 2:]).predict_proba(X)[:, 0]
    np.testing.assert_allclose(alone, probabilities[:, 2])


@pytest.mark.parametrize("regression", [False, True])
def test_it_is_tuned_and_saved_like_any_other(regression, tmp_path):
    X, score = numbers()
    X["b"] = sparse.csr_array(np.where(X["b"] > 5, X["b"], 0))
    settings = MultiKernelClassifier(
        kind="multi_kernel", kernels=[{"encoder": "a"}, {"encoder": "b"}], grid={"C": [1, 0.1]}, numbers="rank"
    )
    parts = (ViewKernel("a", form="gaussian"), ViewKernel("b"))
    Y = score[:, None] if regression else (score > 0).astype(np.int8)[:, None]
    fitted = fit(Task(settings, 7, regression=regression, kernels=parts), X, Y, np.arange(200) % 3)
    assert fitted.chosen["C"] in (0.1, 1)
    scores = fitted.scores(X)
    assert np.corrcoef(scores[:, 0], score)[0, 1] > 0.6
    skops.io.dump(fitted.estimator, tmp_path / "estimator.skops")
    again = skops.io.load(tmp_path / "estimator.skops", trusted=list(TRUSTED_TYPES))
    found = again.predict(X) if regression else again.predict_proba(X)[:, 0]
    np.testing.assert_array_equal(found, scores[:, 0])


def test_several_kernels_may_stand_in_a_stack():
    letters, Y = receptors()
    X = {"letters/letters": letters, "onehot/letters": letters}
    settings = MultiKernelClassifier(kind="multi_kernel", kernels=[{}, {"encoder": "onehot"}], grid={"C": [1]})
    parts = (ViewKernel("letters/letters", options={}), ViewKernel("onehot/letters", reader=LettersOneHot()))
    one, two = Task(settings, 7, kernels=parts), Task(settings, 7, kernels=parts[1:])
    stack = Task(settings, 7, members=((None, one), (None, two)))
    fitted = fit(stack, X, Y, np.arange(len(Y)) % 3)
    assert list(fitted.chosen)[:2] == ["1: multi_kernel", "2: multi_kernel"]
    scores = fitted.scores(X)
    assert scores.shape == Y.shape and not np.isnan(scores).any()


def test_the_other_of_two_classes_is_the_first_one_turned_round():
    X, score = numbers()
    y = (score > 0.3).astype(np.int8)
    y[:20] = -1
    other = np.where(y >= 0, 1 - y, -1)
    both = MultiKernelSVC([ViewKernel("a")]).fit(X, np.stack([y, other], axis=1)).predict_proba(X)
    np.testing.assert_allclose(
        both[:, 1], MultiKernelSVC([ViewKernel("a")]).fit(X, other[:, None]).predict_proba(X)[:, 0], atol=1e-3
    )
    np.testing.assert_allclose(both.sum(axis=1), 1)
