"""Tuning: a classifier sees a training fold and nothing else.

The grid point, the thresholds and the calibration come from its inner folds; scalers and models are then fitted on all
of it. A class is learnt from the receptors that are known for it: Y is 1 (it is), 0 (it is not) or -1 (unknown).

Letters: n receptors to learn from, m others, K classes, G grid points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from airrformer.classify.calibration import Calibrator, fit_calibrator
from airrformer.classify.columns import ColumnsAsNumbers
from airrformer.classify.families import (
    FAMILIES,
    NUMBERS_BY_DISTANCE,
    REGRESSORS,
    Family,
    density_stack,
    multi_kernel,
    multi_kernel_of_numbers,
    receptor_peptide,
)
from airrformer.classify.features import view_name
from airrformer.classify.metrics import auroc_by_column, best_threshold, mean_defined, spearman
from airrformer.classify.multi_kernel import ViewKernel
from airrformer.classify.receptor_peptide import peptides_of
from airrformer.classify.residues import Completed, LettersOf, LettersOneHot, PhysChem
from airrformer.classify.stacking import Stack
from airrformer.config import (
    AS_THEY_ARE,
    Classifier,
    ColumnsEncoder,
    Config,
    Embedding,
    KernelPart,
    LettersEncoder,
    MultiKernelClassifier,
    NearestNeighborsClassifier,
    StackClassifier,
    Target,
)
from airrformer.config.classifiers import (
    CnnClassifier,
    DensityStackClassifier,
    DistanceSvmClassifier,
    PeptideClassifier,
)
from airrformer.config.encoders import POOLING_OF

INNER_FOLDS = 3


def take(X, rows):
    """Some rows of what a classifier reads: a matrix, letters, or for a stack several of these by name."""
    if isinstance(X, Mapping):
        return {name: take(view, rows) for name, view in X.items()}
    if isinstance(X, pd.DataFrame):
        return X.iloc[np.arange(len(X))[rows]]
    return X[rows]


def row_count(X) -> int:
    """How many receptors X describes."""
    return next(iter(X.values())).shape[0] if isinstance(X, Mapping) else X.shape[0]


def both_labels(Y: np.ndarray) -> np.ndarray:
    """The columns of Y in which both labels are known, bool (K,)."""
    return (Y == 1).any(axis=0) & (Y == 0).any(axis=0)


@dataclass(frozen=True)
class Task:
    """What is to be fitted: a classifier's settings, and how its scores become decisions and probabilities.

    letters: how letters become vectors for a classifier that needs them; ``None`` where X is vectors.
    members, rivals: for a stack, the task of each and the name of what it reads among the views of X (``None``: all
        of them); and whether the best other class is weighed, too.
    kernels: for several kernels combined, each of them, unfitted.
    peptides: of each class, for a classifier that reads them.
    layout: of vectors that an encoder pooled, how many chains stand side by side, and how many loops of each.
    """

    settings: Classifier
    seed: int
    calibration: str = "none"
    letters: LettersEncoder | ColumnsEncoder | None = None
    members: tuple[tuple[str | None, Task], ...] = ()
    rivals: bool = False
    regression: bool = False
    kernels: tuple[ViewKernel, ...] = ()
    peptides: tuple[str, ...] = ()
    layout: tuple[int, int] = (1, 1)

    def of_classes(self, kept: np.ndarray) -> Task:
        """The task of some of the classes, bool (K,)."""
        return replace(self, peptides=tuple(compress(self.peptides, kept)))

    @property
    def family(self) -> Family:
        if self.peptides:
            return receptor_peptide(self.peptides)
        if isinstance(self.settings, DensityStackClassifier) and self.layout != (1, 1):
            return density_stack(*self.layout)
        if self.kernels:
            return (multi_kernel_of_numbers if self.regression else multi_kernel)(self.kernels)
        letters = isinstance(self.letters, LettersEncoder)
        if self.regression and letters and isinstance(self.settings, NearestNeighborsClassifier):
            return NUMBERS_BY_DISTANCE
        return (REGRESSORS if self.regression else FAMILIES)[self.settings.kind]


def task_of(config: Config, target: Target, classes: Sequence[str] = ()) -> Task:
    """The task that a target of the config stands for; ``classes``: their names, as peptides are told by these.

    Raises ``UserError`` where a class of a classifier that reads peptides is none.
    """
    settings, encoder = config.classifiers[target.classifier], config.encoders[target.encoder]
    members, kernels, peptides = (), (), ()
    if isinstance(settings, StackClassifier):
        read = [config.source(target, member) for member in settings.members]
        members = tuple((_own_view(config, member), task_of(config, member, classes)) for member in read)
    elif isinstance(settings, MultiKernelClassifier):
        kernels = tuple(_view_kernel(config, config.source(target, part), part) for part in settings.kernels)
    elif isinstance(settings, PeptideClassifier):
        peptides = tuple(peptides_of(classes, settings.peptides))
    return Task(
        settings,
        config.seed,
        config.evaluation.calibration,
        encoder if encoder.kind in AS_THEY_ARE else None,
        members,
        getattr(settings, "rivals", False),
        config.datasets[target.dataset].task == "regression",
        kernels,
        peptides,
        _layout(config, target),
    )


def _layout(config: Config, target: Target) -> tuple[int, int]:
    if config.encoders[target.encoder].kind in POOLING_OF:  # counts and letters have columns of their own kind
        return 1, 1
    loops = 3 if config.poolings[target.pooling].kind == "loops" else 1
    return len(config.datasets[target.dataset].chains), loops


def _own_view(config: Config, member: Target) -> str | None:
    return None if config.reads_several(member) else view_name(Embedding(*member[:3]))


def _view_kernel(config: Config, read: Target, part: KernelPart) -> ViewKernel:
    encoder, options = config.encoders[read.encoder], part.distance and part.distance.model_dump()
    reader = None
    if encoder.kind in AS_THEY_ARE:
        reader = letters_as_vectors(encoder) if options is None else Completed()
    return ViewKernel(view_name(Embedding(*read[:3])), part.weight, part.bandwidth, part.form, options, reader)


@dataclass(frozen=True)
class Tuned:
    """A grid point, and the scores (n, K) of receptors by models that did not learn from them; NaN where none did."""

    point: dict
    scores: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """A tuned and fitted classifier. ``trained``: bool (K,), the classes of which both labels were there."""

    estimator: BaseEstimator | None
    trained: np.ndarray
    thresholds: np.ndarray = field(default_factory=lambda: np.empty(0))
    calibrators: tuple[Calibrator, ...] = ()
    chosen: dict = field(default_factory=dict)
    regression: bool = False

    def scores(self, X) -> np.ndarray:
        """Score of each class, float64 (m, K), higher is more likely; NaN for classes that could not be trained.

        In regression the predicted numbers, (m, 1).
        """
        scores = np.full((row_count(X), len(self.trained)), np.nan)
        if self.estimator is not None and len(scores):
            found = self.estimator.predict(X)[:, None] if self.regression else self.estimator.predict_proba(X)
            scores[:, self.trained] = found
        return scores

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Whether each score reaches its class's threshold, bool (m, K); never where it is NaN."""
        return scores >= self.thresholds

    def calibrate(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities (m, K) from scores (m, K); NaN stays. Numbers, which have no calibrators, stay as they are."""
        probabilities = scores.astype(np.float64, copy=True)
        for k, calibrator in enumerate(self.calibrators):
            probabilities[:, k] = calibrator.apply(scores[:, k])
        return probabilities


def fit(task: Task, X, Y: np.ndarray, inner_folds: np.ndarray) -> Fitted:
    """Tune by the inner folds, then fit on all of X and Y, int8 (n, K) or float (n, 1) in regression.

    ``inner_folds``: int (n,). Each class has the threshold with the best MCC over its inner out-of-fold scores, and a
    calibration fitted on the same.
    """
    if task.members:
        estimator, trained, scores, chosen = _fit_stack(task, X, Y, inner_folds)
    else:
        tuned = tune(task, X, Y, inner_folds)
        trained = _learnable(task, Y)
        estimator = _fit_point(task.of_classes(trained), tuned.point, X, Y[:, trained]) if trained.any() else None
        scores, chosen = tuned.scores, tuned.point
    if task.regression:
        return Fitted(estimator, trained, chosen=chosen, regression=True)
    K = Y.shape[1]
    known = [(Y[:, k] >= 0) & ~np.isnan(scores[:, k]) for k in range(K)]
    labels = [Y[known[k], k] == 1 for k in range(K)]
    thresholds = np.array([best_threshold(labels[k], scores[known[k], k]) for k in range(K)])
    calibrators = tuple(fit_calibrator(task.calibration, scores[known[k], k], labels[k]) for k in range(K))
    return Fitted(estimator, trained, thresholds, calibrators, chosen)


def tune(task: Task, X, Y: np.ndarray, inner_folds: np.ndarray) -> Tuned:
    """The point of the grid with the best AUROC (regression: Spearman), averaged over inner folds and classes.

    One point serves all classes. Equally good points give the most cautious, which stands first in the grid.
    """
    grid = _within_budget(task.family.grid(task.settings), task.settings.budget, task.seed)
    scores = np.full((len(grid), *Y.shape), np.nan)
    quality = []
    for fold in np.unique(inner_folds):
        held = inner_folds == fold
        trained = _learnable(task, Y[~held])
        if trained.any():
            known, other = take(X, ~held), take(X, held)
            if (vectors := _vectoriser(task)) is not None:
                known = vectors.fit_transform(known)
                other = vectors.transform(other)
            family = task.of_classes(trained).family
            found = family.grid_scores(task.settings, grid, known, Y[~held][:, trained], other, task.seed)
            # numpy puts the axis of `held` and `trained` together wherever a mask is; ix_ says it plainly
            scores[np.ix_(range(len(grid)), held, trained)] = found
        quality.append([_quality(Y[held], point, task.regression) for point in scores[:, held]])
    means = mean_defined(np.array(quality).transpose(0, 2, 1).reshape(-1, len(grid)))
    best = 0 if np.isnan(means).all() else int(np.nanargmax(np.round(means, 9)))
    return Tuned(grid[best], scores[best])


def _quality(Y: np.ndarray, scores: np.ndarray, regression: bool) -> np.ndarray:
    """AUROC of each class over the receptors known for it, or Spearman's correlation: float (K,), NaN if undefined."""
    return np.array([spearman(Y[:, 0], scores[:, 0])]) if regression else auroc_by_column(Y, scores)


def _learnable(task: Task, Y: np.ndarray) -> np.ndarray:
    return np.array([len(Y) > 1]) if task.regression else both_labels(Y)


def _within_budget(grid: list[dict], budget: int | None, seed: int) -> list[dict]:
    if budget is None or budget >= len(grid):
        return grid
    return [grid[i] for i in np.sort(np.random.default_rng(seed).choice(len(grid), budget, replace=False))]


def _vectoriser(task: Task) -> TransformerMixin | None:
    """What makes of letters what a classifier reads, unfitted; ``None`` where it reads what is there."""
    if task.letters is None:
        return None
    if isinstance(task.settings, CnnClassifier | PeptideClassifier):
        return LettersOf(task.letters.regions)
    if task.family.reads_letters and isinstance(task.letters, LettersEncoder):
        return Completed() if isinstance(task.settings, DistanceSvmClassifier) else None
    vectors = letters_as_vectors(task.letters)
    plain = task.settings.kind in _LINEAR and isinstance(task.letters, LettersEncoder)
    return vectors.set_params(missing="mean") if plain else vectors


_LINEAR = ("logistic_regression", "linear_svm", "ridge")  # a mean is no signal to them, and disturbs them least


def letters_as_vectors(letters: LettersEncoder | ColumnsEncoder) -> TransformerMixin:
    """What makes vectors of letters, unfitted, in their encoding; or of columns."""
    if isinstance(letters, ColumnsEncoder):
        return ColumnsAsNumbers()
    if letters.encoding == "physchem":
        return PhysChem(regions=letters.regions)
    return LettersOneHot(regions=letters.regions, encoding=letters.encoding, genes=letters.genes)


def _fit_point(task: Task, point: dict, X, Y: np.ndarray) -> BaseEstimator:
    vectors = _vectoriser(task)
    seen = X if vectors is None else vectors.fit_transform(X)
    estimator = task.family.estimator(task.settings, point, seen, task.seed)
    estimator.fit(seen, Y[:, 0] if task.regression else Y)
    return estimator if vectors is None else Pipeline([("letters", vectors), ("classify", estimator)])


def _fit_stack(task: Task, X: Mapping, Y: np.ndarray, inner_folds: np.ndarray):
    """Each member tuned and fitted, and one weighing of their out-of-fold scores."""
    trained = _learnable(task, Y)
    members, columns, chosen = [], [], {}
    for i, (view, member) in enumerate(task.members):
        seen = X if view is None else X[view]
        tuned = tune(member, seen, Y, inner_folds)
        columns.append(tuned.scores)
        chosen[f"{i + 1}: {member.settings.kind}" + (f" on {view}" if view else "")] = tuned.point
        if trained.any():
            members.append(_fit_point(member.of_classes(trained), tuned.point, seen, Y[:, trained]))
    stack = Stack([view for view, _ in task.members], task.regression, task.rivals)
    out_of_fold = np.stack(columns)  # (members, n, K)
    # the weighing, too, is judged on receptors that it was not fitted on
    scores = np.full(Y.shape, np.nan)
    for fold in np.unique(inner_folds):
        held = inner_folds == fold
        weighed = stack.weigh(out_of_fold[:, ~held], Y[~held])
        scores[held] = weighed.combine(out_of_fold[:, held])
    if not trained.any():
        return None, trained, scores, chosen
    stack.weigh(out_of_fold[:, :, trained], Y[:, trained]).members_ = members
    chosen["weights"] = [round(float(weight), 4) for weight in stack.weights_]
    return stack, trained, scores, chosen
