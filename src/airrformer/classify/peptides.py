"""Epitopes that are left out: how well receptors of a peptide are told that no training receptor binds.

In each fold some peptides are held out. Those that bind them are in no training, nor are receptors alike, nor peptides
alike beside them. They alone are tested: for each held out peptide those that bind it against those that bind the
others of its fold, so that none of them is known to the models, and that a receptor was seen in training tells nothing.

What needs no understanding of a peptide is judged beside: ``receptor_alone``, ``peptide_alone`` (a network that sees
but the one), ``nearest_receptor`` and ``peptide_similarity``.

Letters: n receptors, K peptides, m receptors tested, H peptides held out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist
from sklearn.pipeline import Pipeline

from airrformer.classify.metrics import macro_interval, weighted_metrics
from airrformer.classify.receptor_peptide import ReceptorPeptideClassifier, alike, peptides_of
from airrformer.errors import UserError
from airrformer.receptors.distances import near_copies
from airrformer.receptors.loops import LoopDistance
from airrformer.receptors.splits import deal

logger = logging.getLogger(__name__)

ALIKE = 3  # edits between peptides that are held out together
MEASURES = ("auroc", "auc01")
_NARROW = 0.1  # of the usual distance between receptors: the width of a kernel

# Letters, Y int8 (n, K) and peptides to learn from; letters and peptides to score -> float (m, H).
Scorer = Callable[[pd.DataFrame, np.ndarray, list[str], pd.DataFrame, list[str]], np.ndarray]


@dataclass(frozen=True)
class EpitopeFold:
    """held: bool (K,), the peptides left out. train, test: bool (n,), who is learned from, and who is tested."""

    held: np.ndarray
    train: np.ndarray
    test: np.ndarray


def peptide_groups(peptides: Sequence[str], edits: int = ALIKE) -> list[str]:
    """What must be held out together: of each peptide the first, by letters, of those linked by ``edits`` or fewer.

    >>> peptide_groups(["NLVPMVATV", "SPRWYFYYL", "LPRWYFYYL"])
    ['NLVPMVATV', 'LPRWYFYYL', 'LPRWYFYYL']
    """
    peptide = pd.Series(peptides, dtype=object)
    return peptide.groupby(near_copies([(one,) for one in peptides], edits)).transform("min").tolist()


def epitope_folds(
    letters: pd.DataFrame, Y: np.ndarray, peptides: Sequence[str], folds: int = 5, seed: int = 1
) -> list[EpitopeFold]:
    """Peptides dealt to folds, alike ones (``peptide_groups``) together; the order of rows and columns changes nothing.

    Receptors that differ from a tested one by one edit of their CDR3s or less, and those in turn, are not learned from.
    Raises ``UserError`` where there are fewer groups of peptides than two a fold.
    """
    groups = peptide_groups(peptides)
    if len(set(groups)) < 2 * folds:
        raise UserError(
            f"{len(set(groups))} peptides that are unlike one another are too few to leave them out in {folds} folds "
            "of two or more; use fewer folds"
        )
    parts = [str(name) for name in letters if str(name).endswith(("_cdr1", "_cdr2", "_cdr3"))]
    clusters = alike([letters[part].astype(str).tolist() for part in parts], parts)
    fold_of = deal(groups, np.zeros((len(groups), 0), dtype=bool), folds, seed, "epitope")
    found = []
    for fold in range(folds):
        held = fold_of == fold
        test = (Y[:, held] == 1).any(axis=1)
        found.append(EpitopeFold(held, ~np.isin(clusters, clusters[test]), test))
    return found


def leave_epitope_out(
    letters: pd.DataFrame,
    Y: np.ndarray,
    peptides: Sequence[str],
    scorers: Mapping[str, Scorer],
    folds: int = 5,
    seed: int = 1,
) -> pd.DataFrame:
    """A row for each peptide and scorer: fold, peptide, model, positives, negatives, auroc, auc01.

    Args:
        Y: int8 (n, K): 1, 0 or -1 (unknown). A peptide without both labels among the tested receptors has no row.
    """
    peptides, rows = peptides_of(peptides), []
    for number, fold in enumerate(epitope_folds(letters, Y, peptides, folds, seed)):
        known = Y[fold.train][:, ~fold.held]
        taught = (known == 1).any(axis=0) & (known == 0).any(axis=0)
        seen = [peptide for peptide, held in zip(peptides, fold.held) if not held]
        learned = letters[fold.train], known[:, taught], [p for p, there in zip(seen, taught) if there]
        sought = [peptide for peptide, held in zip(peptides, fold.held) if held]
        truth = Y[fold.test][:, fold.held]
        for name, scorer in scorers.items():
            scores = scorer(*learned, letters[fold.test], sought)
            for peptide, y, s in zip(sought, truth.T, scores.T):
                place = {"fold": number, "peptide": peptide, "model": name}
                rows += [place | measured for measured in [measure(y, s)] if measured]
            logger.info("fold %d of %d, %s: %d peptides left out", number + 1, folds, name, len(sought))
    return pd.DataFrame(rows)


def measure(y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """How scores (m,) rank who binds, y (m,) of 1, 0 and -1 (unknown); nothing where one label alone is there."""
    known = (y >= 0) & ~np.isnan(scores)
    is_one, scores = y[known] == 1, scores[known]
    if is_one.all() or not is_one.any():
        return {}
    values = weighted_metrics(is_one, scores, scores > 0, np.ones((len(scores), 1)))
    counts = {"positives": int(is_one.sum()), "negatives": int((~is_one).sum())}
    return counts | {name: float(values[name][0]) for name in MEASURES}


def over_epitopes(table: pd.DataFrame, seed: int = 1, resamples: int = 2000) -> pd.DataFrame:
    """Of each model of ``leave_epitope_out``: the number of peptides, and of each measure the mean over these.

    ``<measure>_low`` and ``_high``: 2.5 % and 97.5 % of means over peptides drawn with replacement.
    """
    rows = []
    for name, own in table.groupby("model", sort=False):
        row = {"model": name, "peptides": len(own)}
        for what in MEASURES:
            by_class = np.repeat(own[what].to_numpy()[:, None], 1 + resamples, axis=1)
            found = macro_interval(by_class, seed)
            row |= {what: found["value"], f"{what}_low": found["low"], f"{what}_high": found["high"]}
        rows.append(row)
    return pd.DataFrame(rows)


# ---------------------------------------------------------------------------------------------------- who is judged


def network(**settings) -> Scorer:
    """``ReceptorPeptideClassifier`` with these settings; it stops by peptides held out, unless they say otherwise."""

    def score(letters, Y, peptides, asked, sought) -> np.ndarray:
        model = ReceptorPeptideClassifier(peptides, **{"hold_out": "peptides"} | settings).fit(letters, Y)
        return model.score(asked, sought)

    return score


def shortcuts(**settings) -> dict[str, Scorer]:
    """What needs no understanding of a peptide; ``settings`` are those of the two networks."""
    return {
        "receptor_alone": network(**settings, sees="receptor"),
        "peptide_alone": network(**settings, sees="peptide"),
        "nearest_receptor": nearest_receptor,
        "peptide_similarity": peptide_similarity,
    }


def nearest_receptor(letters, Y, peptides, asked, sought) -> np.ndarray:
    """How near a training receptor is that binds any peptide, by TCRdist: the same for every peptide."""
    binds = (Y == 1).any(axis=1)
    near = LoopDistance().matrix(asked, letters[binds]).min(axis=1)
    return np.repeat(-near.astype(np.float64)[:, None], len(sought), axis=1)


def peptide_similarity(letters, Y, peptides, asked, sought) -> np.ndarray:
    """The best, over peptides of training, of: how alike the peptides are, times how near a receptor of it is.

    Alike: the share of residues that no edit changes. Near: exp(-d / h) of the TCRdist d to its nearest receptor, h a
    tenth of the usual distance.
    """
    distances = LoopDistance().matrix(asked, letters)
    width = _NARROW * max(float(np.median(distances)), 1e-9)
    nearest = np.stack([distances[:, y == 1].min(axis=1) for y in Y.T], axis=1)  # (m, K)
    similarity = cdist(sought, peptides, scorer=Levenshtein.normalized_similarity)  # (H, K)
    logs = np.log(np.maximum(similarity, 1e-3))[None] - nearest[:, None] / width  # (m, H, K)
    return logs.max(axis=2).astype(np.float64)


def score_peptides(estimator, letters: pd.DataFrame, peptides: Sequence[str]) -> np.ndarray:
    """Log-odds of any ``peptides``, float64 (m, P), by the fitted estimator of a classifier of kind receptor_peptide.

    estimator: as ``persistence.load_model(folder).estimator`` has it, or a stack of which it is a member, whose other
    members are then not asked. Raises ``UserError`` where there is no such network.
    """
    for member in [estimator, *getattr(estimator, "members_", [])]:
        steps = member if isinstance(member, Pipeline) else Pipeline([("classify", member)])
        if isinstance(steps[-1], ReceptorPeptideClassifier):
            return steps[-1].score(steps[:-1].transform(letters) if len(steps) > 1 else letters, peptides)
    raise UserError(f"a {type(estimator).__name__} reads no peptides: it is not of kind receptor_peptide")
