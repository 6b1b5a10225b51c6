"""Regressors of vectors, for affinities, melting temperatures and developability assays.

A kind is a row of ``REGRESSORS``: how an unfitted estimator is built. X is float64 (n, D), dense, and scaled within the
fold by the caller; y float64 (n,). Targets are standardised inside, or with ``target="rank"`` laid on a normal curve by
their ranks, which tames a long tail; predictions come back in the unit of y either way.
"""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVR

from airrformer.errors import UserError

TARGETS = ("standard", "rank")


@dataclass(frozen=True)
class Regressor:
    """A kind: the scikit-learn class, with the settings that are not tuned."""

    estimator: type[BaseEstimator]
    fixed: dict
    drawn: bool = False  # takes random_state


REGRESSORS: dict[str, Regressor] = {
    "ridge": Regressor(Ridge, {}),
    "svr": Regressor(SVR, {"kernel": "rbf", "epsilon": 0.1}),
    "gaussian_process": Regressor(GaussianProcessRegressor, {"normalize_y": False, "n_restarts_optimizer": 0}),
    "random_forest": Regressor(RandomForestRegressor, {"n_estimators": 500, "max_features": 0.2}, drawn=True),
    "gradient_boosting": Regressor(
        HistGradientBoostingRegressor,
        {"learning_rate": 0.05, "min_samples_leaf": 10, "l2_regularization": 1.0, "early_stopping": False},
        drawn=True,
    ),
    "k_nearest_neighbors": Regressor(KNeighborsRegressor, {"weights": "distance", "algorithm": "brute"}),
}


def build_regressor(
    kind: str, target: str = "standard", random_state: int = 0, n_features: int = 1, **point
) -> TransformedTargetRegressor:
    """An unfitted regressor of ``kind`` with the settings ``point``.

    ``n_features``: columns of X, from which the Gaussian process takes the first width of its kernel.
    Raises ``UserError`` for a kind, a target or a setting that is not known.

    >>> build_regressor("ridge", alpha=10.0).regressor
    Ridge(alpha=10.0)
    """
    if kind not in REGRESSORS:
        raise UserError(f"regressor {kind!r} is unknown; use one of {', '.join(REGRESSORS)}")
    if target not in TARGETS:
        raise UserError(f"target {target!r} is unknown; use one of {', '.join(TARGETS)}")
    row = REGRESSORS[kind]
    settings = row.fixed | point | ({"random_state": random_state} if row.drawn else {})
    if kind == "gaussian_process":
        width = max(n_features, 1) ** 0.5
        smooth = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(width, (width / 10, width * 10))
        settings["kernel"] = smooth + WhiteKernel(0.5, (1e-2, 10.0))
    try:
        regressor = row.estimator(**settings)
    except TypeError:
        known = sorted(set(row.estimator().get_params()) - {"random_state"})
        raise UserError(
            f"{kind} has no setting {', '.join(sorted(set(point) - set(known)))}; it has {', '.join(known)}"
        ) from None
    return on_scale(regressor, target)


def on_scale(regressor: BaseEstimator, target: str, n: int = 1000) -> TransformedTargetRegressor:
    """The regressor of standardised targets, or with ``rank`` of their ranks laid on a normal curve.

    n: receptors to be fitted on.
    """
    ranks = QuantileTransformer(output_distribution="normal", n_quantiles=min(n, 1000))
    return TransformedTargetRegressor(
        regressor=regressor, transformer=StandardScaler() if target == "standard" else ranks
    )
