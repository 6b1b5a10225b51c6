import numpy as np
import pandas as pd
import pytest
import skops.io
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from airrformer.classify import kernels, similarity
from airrformer.classify.kernels import (
    DensityStack,
    DistanceNeighbors,
    DistanceSVC,
    KernelDensityRatio,
    density_ratio_scores,
    neighbor_scores,
    svc_scores,
)
from airrformer.classify.similarity import PartDistance
from airrformer.receptors.loops import LoopDistance

TRUSTED = [
    "airrformer.classify.kernels.DensityStack",
    "airrformer.classify.kernels.DistanceNeighbors",
    "airrformer.classify.kernels.DistanceSVC",
    "airrformer.classify.kernels.KernelDensityRatio",
]
RESIDUES = np.array(list("ACDEFGHIKLMNPQRSTVWY"))


@parametrize_with_checks(
    [
        KernelDensityRatio(metric="euclidean"),
        KernelDensityRatio(metric="cosine", form="gaussian"),
        DistanceSVC(metric="euclidean"),
        DistanceSVC(metric="euclidean", exact=10, landmarks=8),
        DistanceNeighbors(metric="euclidean"),
        DensityStack(metric="euclidean"),
    ]
)
def test_scikit_learn_takes_it_for_an_estimator(estimator, check):
    check(estimator)


def receptors(n=240, K=3, seed=0):
    """Letters of paired receptors, and Y: each class has a motif in either chain; a third of each class is unknown."""
    rng = np.random.default_rng(seed)
    of_class = np.arange(n) % (K + 1)  # the last of them has no motif
    motifs = np.random.default_rng(99).choice(RESIDUES, (K, 2, 5))
    columns = {}
    for c, name in enumerate(("TRA", "TRB")):
        loops = []
        for label in of_class:
            loop = rng.choice(RESIDUES, rng.integers(9, 13))
            if label < K and rng.random() < 0.8:
                loop[3:8] = motifs[label, c]
            loops.append("".join(loop))
        genes = rng.integers(0, 6, n)
        columns |= {f"{name}_cdr1": [f"SN{RESIDUES[g]}DY" for g in genes], f"{name}_cdr2": ["YNNEI"] * n}
        columns |= {f"{name}_cdr3": loops, f"{name}_v": [f"V{g}" for g in genes], f"{name}_j": ["J1"] * n}
        columns[f"{name}_sequence"] = loops
    Y = (of_class[:, None] == np.arange(K)).astype(np.int8)
    Y[rng.random(Y.shape) < 0.33] = -1
    return pd.DataFrame(columns), Y


def quality(Y, scores):
    return np.mean([roc_auc_score(y[y >= 0], s[y >= 0]) for y, s in zip(Y.T, scores.T)])


ALL = pytest.mark.parametrize(
    "estimator",
    [
        KernelDensityRatio(),
        KernelDensityRatio(0.3, form="gaussian", options={"smaller": 0.8, "v_gene": 5}, background=0.5),
        DistanceSVC(),
        DistanceSVC(exact=50, landmarks=60, background=0.2),
        DistanceNeighbors(),
        DistanceNeighbors(9, options={"cost": "edit", "weights": (0, 0, 1)}),
        DensityStack(),
    ],
    ids=["ratio", "ratio-gaussian", "svc", "svc-landmarks", "neighbors", "neighbors-edit", "stack"],
)


@ALL
def test_learns_several_classes_of_letters_and_survives_a_file(estimator, tmp_path):
    X, Y = receptors()
    test, labels = receptors(seed=1)
    estimator = clone(estimator).fit(X, Y)
    scores = estimator.predict_proba(test)
    assert scores.shape == labels.shape and scores.dtype == np.float64
    assert (scores >= 0).all() and (scores <= 1).all() and quality(labels, scores) > 0.8
    assert set(np.unique(estimator.predict(test))) <= {0, 1}

    skops.io.dump(estimator, tmp_path / "estimator.skops")
    again = skops.io.load(tmp_path / "estimator.skops", trusted=TRUSTED)
    np.testing.assert_array_equal(again.predict_proba(test), scores)
    # a score is the receptor's own, whoever stands beside it
    np.testing.assert_allclose(again.predict_proba(test.iloc[[7]]), scores[[7]], rtol=1e-4, atol=1e-6)


@ALL
def test_labels_at_random_teach_nothing(estimator):
    X, _ = receptors(400)
    test, _ = receptors(400, seed=1)
    rng = np.random.default_rng(5)
    scores = clone(estimator).fit(X, rng.integers(0, 2, (400, 3)).astype(np.int8)).predict_proba(test)
    assert quality(rng.integers(0, 2, (400, 3)), scores) == pytest.approx(0.5, abs=0.06)


@ALL
def test_the_grid_is_scored_as_the_estimators_would(estimator):
    if isinstance(estimator, DensityStack):
        return  # it has no grid
    X, Y = receptors()
    test, _ = receptors(60, seed=1)
    if isinstance(estimator, DistanceNeighbors):
        scorer, changes = neighbor_scores, [{}, {"n_neighbors": 3}, {"options": {"v_gene": 8}}]
    else:
        changes = [{}, {"bandwidth": 0.2}, {"options": {"smaller": 0.7}, "background": 0.3}]
        scorer = svc_scores if isinstance(estimator, DistanceSVC) else density_ratio_scores
        changes += [{"C": 0.3}] * isinstance(estimator, DistanceSVC)
    points = [estimator.get_params() | change for change in changes]
    found = scorer(X, Y, test, points)
    assert found.shape == (len(points), 60, 3)
    for scores, point in zip(found, points):
        np.testing.assert_allclose(type(estimator)(**point).fit(X, Y).predict_proba(test), scores, rtol=1e-3, atol=1e-5)


@ALL
def test_one_class_of_letters_is_a_binary_problem(estimator):
    X, Y = receptors()
    known = Y[:, 0] >= 0
    y = np.where(Y[known, 0] == 1, "binds", "no")
    both = clone(estimator).fit(X[known], y)
    assert both.classes_.tolist() == ["binds", "no"] and both.predict_proba(X[:5]).shape == (5, 2)
    alone = clone(estimator).fit(X[known], Y[known, :1]).predict_proba(X)
    np.testing.assert_allclose(both.predict_proba(X)[:, 0], alone[:, 0], atol=2e-3)  # libsvm stops at 1e-3
    assert (both.predict(X[known]) == y).mean() > 0.75


@ALL
def test_a_class_of_one_label_has_no_score(estimator):
    X, Y = receptors(90)
    Y[Y[:, 1] == 1, 1] = -1
    scores = clone(estimator).fit(X, Y).predict_proba(X)
    assert np.isnan(scores[:, 1]).all() and not np.isnan(scores[:, [0, 2]]).any()


@pytest.mark.parametrize("form", ["exponential", "gaussian"])
def test_the_ratio_is_that_of_two_densities(form):
    X, Y = receptors(60)
    test, _ = receptors(20, seed=1)
    model = KernelDensityRatio(0.15, form=form, background=0.25, controls=0.1).fit(X, Y)
    d = LoopDistance().matrix(test, X).astype(float)
    k = np.exp(-d / model.width_) if form == "exponential" else np.exp(-((d / model.width_) ** 2) / 2)
    elsewhere = (Y == 1).any(axis=1, keepdims=True)
    yes, no = (Y == 1).astype(float), (Y == 0) + (Y == -1) * np.where(elsewhere, 0.25, 0.1)
    wanted = np.log(k @ yes / yes.sum(axis=0)) - np.log(k @ no / no.sum(axis=0))
    prior = np.log((Y == 1).sum(axis=0) / (Y == 0).sum(axis=0))
    np.testing.assert_allclose(model.decision_function(test), wanted + prior, rtol=1e-3, atol=1e-4)
    assert model.width_ == pytest.approx(0.15 * LoopDistance().matrix(X, X)[np.triu_indices(60, 1)].mean())


def test_leave_one_out_looks_at_no_copy():
    X, Y = receptors(80)
    twice = pd.concat([X, X.iloc[:10]], ignore_index=True)
    labels = np.concatenate([Y, Y[:10]])
    found = KernelDensityRatio().fit(twice, labels).leave_one_out()
    for i in (3, 40, 83):
        others = np.flatnonzero((twice != twice.iloc[i]).any(axis=1))
        model = KernelDensityRatio().fit(twice, labels)
        model.Y_ = labels[others]
        model.references_ = {name: column[others] for name, column in model.references_.items()}
        # the prior stays that of all: without its own label it would tell the label
        prior = np.log([(y == 1).sum(axis=0) / (y == 0).sum(axis=0) for y in (labels, labels[others])])
        wanted = model.decision_function(twice.iloc[[i]])[0] + prior[0] - prior[1]
        np.testing.assert_allclose(found[i], wanted, rtol=1e-4)
    # groups of one's own
    by_group = KernelDensityRatio().fit(X, Y).leave_one_out(np.arange(80) // 4)
    assert by_group.shape == (80, 3) and not np.isnan(by_group).any()


def test_a_missing_chain_is_no_signal():
    X, Y = receptors(400, K=1)
    Y[:, 0] = np.random.default_rng(2).integers(0, 2, 400)  # nothing to learn but who has a chain
    alpha = [name for name in X if name.startswith("TRA")]
    X.loc[Y[:, 0] == 1, alpha] = ""
    test, _ = receptors(400, seed=3)
    labels = np.arange(400) % 2
    test.loc[labels == 1, alpha] = ""
    for estimator in (KernelDensityRatio(), KernelDensityRatio(options={"smaller": 0.8}), DistanceNeighbors(20)):
        scores = estimator.fit(X, Y).predict_proba(test)[:, 0]
        assert roc_auc_score(labels, scores) == pytest.approx(0.5, abs=0.1), estimator


def test_missing_genes_are_no_signal():
    X, Y = receptors(400, K=1)
    Y[:, 0] = np.random.default_rng(2).integers(0, 2, 400)
    X.loc[Y[:, 0] == 1, ["TRB_v", "TRB_cdr1"]] = ""
    test, _ = receptors(400, seed=3)
    labels = np.arange(400) % 2
    test.loc[labels == 1, ["TRB_v", "TRB_cdr1"]] = ""
    scores = KernelDensityRatio(options={"v_gene": 12}).fit(X, Y).predict_proba(test)[:, 0]
    assert roc_auc_score(labels, scores) == pytest.approx(0.5, abs=0.1)


def test_a_stack_sees_what_leave_one_out_sees():
    X, Y = receptors(120)
    X = pd.concat([X, X.iloc[:5]], ignore_index=True)
    Y = np.concatenate([Y, Y[:5]])
    stack = DensityStack().fit(X, Y)
    references = stack._known()
    seen = stack._features(references, references, kernels._copies(references))
    # the second view is all chains at the middle bandwidth
    alone = KernelDensityRatio(0.075, options={"smaller": 0.65}, background=1.0, controls=0.3).fit(X, Y)
    np.testing.assert_allclose(seen[:, :, 1], alone.leave_one_out(), rtol=1e-4, atol=1e-4)
    # one chain, and no genes
    heavy = X[["TRB_cdr3"]].rename(columns={"TRB_cdr3": "heavy_cdr3"})
    found = DensityStack(options={"weights": (0, 0, 3)}).fit(heavy, Y).predict_proba(heavy)
    assert found.shape == Y.shape and np.isfinite(found).all()


def test_a_stack_centres_receptors_that_lack_the_same_by_themselves():
    X, Y = receptors(200)
    lacks = np.arange(200) % 4 == 0
    X.loc[lacks, [name for name in X if name.startswith("TRA")]] = ""
    stack = DensityStack().fit(X, Y)
    references = stack._known()
    lacking = kernels._lacking(references)
    assert len(set(lacking)) == 2 and (lacking == lacking[0]).tolist() == lacks.tolist()
    rows, classes = np.nonzero(Y[:, stack.trained_] >= 0)
    weights = 1 / np.bincount(classes)[classes]
    seen = stack._features(references, references, kernels._copies(references))[rows, classes]
    side = lacks[rows]

    def apart(features):
        return np.abs(np.subtract(*(np.average(features[s], axis=0, weights=weights[s]) for s in (side, ~side))))

    before, after = apart(seen), apart(seen - kernels._shift_of(stack.shifts_, lacking[rows]))
    assert before.max() > 0.5 and (after < 0.25 * before + 1e-9).all()  # what is left: the mistrust of small groups
    unseen = X.iloc[:3].assign(TRB_cdr3="")  # nobody in training lacks this: not centred
    assert np.isfinite(stack.predict_proba(unseen)).all()


def test_thebest_other_class():
    scores = np.array([[3.0, 1, 2], [1, 1, 5]])
    assert kernels.best_other(scores).tolist() == [[2, 3, 3], [5, 5, 1]]
    assert kernels.best_other(scores[:, :1]).tolist() == [[0], [0]]


def test_one_chain_and_loops_longer_than_any_in_training():
    X, Y = receptors()
    heavy = X.filter(like="TRB").rename(columns=lambda name: name.replace("TRB", "heavy"))
    model = KernelDensityRatio().fit(heavy, Y)
    long = heavy.iloc[:4].copy()
    long["heavy_cdr3"] = ["A" * 50, "A" * 500, "", "X*?"]
    long["heavy_cdr1"] = ["W" * 30, "", "", "AAA"]
    assert np.isfinite(model.predict_proba(long)).all()


def test_vectors_far_from_everything_still_have_a_ratio():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4))
    y = (X[:, 0] > 0).astype(int)
    model = KernelDensityRatio(0.01, metric="euclidean").fit(X, y)
    assert model.predict([[300.0, 0, 0, 0], [-300.0, 0, 0, 0]]).tolist() == [1, 0]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_vectors_are_as_good_as_dense_ones(metric):
    rng = np.random.default_rng(0)
    dense = np.maximum(rng.normal(size=(80, 30)) - 0.5, 0)
    Y = np.stack([dense[:, 0] > dense[:, 1], dense[:, 2] > dense[:, 3]], axis=1).astype(np.int8)
    X = sparse.csr_array(dense)
    for estimator in (KernelDensityRatio(metric=metric), DistanceSVC(metric=metric), DistanceNeighbors(metric=metric)):
        scores = estimator.fit(X, Y).predict_proba(X)
        scaled = dense / dense.max(axis=0)
        if metric == "cosine":
            unit = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
            wanted = 1 - unit @ unit.T
        else:
            wanted = np.linalg.norm(scaled[:, None] - scaled, axis=2)
        np.testing.assert_allclose(similarity.vector_distances(*[estimator._scaled(X)] * 2, metric), wanted, atol=1e-6)
        assert quality(Y, scores) > 0.9


def test_a_large_set_needs_no_square_table(monkeypatch):
    X, Y = receptors(300)
    whole = KernelDensityRatio().fit(X, Y).predict_proba(X), DistanceNeighbors().fit(X, Y).predict_proba(X)
    monkeypatch.setattr(kernels, "AT_ONCE", 300 * 7)
    parts = KernelDensityRatio().fit(X, Y).predict_proba(X), DistanceNeighbors().fit(X, Y).predict_proba(X)
    for a, b in zip(whole, parts):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_equally_near_ones_are_taken_from_the_front():
    distances = np.array([[3, 1, 2, 1, 2, 2], [5, 5, 5, 5, 5, 5]], dtype=float)
    assert kernels._nearest(distances, 3).tolist() == [[1, 3, 2], [0, 1, 2]]
    assert kernels._nearest(distances, 9).tolist() == [[1, 3, 2, 4, 5, 0], [0, 1, 2, 3, 4, 5]]


def test_mistakes_are_named():
    X, Y = receptors(40)
    with pytest.raises(ValueError, match="compares letters"):
        KernelDensityRatio().fit(np.zeros((4, 2)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="metric is one of"):
        KernelDensityRatio(metric="angle").fit(X, Y)
    with pytest.raises(ValueError, match="options are those of metric 'loops'"):
        KernelDensityRatio(metric="cosine", options={"smaller": 1}).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="bandwidth is above 0"):
        KernelDensityRatio(0).fit(X, Y)
    with pytest.raises(ValueError, match="form is one of"):
        KernelDensityRatio(form="box").fit(X, Y)
    with pytest.raises(ValueError, match=r"-1 \(unknown\) only"):
        DistanceSVC().fit(X, Y + 1)
    with pytest.raises(ValueError, match="X has 40 rows, but y 39"):
        DistanceSVC().fit(X, Y[:39])


def test_distances_of_parts_are_those_of_their_columns():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(4, 6)), rng.normal(size=(5, 6))
    chains = ((0, 3), (3, 6))
    first, second = (np.linalg.norm(A[:, None, s:e] - B[None, :, s:e], axis=2) for s, e in chains)
    assert PartDistance(chains).between(A, B) == pytest.approx(np.sqrt(first**2 + second**2))
    assert PartDistance(chains[1:]).between(A, B) == pytest.approx(second)
    nearer = 0.65 * np.minimum(first, second) + 0.35 * np.maximum(first, second)
    assert PartDistance(chains, 0.65).between(A, B) == pytest.approx(nearer)


def test_a_stack_of_vectors_finds_the_part_that_tells():
    """Two chains of three loops of four numbers; only the CDR3 of the second tells the class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 24))
    y = np.repeat([0, 1], 150)
    X[y == 1, 20:] = 0.3 * rng.normal(size=(150, 4)) + 1.0
    seen, unseen = np.arange(300) % 2 == 0, np.arange(300) % 2 == 1
    plain = DensityStack(metric="euclidean").fit(X[seen], y[seen])
    parts = DensityStack(metric="euclidean", chains=2, loops=3).fit(X[seen], y[seen])
    names = [metric.chains for metric, _, _ in parts._views(parts._known())]
    assert ((20, 24),) in names and ((8, 12),) in names and ((0, 8), (12, 20)) in names and ((12, 24),) in names
    scores = [roc_auc_score(y[unseen], stack.decision_function(X[unseen])) for stack in (plain, parts)]
    assert scores[1] > scores[0] + 0.01 and scores[1] > 0.9
