"""Calibration: turning a classifier's scores into probabilities that hold, one map a class.

A map is fitted on out-of-fold scores of the training part and applied to scores of receptors that neither the
classifier nor the map has seen. It never lowers one score below another. Read the ranking metrics off the scores as
they were all the same: rounding, and the steps of the isotonic map, can make two scores equal.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from airrformer.errors import UserError

KINDS: tuple[str, ...] = ("temperature", "isotonic", "none")
MIN_ROWS = 10
_SHRINK = 1e-4  # probabilities 0 and 1 count as this far from the end: one row of them must not decide the slope
_MIN_SLOPE = 0.01  # scores that point the wrong way are flattened, never turned round
_RIDGE = 1e-3  # of slope - 1 and of the offset: decides only where the data say nothing, as when all scores are equal


@dataclass(frozen=True)
class Calibrator:
    """A monotone map of probabilities.

    kind: what is done. wanted: what was asked for; ``note`` says why that is not the same. rows: how many it was
    fitted on. temperature has slope and offset; isotonic has the points x, y, joined by straight lines.
    """

    kind: str
    wanted: str
    rows: int
    note: str = ""
    slope: float = 1.0
    offset: float = 0.0
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()

    def apply(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities float64, of the shape of ``scores``; NaN stays NaN.

        temperature keeps every order (AUROC is the same, to rounding); isotonic can make neighbours equal.
        """
        scores = np.asarray(scores, dtype=np.float64)
        if self.kind == "temperature":
            return expit(self.slope * _log_odds(scores) + self.offset)
        if self.kind == "isotonic":
            return np.interp(scores, self.x, self.y)
        return scores.copy()

    def to_dict(self) -> dict:
        """For JSON; ``from_dict`` gives the same map back, to the last bit."""
        fields = asdict(self)
        kept = {"temperature": ("slope", "offset"), "isotonic": ("x", "y"), "none": ()}[self.kind]
        return {name: fields[name] for name in ("kind", "wanted", "rows", "note")} | {
            name: list(fields[name]) if name in "xy" else fields[name] for name in kept
        }

    @classmethod
    def from_dict(cls, saved: dict) -> Calibrator:
        """The map that ``to_dict`` wrote; a UserError if it is of a kind that this version does not know."""
        if saved.get("kind") not in KINDS:
            raise UserError(
                f"calibration of kind {saved.get('kind')!r} is not known here ({', '.join(KINDS)}): "
                "the model was saved by another version of airrformer; use that version or train it again."
            )
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()})


def fit_calibrator(kind: str, scores: np.ndarray, labels: np.ndarray) -> Calibrator:
    """The map of out-of-fold probabilities (m,) with labels bool (m,); rows whose score is NaN are left out.

    temperature: expit(slope * logit(score) + offset), maximum likelihood, slope at least 0.01. Labels are softened to
    (P + 1) / (P + 2) and 1 / (N + 2), Platt's prior (1999), so that scores that separate the labels give a finite
    slope. isotonic: scikit-learn's isotonic regression; it needs some hundreds of rows to be better. With fewer than
    10 rows or one label there is nothing to fit: kind ``none``, with a note. Raises ValueError for another kind and for
    scores outside [0, 1].
    """
    if kind not in KINDS:
        raise ValueError(f"calibration kind {kind!r} is none of {', '.join(KINDS)}")
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    known = ~np.isnan(scores)
    scores, labels = scores[known], labels[known]
    if ((scores < 0) | (scores > 1)).any():
        raise ValueError(f"only probabilities can be calibrated, not {scores.min():g} to {scores.max():g}")
    rows = len(scores)
    if kind == "none":
        return Calibrator("none", kind, rows)
    if rows < MIN_ROWS:
        return Calibrator("none", kind, rows, f"not calibrated: {rows} receptors, at least {MIN_ROWS} are needed")
    if labels.all() or not labels.any():
        return Calibrator("none", kind, rows, "not calibrated: one label only")
    if kind == "isotonic":
        fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, labels)
        x, y = (tuple(points.tolist()) for points in (fitted.X_thresholds_, fitted.y_thresholds_))
        return Calibrator("isotonic", kind, rows, x=x, y=y)
    slope, offset = _fit_logit(_log_odds(scores), labels)
    return Calibrator("temperature", kind, rows, slope=slope, offset=offset)


def _log_odds(scores: np.ndarray) -> np.ndarray:
    # shrunk, not clipped: what differs stays different
    return logit(_SHRINK + (1 - 2 * _SHRINK) * scores)


def _fit_logit(t: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Slope and offset. The loss is strictly convex, so there is one answer."""
    positives = int(labels.sum())
    target = np.where(labels, (positives + 1) / (positives + 2), 1 / (len(t) - positives + 2))
    identity = np.array([1.0, 0.0])

    def loss(parameters):
        margin = parameters[0] * t + parameters[1]
        residual = expit(margin) - target
        away = parameters - identity
        value = (np.logaddexp(0, margin) - target * margin).sum() + _RIDGE / 2 * (away**2).sum()
        gradient = np.array([residual @ t, residual.sum()]) + _RIDGE * away
        return value / len(t), gradient / len(t)

    bounds = [(_MIN_SLOPE, None), (None, None)]
    options = {"gtol": 1e-9, "ftol": 1e-15, "maxiter": 1000}
    slope, offset = minimize(loss, identity, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return float(slope), float(offset)
