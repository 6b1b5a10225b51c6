"""Receptor and peptide: epitopes that are seen in training and epitopes that are not, on the data of AIRRFORMER_DATA.

    AIRRFORMER_DATA=FOLDER python tests/benchmarks/peptides.py [--form joint] [--looks both] [--folds 5] [--models 1]

Receptors and epitopes are those of few_shot.py (IEDB without what was seen in 10x data alone, and what binds in the
training files of IMMREP22), of epitopes with at least `--least` receptors. Negatives of an epitope are the receptors of
the others. Two tables, never mixed:

    seen     receptors are left out, those that differ by one edit of their CDR3s or less together: the network, ratios
             of densities by TCRdist (two bandwidths) and a stack of these, the nearest receptor by TCRdist, and the
             network with each of the densities: the sum, each standardised by epitope over the receptors tested
    unseen   epitopes are left out, those within three edits together, with all receptors that bind them and those alike
             (airrformer.classify.peptides); beside the network what needs no understanding of a peptide

AUROC and AUC0.1 (scikit-learn's roc_auc_score(max_fpr=0.1)), the mean over epitopes with a 95 % bootstrap interval over
epitopes; 0.5 is chance. `--most N` draws N receptors of an epitope that has more, for a quicker look.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from few_shot import read_receptors, show

from airrformer.classify.kernels import DensityStack, KernelDensityRatio
from airrformer.classify.peptides import MEASURES, leave_epitope_out, measure, network, over_epitopes, shortcuts
from airrformer.classify.receptor_peptide import ReceptorPeptideClassifier, alike, peptides_of
from airrformer.receptors.loops import LoopDistance
from airrformer.receptors.splits import deal

Predictor = Callable[[pd.DataFrame, np.ndarray, pd.DataFrame], np.ndarray]
LOOPS = [f"{chain}_cdr{i}" for chain in ("TRA", "TRB") for i in (1, 2, 3)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--form", choices=("cross", "joint"), default="cross")
    arguments.add_argument("--looks", choices=("receptor", "peptide", "both"), default="peptide")
    arguments.add_argument("--models", type=int, default=1, help="networks that are averaged")
    arguments.add_argument("--epochs", type=int, default=40)
    arguments.add_argument("--folds", type=int, default=5)
    arguments.add_argument("--least", type=int, default=10, help="receptors of an epitope")
    arguments.add_argument("--most", type=int, help="receptors of an epitope, drawn where there are more")
    arguments.add_argument("--seed", type=int, default=1, help="of folds, networks, draws and the bootstrap")
    arguments.add_argument("--only", choices=("seen", "unseen"))
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    letters, peptides, Y = read(Path(os.environ["AIRRFORMER_DATA"]), given.least, given.most, given.seed)
    print(f"{len(letters):,} receptors, {len(peptides)} epitopes with {given.least} or more of them")
    settings = {"form": given.form, "looks": given.looks, "n_models": given.models, "max_epochs": given.epochs}
    settings |= {"random_state": given.seed}
    if given.only != "unseen":
        started = time.process_time()
        table = seen(letters, peptides, Y, settings, given.folds, given.seed)
        show("Seen epitopes, receptors left out", cells(over_epitopes(table, given.seed)))
        print(f"\n{time.process_time() - started:.0f} CPU seconds")
    if given.only != "seen":
        started = time.process_time()
        scorers = {"network": network(**settings)} | shortcuts(**settings)
        table = leave_epitope_out(letters, Y, peptides, scorers, given.folds, given.seed)
        show("Unseen epitopes, next to chance (0.5)", cells(over_epitopes(table, given.seed)))
        print(f"\n{time.process_time() - started:.0f} CPU seconds")


def read(folder: Path, least: int, most: int | None, seed: int) -> tuple[pd.DataFrame, list[str], np.ndarray]:
    """Letters (n,), peptides and Y int8 (n, K): who binds, 1 or 0. Of peptides with ``least`` to ``most`` receptors."""
    letters, epitopes = read_receptors(folder)
    counts = epitopes.explode().value_counts()
    peptides = sorted(peptides_of(counts.index[counts >= least].tolist()))
    Y = np.array([[peptide in known for peptide in peptides] for known in epitopes], dtype=np.int8)
    rank = np.random.default_rng(seed).permutation(len(Y))
    taken = [np.flatnonzero(y)[np.argsort(rank[y == 1])][:most] for y in Y.T]
    some = np.unique(np.concatenate(taken))
    return letters.iloc[some].reset_index(drop=True), peptides, Y[some]


def seen(letters, peptides: list[str], Y: np.ndarray, settings: dict, folds: int, seed: int) -> pd.DataFrame:
    """A row for each epitope and model, the measures averaged over the folds."""
    groups = alike([letters[name].tolist() for name in LOOPS], LOOPS)
    fold_of = deal([f"{group}" for group in groups], Y == 1, folds, seed, "cluster")
    rows = []
    for fold in range(folds):
        test = fold_of == fold
        scores = {name: one(letters[~test], Y[~test], letters[test]) for name, one in predictors(peptides, settings)}
        for ratio in [name for name in scores if name.startswith("density")]:
            scores[f"network + {ratio}"] = standardised(scores["network"]) + standardised(scores[ratio])
        for name, values in scores.items():
            for peptide, y, s in zip(peptides, Y[test].T, values.T):
                rows += [{"model": name, "peptide": peptide} | found for found in [measure(y, s)] if found]
        logging.info("seen, fold %d of %d: %s", fold + 1, folds, in_short(rows))
    return pd.DataFrame(rows).groupby(["model", "peptide"], sort=False)[list(MEASURES)].mean().reset_index()


def in_short(rows: list[dict]) -> str:
    means = pd.DataFrame(rows).groupby("model", sort=False)[list(MEASURES)].mean()
    return "; ".join(f"{name} {a:.3f} / {b:.3f}" for name, a, b in means.itertuples())


def predictors(peptides: list[str], settings: dict) -> list[tuple[str, Predictor]]:
    def pairs(letters, Y, asked):
        return ReceptorPeptideClassifier(peptides, **settings).fit(letters, Y).score(asked, peptides)

    def density(bandwidth):
        options = {"smaller": 0.65}
        return lambda letters, Y, asked: (
            KernelDensityRatio(bandwidth, options=options).fit(letters, Y).decision_function(asked)
        )

    def nearest(letters, Y, asked):
        distances = LoopDistance().matrix(asked, letters)
        return np.stack([-distances[:, y == 1].min(axis=1) for y in Y.T], axis=1).astype(np.float64)

    def stacked(letters, Y, asked):
        return DensityStack(options={"smaller": 0.65}).fit(letters, Y).decision_function(asked)

    named = [("network", pairs), ("density ratio 0.13", density(0.13)), ("density ratio 0.075", density(0.075))]
    return [*named, ("density stack", stacked), ("nearest, TCRdist", nearest)]


def standardised(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean(axis=0)) / np.maximum(scores.std(axis=0), 1e-9)


def cells(table: pd.DataFrame) -> list[dict]:
    return [
        {"model": row["model"], "epitopes": row["peptides"]}
        | {what: f"{row[what]:.3f} [{row[f'{what}_low']:.3f}, {row[f'{what}_high']:.3f}]" for what in MEASURES}
        for row in table.to_dict("records")
    ]


if __name__ == "__main__":
    sys.exit(main())
