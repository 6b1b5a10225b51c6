"""The kinds of classifiers, a row each: what to choose from, how to build one, and how to score a grid fast.

All are scikit-learn estimators that learn from X and Y, int8 (n, K): 1 (is of the class), 0 (is not), -1 (unknown), and
whose ``predict_proba`` gives P(positive) of each class, float64 (m, K).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from airrformer.classify.kernels import (
    DensityStack,
    DistanceNeighbors,
    DistanceSVC,
    KernelDensityRatio,
    density_ratio_scores,
    neighbor_scores,
    svc_scores,
)
from airrformer.classify.logistic import logistic_path
from airrformer.classify.multi_kernel import MultiKernelRidge, MultiKernelSVC, ViewKernel
from airrformer.classify.neighbors import DistanceNeighborsRegressor
from airrformer.classify.receptor_peptide import ReceptorPeptideClassifier
from airrformer.classify.regression import build_regressor, on_scale
from airrformer.classify.residue_heads import ResidueHeadClassifier
from airrformer.classify.residues import REGIONS, ResidueCNN
from airrformer.classify.vectors import KINDS, Densify
from airrformer.config.classifiers import (
    Classifier,
    CnnClassifier,
    DensityRatioClassifier,
    DensityStackClassifier,
    DistanceSvmClassifier,
    GradientBoostingClassifier,
    HeadClassifier,
    LogisticRegressionClassifier,
    MlpClassifier,
    MultiKernelClassifier,
    NearestNeighborsClassifier,
    PeptideClassifier,
    RandomForestClassifier,
    RbfSvmClassifier,
)


@dataclass(frozen=True)
class Family:
    """A kind of classifier.

    grid: the settings to choose from, the most cautious first, which wins when several are equally good.
    estimator: ``(settings, point, X, seed)`` -> unfitted, for one of them, to be fitted on X.
    grid_scores: ``(settings, grid, X, Y, X_test, seed)`` -> probabilities (G, m, K) for each grid point.
    reads_letters: whether X may be letters, a DataFrame; otherwise letters become vectors first.
    """

    grid: Callable[[Classifier], list[dict]]
    estimator: Callable[..., BaseEstimator]
    grid_scores: Callable[..., np.ndarray]
    reads_letters: bool = False


class PerClass(BaseEstimator):
    """One binary classifier a class, each fitted on the receptors that are known for it."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, Y: np.ndarray) -> PerClass:
        """X (n, D), Y int8 (n, K): 1, 0 or -1, both labels in each column."""
        self.estimators_ = [clone(self.estimator).fit(X[y >= 0], y[y >= 0].astype(int)) for y in np.asarray(Y).T]
        return self

    def predict_proba(self, X) -> np.ndarray:
        """P(positive), float64 (m, K)."""
        check_is_fitted(self)
        return np.stack([estimator.predict_proba(X)[:, 1] for estimator in self.estimators_], axis=1)


def _one_by_one(estimator: Callable[..., BaseEstimator]) -> Callable[..., np.ndarray]:
    """``grid_scores`` of a family whose points share no work: each is built by ``estimator``, fitted and asked."""

    def scores(settings, grid: list[dict], X, Y, X_test, seed: int) -> np.ndarray:
        return np.stack([estimator(settings, point, X, seed).fit(X, Y).predict_proba(X_test) for point in grid])

    return scores


def scaler(X) -> StandardScaler | MaxAbsScaler:
    """Each feature in units of its spread; sparse features in units of their largest value."""
    # centring would fill a sparse matrix
    return MaxAbsScaler() if sparse.issparse(X) else StandardScaler()


# ------------------------------------------------------------------------------------------------ logistic regression


def _logistic(settings: LogisticRegressionClassifier, point: dict, X, seed: int) -> Pipeline:
    model = LogisticRegression(C=point["C"], class_weight=settings.class_weight, tol=1e-4, max_iter=1000)
    return Pipeline([("scale", scaler(X)), ("classify", PerClass(model))])


def _logistic_scores(settings: LogisticRegressionClassifier, grid: list[dict], X, Y, X_test, seed: int) -> np.ndarray:
    scale = scaler(X).fit(X)
    X, X_test = scale.transform(X), scale.transform(X_test)
    if sparse.issparse(X):  # k-mers that do not occur keep a coefficient of 0
        used = np.unique(X.indices)
        X, X_test = X[:, used], X_test[:, used]
    path = logistic_path(X, Y, [point["C"] for point in grid], balanced=settings.class_weight == "balanced")
    return np.stack([expit(X_test @ coefficients + intercepts) for coefficients, intercepts in path])


# ------------------------------------------------------------------------------------------- by distance: kernels.py


def _compared(settings, X) -> dict:
    """What is compared: the loops of letters, or vectors."""
    if isinstance(X, pd.DataFrame):
        return {"metric": "loops", "options": settings.distance.model_dump()}
    return {"metric": "cosine" if isinstance(settings, NearestNeighborsClassifier) else "euclidean"}


def _neighbors(settings: NearestNeighborsClassifier, point: dict, X) -> dict:
    return {**point, **_compared(settings, X)}


def _kernel(settings: DensityRatioClassifier | DistanceSvmClassifier, point: dict, X) -> dict:
    fixed = {"form": settings.form, "background": settings.background, "controls": settings.controls}
    return {**point, **fixed, **_compared(settings, X)}


def _support(settings: DistanceSvmClassifier, point: dict, X) -> dict:
    return _kernel(settings, point, X) | {"landmarks": settings.landmarks}


def _density_stack(
    settings: DensityStackClassifier, point: dict, X, seed: int, chains: int = 1, loops: int = 1
) -> DensityStack:
    weights = {"background": settings.background, "controls": settings.controls}
    return DensityStack(**point, **weights, **_compared(settings, X), chains=chains, loops=loops)


def _by_distance(cautious: tuple[str, ...], parameters: Callable, estimator: type, scores: Callable) -> Family:
    """A family of kernels.py: it shares the distances between the points of a grid."""
    return Family(
        grid=lambda settings: _product(settings.grid, cautious),
        estimator=lambda settings, point, X, seed: estimator(**parameters(settings, point, X)),
        grid_scores=lambda settings, grid, X, Y, X_test, seed: scores(
            X, Y, X_test, [parameters(settings, point, X) for point in grid]
        ),
        reads_letters=True,
    )


def _product(grid, cautious: tuple[str, ...]) -> list[dict]:
    """All points of a grid, the most cautious first: higher values of keys with a +, lower ones of the others."""
    names = [name.rstrip("+") for name in cautious]
    values = [sorted(set(getattr(grid, name.rstrip("+"))), reverse=name.endswith("+")) for name in cautious]
    return [dict(zip(names, point)) for point in product(*values)]


# ------------------------------------------------------------------------------------------ on vectors: vectors.py


def _on_vectors(kind: str, cautious: tuple[str, ...], parameters: Callable) -> Family:
    """A family of binary classifiers, one a class; each point of the grid is fitted by itself.

    parameters: ``(settings, point)`` -> those of the estimator.
    """

    def estimator(settings, point: dict, X, seed: int) -> BaseEstimator:
        each = PerClass(KINDS[kind].build(random_state=seed, **parameters(settings, point)))
        return Pipeline([("scale", scaler(X)), ("classify", each)]) if KINDS[kind].scaled else each

    return Family(lambda settings: _product(settings.grid, cautious), estimator, _one_by_one(estimator))


def _as_it_is(settings, point: dict) -> dict:
    return point


def _rbf(settings: RbfSvmClassifier, point: dict) -> dict:
    return {**point, "landmarks": settings.landmarks}


def _forest(settings: RandomForestClassifier, point: dict) -> dict:
    return {"n_estimators": settings.trees, **point}


def _boosting(settings: GradientBoostingClassifier, point: dict) -> dict:
    fixed = {"learning_rate": settings.learning_rate, "min_samples_leaf": settings.min_samples_leaf}
    fixed["max_features"] = float(settings.features)
    if settings.categories:
        fixed["categories"] = True
    return {"max_iter": point["trees"], "max_leaf_nodes": point["leaves"], **fixed}


def _mlp(settings: MlpClassifier, point: dict) -> dict:
    return {"hidden_layer_sizes": [settings.hidden], **point}


# ------------------------------------------------------------------------------------------ on residues: residues.py


def _cnn(settings: CnnClassifier, point: dict, X, seed: int) -> ResidueCNN:
    fixed = settings.model_dump(exclude={"kind", "grid", "budget", "models"})
    return ResidueCNN(regions=None, **point, **fixed, n_models=settings.models, random_state=seed)


def _head(settings: HeadClassifier, point: dict, X, seed: int) -> ResidueHeadClassifier:
    fixed = settings.model_dump(exclude={"kind", "budget", "models", "epochs"})
    averaged = {"n_models": settings.models, "max_epochs": settings.epochs, "random_state": seed}
    return ResidueHeadClassifier(encoder=X.source.name, **fixed, **averaged)


def _one_network(estimator: Callable[..., ResidueCNN | ResidueHeadClassifier]) -> Callable:
    # it tells good settings from bad ones about as well as the average of several
    return lambda *given: estimator(*given).set_params(n_models=1)


FAMILIES: dict[str, Family] = {
    "logistic_regression": Family(lambda settings: _product(settings.grid, ("C",)), _logistic, _logistic_scores),
    "k_nearest_neighbors": _by_distance(("n_neighbors+",), _neighbors, DistanceNeighbors, neighbor_scores),
    "density_ratio": _by_distance(("bandwidth+",), _kernel, KernelDensityRatio, density_ratio_scores),
    "density_stack": Family(
        lambda settings: _product(settings.grid, ("C",)),
        _density_stack,
        _one_by_one(_density_stack),
        reads_letters=True,
    ),
    "distance_svm": _by_distance(("bandwidth+", "C"), _support, DistanceSVC, svc_scores),
    "linear_svm": _on_vectors("linear_svm", ("C",), _as_it_is),
    "rbf_svm": _on_vectors("rbf_svm", ("gamma", "C"), _rbf),
    "random_forest": _on_vectors("random_forest", ("min_samples_leaf+",), _forest),
    "gradient_boosting": _on_vectors("gradient_boosting", ("trees", "leaves"), _boosting),
    "mlp": _on_vectors("mlp", ("alpha+",), _mlp),
    "cnn": Family(
        lambda settings: _product(settings.grid, ("channels",)),
        _cnn,
        _one_by_one(_one_network(_cnn)),
        reads_letters=True,
    ),
    "residue_head": Family(lambda settings: [{}], _head, _one_by_one(_one_network(_head))),
}


# --------------------------------------------------------------------------- with peptides: receptor_peptide.py


def receptor_peptide(peptides: tuple[str, ...]) -> Family:
    """The family of the networks that read these peptides, one a class, beside the receptors."""

    def estimator(settings: PeptideClassifier, point: dict, X, seed: int) -> ReceptorPeptideClassifier:
        fixed = settings.model_dump(exclude={"kind", "budget", "models", "epochs", "peptides"})
        averaged = {"n_models": settings.models, "max_epochs": settings.epochs, "random_state": seed}
        return ReceptorPeptideClassifier(list(peptides), regions=REGIONS, **fixed, **averaged)

    return Family(lambda settings: [{}], estimator, _one_by_one(_one_network(estimator)), reads_letters=True)


# ---------------------------------------------------------------------- vectors of chains and loops: kernels.py


def density_stack(chains: int, loops: int) -> Family:
    """The family of the stacked densities of vectors, so many chains side by side with so many loops each."""
    estimator = partial(_density_stack, chains=chains, loops=loops)
    return Family(FAMILIES["density_stack"].grid, estimator, _one_by_one(estimator))


# ------------------------------------------------------------------------------ several kernels: multi_kernel.py


def multi_kernel(kernels: tuple[ViewKernel, ...]) -> Family:
    """The family of the support vector machines on these kernels."""

    def estimator(settings: MultiKernelClassifier, point: dict, X, seed: int) -> MultiKernelSVC:
        return MultiKernelSVC(list(kernels), **point, **_combined(settings), random_state=seed)

    def scores(settings: MultiKernelClassifier, grid: list[dict], X, Y, X_test, seed: int) -> np.ndarray:
        return estimator(settings, grid[0], X, seed).grid_scores(X, Y, X_test, [point["C"] for point in grid])

    return Family(lambda settings: _product(settings.grid, ("C",)), estimator, scores, reads_letters=True)


def _combined(settings: MultiKernelClassifier) -> dict:
    return {"combine": settings.combine, "landmarks": settings.landmarks}


def multi_kernel_of_numbers(kernels: tuple[ViewKernel, ...]) -> Family:
    """The same for ridge regression."""

    def estimator(settings: MultiKernelClassifier, point: dict, X, seed: int) -> TransformedTargetRegressor:
        model = MultiKernelRidge(list(kernels), **point, **_combined(settings), random_state=seed)
        return on_scale(model, settings.numbers, next(iter(X.values())).shape[0])

    return Family(
        lambda settings: _product(settings.grid, ("C",)), estimator, _numbers_one_by_one(estimator), reads_letters=True
    )


# ----------------------------------------------------------------------------------------- numbers: regression.py


def _numbers_one_by_one(estimator: Callable[..., BaseEstimator]) -> Callable[..., np.ndarray]:
    """``grid_scores`` of regressors: each is built by ``estimator``, fitted and asked."""

    def scores(settings, grid: list[dict], X, Y, X_test, seed: int) -> np.ndarray:
        fitted = (estimator(settings, point, X, seed).fit(X, Y[:, 0]) for point in grid)
        return np.stack([model.predict(X_test)[:, None] for model in fitted])

    return scores


def _regressor(kind: str, cautious: tuple[str, ...], parameters: Callable) -> Family:
    """A family of regressors, fitted on y (n,)."""

    def estimator(settings, point: dict, X, seed: int) -> Pipeline:
        model = build_regressor(kind, random_state=seed, n_features=X.shape[1], **parameters(settings, point))
        return Pipeline([("scale", scaler(X)), ("dense", Densify()), ("regress", model)])

    def grid(settings) -> list[dict]:
        return _product(settings.grid, cautious) if cautious else [{}]

    return Family(grid, estimator, _numbers_one_by_one(estimator))


def _number_neighbors(settings: NearestNeighborsClassifier, point: dict, X, seed: int) -> DistanceNeighborsRegressor:
    return DistanceNeighborsRegressor(**point, options=settings.distance.model_dump())


NUMBERS_BY_DISTANCE = Family(
    lambda settings: _product(settings.grid, ("n_neighbors+",)),
    _number_neighbors,
    _numbers_one_by_one(_number_neighbors),
    reads_letters=True,
)

REGRESSORS: dict[str, Family] = {
    "ridge": _regressor("ridge", ("alpha+",), _as_it_is),
    "gaussian_process": _regressor("gaussian_process", (), _as_it_is),
    "rbf_svm": _regressor("svr", ("C",), _as_it_is),
    "random_forest": _regressor("random_forest", ("min_samples_leaf+",), _forest),
    "gradient_boosting": _regressor("gradient_boosting", ("trees", "leaves"), _boosting),
    "k_nearest_neighbors": _regressor("k_nearest_neighbors", ("n_neighbors+",), _as_it_is),
}
