"""How near receptors are to one another: distances of letters or vectors, a block at a time, and kernels of them.

Letters are compared by ``receptors.loops.LoopDistance``, the rows of a matrix by ``euclidean`` or ``cosine`` distance.
No table of all pairs of a large set is ever held.

Letters: n references, m queries, C columns of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import solve

from airrformer.receptors.loops import AT_ONCE, Encoded, LoopDistance, loop_blocks

METRICS: tuple[str, ...] = ("loops", "euclidean", "cosine")
FORMS: tuple[str, ...] = ("exponential", "gaussian")
_AT_ONCE = 4096  # rows of a table that are worked on at a time
_SAMPLE = 120  # rows, of which all pairs say what distance is usual


@dataclass(frozen=True)
class PartDistance:
    """Euclidean distance of vectors over some of their columns.

    chains: of each chain that is compared its columns, from and to. smaller: as in ``LoopDistance``; 0.5: all columns
    together.
    """

    chains: tuple[tuple[int, int], ...]
    smaller: float = 0.5

    def between(self, A, B) -> np.ndarray:
        """float64 (m, n)."""
        tables = [vector_distances(A[:, start:end], B[:, start:end], "euclidean") for start, end in self.chains]
        if len(tables) == 1:
            return tables[0]
        if self.smaller == 0.5:
            return np.sqrt(sum(table**2 for table in tables))
        return self.smaller * np.minimum.reduce(tables) + (1 - self.smaller) * np.maximum.reduce(tables)


Metric = LoopDistance | PartDistance | str
References = Encoded | np.ndarray | sparse.csr_array


@dataclass(frozen=True)
class _VectorBlock:
    table: np.ndarray  # float64 (m, n)

    def distances(self, fill) -> np.ndarray:
        return self.table


def metric_of(metric: str, options: dict | None) -> Metric:
    if metric not in METRICS:
        raise ValueError(f"metric is one of {', '.join(METRICS)}, not {metric!r}")
    if metric == "loops":
        return LoopDistance(**(options or {}))
    if options:
        raise ValueError(f"options are those of metric 'loops'; {metric} has none: {options}")
    return metric


def blocks_of(
    queries: References, references: References, metrics: Sequence[Metric], at_once: int = AT_ONCE
) -> Iterator:
    """Rows of queries and for each metric their distances to all references, as ``LoopBlock`` or ``_VectorBlock``."""
    if isinstance(references, Encoded):
        yield from loop_blocks(queries, references, metrics, at_once)
        return
    step = max(1, at_once // (2 * max(1, references.shape[0])))
    for start in range(0, queries.shape[0], step):
        rows = slice(start, min(start + step, queries.shape[0]))
        yield rows, [_VectorBlock(vector_distances(queries[rows], references, metric)) for metric in metrics]


def vector_distances(A, B, metric: PartDistance | str) -> np.ndarray:
    if isinstance(metric, PartDistance):
        return metric.between(A, B)
    squares = [np.asarray(M.multiply(M).sum(axis=1)).ravel() if sparse.issparse(M) else (M**2).sum(1) for M in (A, B)]
    products = A @ B.T
    products = products.toarray() if sparse.issparse(products) else products
    if metric == "cosine":
        lengths = [np.where(square > 0, np.sqrt(square), 1) for square in squares]
        return np.maximum(1 - products / (lengths[0][:, None] * lengths[1]), 0)
    found = squares[0][:, None] + squares[1] - 2 * products
    found[found < 1e-12 * (squares[0][:, None] + squares[1])] = 0  # the same row, but for rounding
    return np.sqrt(found)


def _usual(metric: Metric, references: References) -> float:
    if isinstance(references, Encoded):
        return metric.usual(references)
    n = references.shape[0]
    sample = references[np.linspace(0, n - 1, min(_SAMPLE, n)).astype(int)]
    distances = vector_distances(sample, sample, metric)[np.triu_indices(sample.shape[0], 1)]
    return float(distances.mean()) or 1.0 if len(distances) else 1.0


def _fill(metric: Metric, references: References, width: float) -> dict:
    return metric.fill(references, width) if isinstance(references, Encoded) else {}


def near_fill(metric: Metric, references: References) -> dict:
    # the mean distance would put whoever lacks a chain behind all neighbours that have it
    return _fill(metric, references, 0.1 * _usual(metric, references))


@dataclass(frozen=True)
class Kernel:
    """exp(-d / h), or exp(-(d / h)^2 / 2): h in the units of the metric, and what missing parts cost."""

    metric: Metric
    width: float
    form: str
    fill: dict

    def of(self, distances: np.ndarray, least: np.ndarray | None, out: np.ndarray | None = None) -> np.ndarray:
        """(m, n); with ``least`` (m,) divided by the kernel at this distance."""
        if self.form == "gaussian":
            found = np.multiply(distances, distances, out=out)
            found *= -0.5 / self.width**2
            if least is not None:
                found += (0.5 / self.width**2 * least**2)[:, None]
        elif least is not None:
            found = np.subtract(least[:, None], distances, out=out)
            found *= 1 / self.width
        else:
            found = np.multiply(distances, -1 / self.width, out=out)
        return np.exp(found, out=found)


def at_bandwidth(metric: Metric, bandwidth: float, references: References, form: str = "exponential") -> Kernel:
    """A kernel as wide as this share of the usual distance between the references."""
    if form not in FORMS:
        raise ValueError(f"form is one of {', '.join(FORMS)}, not {form!r}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth is above 0, not {bandwidth!r}")
    width = bandwidth * _usual(metric, references)
    return Kernel(metric, width, form, _fill(metric, references, width))


def kernel_sums(
    queries: References,
    references: References,
    kernels: Sequence[Kernel],
    weights: Sequence[np.ndarray],
    relative: bool,
    copies: np.ndarray | None = None,
) -> list[np.ndarray]:
    """``kernel @ weights`` for each kernel, float64 (m, C), from weights (n, C).

    relative: each row divided by its largest kernel, so that what is far from everything still has a ratio.
    copies: int (n,) that says who is who where queries and references are the same; nobody counts itself or a copy.
    """
    metrics = list(dict.fromkeys(kernel.metric for kernel in kernels))
    found = [np.zeros((count_of(queries), W.shape[1])) for W in weights]
    buffer = None
    for rows, blocks in blocks_of(queries, references, metrics, AT_ONCE // (1 + len(metrics) // 4)):
        own = None if copies is None else copies[rows, None] == copies
        for metric, block in zip(metrics, blocks):
            for i, kernel in enumerate(kernels):
                if kernel.metric != metric:
                    continue
                distances = block.distances(kernel.fill)
                if own is not None:
                    distances = np.where(own, np.float32(np.inf), distances)
                least = distances.min(axis=1) if relative else None
                if own is not None and relative:
                    least[np.isinf(least)] = 0
                if buffer is None or buffer.shape != distances.shape or buffer.dtype != distances.dtype:
                    buffer = np.empty_like(distances)
                found[i][rows] = kernel.of(distances, least, buffer) @ weights[i].astype(distances.dtype, copy=False)
    return found


def count_of(references: References) -> int:
    """How many receptors these are."""
    return references.n if isinstance(references, Encoded) else references.shape[0]


def scaled(X, mean: np.ndarray, scale: np.ndarray):
    """X in the units that ``scaling`` says; sparse X stays sparse."""
    if sparse.issparse(X):
        return sparse.csr_array(X.multiply(1 / scale))
    return (X - mean) / scale


def scaling(X) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; of a sparse matrix 0 and the largest absolute value."""
    if sparse.issparse(X):
        mean, scale = np.zeros(X.shape[1]), np.asarray(abs(X).max(axis=0).todense()).ravel()
    else:
        mean, scale = X.mean(axis=0), X.std(axis=0)
    return mean, np.where(scale > 1e-12 * np.maximum(1, np.abs(mean)), scale, 1.0)


def rows_of(references: References, rows: np.ndarray) -> References:
    return references.rows(rows) if isinstance(references, Encoded) else references[rows]


def spanning(n: int, exact: int, landmarks: int, seed: int) -> np.ndarray:
    """The rows, of n, that a kernel is spanned by: all up to ``exact``, beyond them drawn landmarks (Nystroem)."""
    if n <= exact:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, min(landmarks, n), replace=False))


def least_squares(
    table: np.ndarray, spanned: np.ndarray, y: np.ndarray, Cs: Sequence[float], weights: np.ndarray | None = None
) -> list[tuple[np.ndarray, float]]:
    """Kernel ridge regression on landmarks (Nystroem), for sets whose whole kernel is too large.

    table: the kernel, float (n, landmarks), between everyone and the landmarks, which are the rows ``spanned``; y:
    float (n,); weights: of the receptors, float (n,). For each C the coefficients a (landmarks,) and the intercept b
    that make sum w (y - K a - b)^2 + a' K a / (2 C) least. It ranks as a support vector machine does, without a search.
    """
    w = np.ones(len(y)) if weights is None else weights
    mean, centre = (w @ table) / w.sum(), (w @ y) / w.sum()
    products, right = np.zeros((len(spanned), len(spanned))), np.zeros(len(spanned))
    root = np.sqrt(w)
    for start in range(0, len(y), _AT_ONCE):  # in float64, and not all at once
        rows = slice(start, start + _AT_ONCE)
        heavy = (table[rows] - mean) * root[rows, None]
        products += heavy.T @ heavy  # of one array: numpy computes half of it
        right += heavy.T @ ((y[rows] - centre) * root[rows])
    kernel = table[spanned].astype(np.float64)
    kernel[np.diag_indices_from(kernel)] += 1e-6  # a distance need not give a kernel, nor landmarks differ
    found = []
    for C in Cs:
        coefficients = solve(products + kernel / (2 * C), right, assume_a="sym")
        found.append((coefficients, float(centre - mean @ coefficients)))
    return found
