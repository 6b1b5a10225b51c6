"""Is one model better than another? Paired comparison on the same receptors, folds and seeds.

Two answers stand side by side, for they ask different things. The interval resamples the receptors, the same draw for
both models, and holds folds and fitted models fixed: would the difference hold for other receptors? The p value takes
the folds as repetitions, training included, with the variance corrected for training sets that overlap (Nadeau & Bengio
2003): would it hold if the models were trained anew? P values of a family of comparisons are corrected by Holm (1979).

Numbers that are predicted are compared by Spearman's correlation in the place of the AUROC.

Letters: M models, J folds (of all seeds), K classes, n receptors, R columns of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import t as student

from airrformer.classify.metrics import bootstrap_weights, interval, mean_defined, regression_metrics, weighted_auroc
from airrformer.errors import UserError

COLUMNS: tuple[str, ...] = ("a", "b", "split", "difference", "low", "high", "p", "p_holm", "folds", "note")
_KEY = ["seed", "fold", "class", "receptor_id"]


def compare_models(
    tables: Mapping[str, pd.DataFrame],
    reference: str | None,
    split: str,
    resamples: int,
    seed: int,
    numbers: bool = False,
) -> pd.DataFrame:
    """One row a comparison, columns ``COLUMNS``: by how much the macro AUROC of ``a`` is above that of ``b``.

    tables: the predictions of each model by its name (columns split, seed, fold, class, receptor_id, label, score).
    numbers: whether numbers are predicted; then Spearman's correlation stands for the AUROC.
    reference: the model that all others are held against, as ``b``; None compares all pairs. difference: of the macro
    AUROC as evaluation computes it (folds, then classes, averaged where defined); low, high: its 95 % interval. p: two-
    sided, of the differences of the folds' macro AUROC, NaN with fewer than two folds or folds that do not differ;
    p_holm: corrected for all rows of this table. folds: how many entered the test. NaN where undefined.

    Raises UserError where the models were not tested on the same folds, receptors and labels.
    """
    if reference is not None and reference not in tables:
        raise UserError(f"model {reference!r} to compare with is not among the models: {', '.join(tables)}")
    others = [name for name in tables if name != reference]
    pairs = [(name, reference) for name in others] if reference is not None else list(combinations(others, 2))
    if not pairs:
        return pd.DataFrame(columns=list(COLUMNS))
    keys, scores = _aligned(tables, split, numbers)
    macro, by_fold, note = _macro_metric(keys, scores, resamples, seed, _spearmans if numbers else weighted_auroc)
    ratio, seeds = _test_to_train(keys), keys["seed"].nunique()

    place = {name: index for index, name in enumerate(tables)}
    rows = []
    for a, b in pairs:
        found = interval(macro[place[a]] - macro[place[b]])
        of_folds = by_fold[place[a]] - by_fold[place[b]]
        flat = int(np.isnan(of_folds).sum())
        if numbers:
            note = f"{flat} of {len(of_folds)} folds have no order: a model predicts one number for all" if flat else ""
        p, why = corrected_t_test(of_folds[~np.isnan(of_folds)], ratio, seeds)
        rows.append(
            {"a": a, "b": b, "split": split, "difference": found["value"], "low": found["low"], "high": found["high"]}
            | {"p": p, "p_holm": np.nan, "folds": len(of_folds) - flat, "note": "; ".join(filter(None, (why, note)))}
        )
    compared = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"difference": float, "low": float, "high": float})
    compared["p_holm"] = holm(compared["p"].to_numpy())
    return compared


def corrected_t_test(differences: np.ndarray, ratio: float, seeds: int = 1) -> tuple[float, str]:
    """Two-sided p of the mean of the folds' differences, and why it is NaN, if it is.

    t = mean / sqrt((1/J + ratio) * variance); J folds of one seed; ratio: test to training receptors of a fold (Nadeau
    & Bengio 2003). The variance and its degrees of freedom are those of all differences of all seeds, but J counts one
    seed: dealing the same receptors into folds again brings no new receptors. (With all of them as J, as for repeated
    cross-validation by Bouckaert & Frank 2004, models trained on random labels differed 'significantly' in 11 % of
    simulated studies with 3 seeds and 13 % with 10; so they do in 5 to 6 %. The ordinary test, ratio 0, finds a
    difference in 15 % with one seed and in 40 % with three.) Models that never differ have p = 1.
    """
    J = len(differences)  # of all seeds
    if J < 2:
        return np.nan, "fewer than 2 folds: no test"
    if np.isnan(ratio):
        return np.nan, "one fold a seed, so the size of its training part is not known: no test"
    mean, variance = differences.mean(), differences.var(ddof=1)
    if variance <= (1e-12 * max(1, abs(mean))) ** 2:
        return (1.0, "") if abs(mean) < 1e-12 else (np.nan, "the same difference in every fold: no test")
    return float(2 * student.sf(abs(mean) / np.sqrt((seeds / J + ratio) * variance), J - 1)), ""


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's (1979) step-down correction of a family of p values; those that are NaN are not of the family."""
    corrected = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")  # NaN last
    order = order[~np.isnan(p[order])]
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1, np.maximum.accumulate(steps))
    return corrected


# ------------------------------------------------------------------------------------------------------- the same rows


def _aligned(tables: Mapping[str, pd.DataFrame], split: str, numbers: bool) -> tuple[pd.DataFrame, np.ndarray]:
    """The rows that all models were tested on, sorted by ``_KEY``, with labels; and their scores, float (rows, M)."""
    (first, table), *others = tables.items()
    common = _rows(first, table, split, numbers)
    scores = [common.pop("score")]
    for name, table in others:
        own = _rows(name, table, split, numbers)
        if len(own) != len(common) or any((own[column] != common[column]).any() for column in _KEY):
            raise _not_the_same(first, common, name, own)
        differ = own["label"] != common["label"]
        if differ.any():
            row = own[differ].iloc[0]
            raise UserError(
                f"models {first} and {name} cannot be compared: receptor {row['receptor_id']} has another label for "
                f"class {row['class']} in the predictions of {name}; classify both again from the same labels."
            )
        scores.append(own["score"])
    return common, np.stack(scores, axis=1)


def _rows(name: str, table: pd.DataFrame, split: str, numbers: bool) -> pd.DataFrame:
    """The rows of a split with a score and a known label, sorted; ids and classes as text, however they were read."""
    missing = [column for column in ("split", *_KEY, "label", "score") if column not in table.columns]
    if missing:
        raise UserError(f"predictions of {name} have no column {missing[0]}: they are not a predictions.tsv.")
    table = table[table["split"] == split]
    table = table[table["score"].notna() & table["label"].notna()]
    if not numbers:
        table = table[table["label"] != -1]
    odd = ~table["label"].isin([0, 1])
    if odd.any() and not numbers:
        raise UserError(
            f"predictions of {name}: label {table['label'][odd].iloc[0]} is not 1, 0 or -1 (unknown); if it is a "
            "number that is predicted, compare with task: regression in the config."
        )
    if table.empty:
        raise UserError(f"predictions of {name} have no row of split {split}: classify it with that split first.")
    types = {"class": str, "receptor_id": str, "label": float if numbers else int, "score": float}
    table = table[[*_KEY, "label", "score"]].astype(types)
    table = table.sort_values(_KEY, kind="stable", ignore_index=True)
    twice = table.duplicated(_KEY)
    if twice.any():
        row = table[twice].iloc[0]
        raise UserError(f"predictions of {name}: {_where(row)} occurs twice; each receptor is tested once a fold.")
    return table


def _not_the_same(first: str, common: pd.DataFrame, name: str, own: pd.DataFrame) -> UserError:
    both = common[_KEY].merge(own[_KEY], how="outer", on=_KEY, indicator=True)
    row = both[both["_merge"] != "both"].iloc[0]
    has, lacks = (first, name) if row["_merge"] == "left_only" else (name, first)
    return UserError(
        f"models {first} and {name} cannot be compared: {_where(row)} was tested by {has} and not by {lacks}; classify "
        "both with the same receptors, folds and seeds."
    )


def _where(row) -> str:
    return f"receptor {row['receptor_id']}, class {row['class']}, seed {row['seed']}, fold {row['fold']}"


# --------------------------------------------------------------------------------------------------------- the metrics


def _spearmans(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each model, (M, R), from predictions (m, M); NaN where one number is predicted."""
    return np.stack([regression_metrics(y, column, weights)["spearman"] for column in predicted.T])


def _macro_metric(
    keys: pd.DataFrame, scores: np.ndarray, resamples: int, seed: int, metric: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray, str]:
    """The macro metric of each model (M, R), that of each fold (M, J), and a note. NaN where it is not defined.

    metric: ``(labels (m,), scores (m, M), weights (m, R))`` -> (M, R).
    """
    receptor, ids = pd.factorize(keys["receptor_id"], sort=True)  # sorted: the draws depend on no order of rows
    weights = bootstrap_weights(len(ids), resamples, seed)
    labels = keys["label"].to_numpy()
    labels = labels if labels.dtype == np.float64 else labels == 1
    fold = keys.groupby(["seed", "fold"], sort=True).ngroup().to_numpy()
    of_class, classes = pd.factorize(keys["class"], sort=True)

    M, J, K, R = scores.shape[1], fold.max() + 1, len(classes), weights.shape[1]
    sums, counts = np.zeros((K, M, R)), np.zeros((K, M, R), dtype=np.int32)
    cells = np.full((J, K, M), np.nan)
    starts = np.flatnonzero(np.append(True, (np.diff(fold) != 0) | (np.diff(of_class) != 0)))
    for start, end in zip(starts, [*starts[1:], len(keys)]):
        rows = slice(start, end)
        found = metric(labels[rows], scores[rows], weights[receptor[rows]])  # (M, R)
        cells[fold[start], of_class[start]] = found[:, 0]
        counts[of_class[start]] += ~np.isnan(found)
        sums[of_class[start]] += np.nan_to_num(found)
    with np.errstate(invalid="ignore"):
        macro = mean_defined(sums / counts)
    by_fold = mean_defined(cells.transpose(1, 0, 2)).T  # (M, J)
    undefined, judged = int(np.isnan(cells[..., 0]).sum()), cells[..., 0].size
    note = f"{undefined} of {judged} pairs of fold and class have one label only" if undefined else ""
    return macro, by_fold, note


def _test_to_train(keys: pd.DataFrame) -> float:
    """Test to training receptors of a fold, on average; the folds of a seed are each other's training part.

    NaN where each seed has one fold: then the training receptors are not in the predictions.
    """
    tested = keys.groupby(["seed", "fold"])["receptor_id"].nunique()
    everyone = keys.groupby("seed")["receptor_id"].nunique()
    trained = tested.index.get_level_values("seed").map(everyone).to_numpy() - tested.to_numpy()
    return float(tested.mean() / trained.mean()) if trained.any() else np.nan
