"""Does a likely loop bind? Scores that nobody trained, against the mutational scan of trastuzumab's CDRH3.

    AIRRFORMER_DATA=FOLDER python tests/benchmarks/likelihood.py [--encoder airrformer-mini antiberty] [--loops 300]

Each loop stands in the parent's VH. Three scores by each encoder, without any label: the single mutations, whose log
odds against the parent's residue are added up (one reading for each of the ten places, all loops share them; Meier et
al. 2021); the pseudo-log-likelihood of the ten places, each hidden in turn; and how many residues differ from the
parent. Beside them a model of counts: a product of letters by place, of the loops of the other half. The AUROC for
binders, with a bootstrap interval, and Spearman's correlation with the share of binders at each single mutation.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
from Bio import SeqIO
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

import airrformer as af
from airrformer.core.alphabet import AMINO_ACIDS

PARENT = "WGGDGFYAMD"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--encoder", nargs="+", default=["airrformer-mini", "antiberty"], metavar="NAME_OR_DIR")
    arguments.add_argument("--loops", type=int, default=300, help="how many have a pseudo-log-likelihood each")
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    folder = Path(os.environ["AIRRFORMER_DATA"]) / "trastuzumab_dms"
    scan = pd.read_csv(folder / "mHER_H3_train80.csv.gz").groupby("AASeq", sort=True)["AgClass"].max()
    loops, binds = scan.index.to_numpy(), scan.to_numpy()
    codes = np.array([[AMINO_ACIDS.index(letter) for letter in loop] for loop in loops])
    vh = next(
        str(record.seq) for record in SeqIO.parse(folder / "trastuzumab_parent.fasta", "fasta") if PARENT in record
    )
    start = vh.index(PARENT)
    some = np.random.default_rng(given.seed).permutation(len(loops))[: given.loops]
    print(f"{len(loops):,} loops, {binds.mean():.0%} bind; {len(some)} of them also read one by one\n")

    rows = [row("residues that are the parent's", binds, (codes == [AMINO_ACIDS.index(a) for a in PARENT]).sum(1), 0.0)]
    half = np.arange(len(loops)) % 2 == 0
    counts = np.stack([np.bincount(place, minlength=20) for place in codes[half & (binds == 1)].T]) + 1.0
    rows.append(row("counts of binders by place (other half)", binds[~half], added(np.log(counts), codes[~half]), 0.0))
    for name in given.encoder:
        encoder = af.load(name)
        began = time.process_time()
        profile = np.log(encoder.masked_profile(vh, range(start, start + len(PARENT))))  # (10, 20)
        rows.append(
            row(f"{name}: single mutations", binds, added(profile, codes), time.process_time() - began, profile, codes)
        )
        began = time.process_time()
        found = [
            added(np.log(encoder.masked_profile(with_loop(vh, loop), range(start, start + len(PARENT)))), codes[[i]])[0]
            for i, loop in zip(some, loops[some])
        ]
        rows.append(row(f"{name}: pseudo-log-likelihood", binds[some], np.array(found), time.process_time() - began))
    print("| score | loops | AUROC [95 %] | Spearman with each mutation's binders | CPU seconds |\n|" + " --- |" * 5)
    print("\n".join(rows))


def with_loop(vh: str, loop: str) -> str:
    return vh.replace(PARENT, loop)


def added(profile: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The sum over the places of what ``profile`` (10, 20) says of each loop's residue."""
    return profile[np.arange(codes.shape[1]), codes].sum(axis=1)


def row(name: str, binds: np.ndarray, scores: np.ndarray, seconds: float, profile=None, codes=None) -> str:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(200):
        drawn = rng.integers(len(binds), size=len(binds))
        if 0 < binds[drawn].mean() < 1:
            found.append(roc_auc_score(binds[drawn], scores[drawn]))
    low, high = np.percentile(found, (2.5, 97.5))
    correlation = ""
    if profile is not None:
        seen = [
            (place, letter) for place in range(10) for letter in range(20) if (codes[:, place] == letter).sum() >= 20
        ]
        share = [binds[codes[:, place] == letter].mean() for place, letter in seen]
        correlation = f"{spearmanr(share, [profile[at] for at in seen])[0]:.2f} ({len(seen)} mutations)"
    auroc = roc_auc_score(binds, scores)
    return f"| {name} | {len(binds):,} | {auroc:.3f} [{low:.3f}, {high:.3f}] | {correlation} | {seconds:.0f} |"


if __name__ == "__main__":
    main()
