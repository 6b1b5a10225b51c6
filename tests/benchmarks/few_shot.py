"""Few-shot benchmark: telling receptors of an epitope by 1 to 100 known ones, on the data that AIRRFORMER_DATA names.

    AIRRFORMER_DATA=FOLDER python tests/benchmarks/few_shot.py [--encoder NAME_OR_DIR ...] [--seed 1] [--draws 5]

Receptors are those of IEDB with both chains (`iedb_paired_tcr`, without what was seen in 10x data alone) and what binds
in the training files of IMMREP22 (`immrep22`), read by airrformer's own parser: one each of V genes and CDR3s (the J
gene is missing in part and told by the CDR3). One known for several epitopes binds each of them. The epitopes are the
twelve with the most receptors, at least 180. Of each, n receptors are drawn as references; every other receptor is
scored by them, and the AUROC is that of the epitope's others against all receptors that are not known to bind it. All
methods see the same draws; the references of a draw are the first n of one order, for every n.

Distances: edits over the six CDRs; TCRdist; TCRdist with genes and less weight on CDR3, in which the nearer of the two
chains counts more; BLOSUM62 over whole CDRs, likewise; SCEPTR, if it is installed (`pip install
airrformer[benchmarks]`; V genes that it does not know are missing to it); and the vectors of each `--encoder`, by
cosine. Scores:

    nearest  the distance to the nearest reference
    mean     the mean of exp(-d / h) over the references, h being a tenth of the median distance to the background
    ratio    the log of that mean, less the log of the same mean over the background: receptors of controls, unlabelled
             (`tcr_controls_paired`), in whose midst a near reference tells little

and sums: of standardised distances (nearest), of log ratios (ratio). No score is fitted to other labels than the
references', but the weights of chains and genes and the tenth were chosen by a look at these same epitopes, in two
halves; on either half nearby values do as well. It prints the mean AUROC over epitopes and draws with the standard
deviation over epitopes, and how far each method is ahead of SCEPTR's nearest reference (without it, TCRdist's), with a
95 % bootstrap interval over epitopes. Some two minutes of CPU time, 1.5 GB.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

import airrformer as af
from airrformer.config import Dataset
from airrformer.parse import parse_input
from airrformer.receptors.loops import LoopDistance, receptor_letters

CHAINS = ("TRA", "TRB")
EPITOPES = 12
REFERENCES = (1, 2, 5, 10, 20, 50, 100)
BACKGROUND = 5_000  # receptors drawn from the controls
BANDWIDTH = 0.1  # of the median distance to the background
IEDB = ["Peptide", "Va", "Ja", "CDR3a_extended", "Vb", "Jb", "CDR3b_extended"]
IMMREP22 = ["epitope", "TRAV", "TRAJ", "TRA_CDR3", "TRBV", "TRBJ", "TRB_CDR3"]
PARTS = {"v_call": "V", "j_call": "J", "junction_aa": "_CDR3"}
LOOPS = {
    "edit distance": LoopDistance(cost="edit", weights=(1, 1, 1), trim=False),
    "TCRdist": LoopDistance(),
    "TCRdist + genes": LoopDistance(weights=(1, 1, 2), place="centre", smaller=0.67, v_gene=16, j_gene=10),
    "BLOSUM62 loops": LoopDistance(cost="blosum", weights=(1, 1, 1), trim=False, place="centre", smaller=0.65),
}
OURS = "TCRdist + genes"  # half the log ratio of SCEPTR, or of an encoder, is added to its own
PUBLISHED = [
    ("SCEPTR, nearest", "0.720", "0.784"),
    ("TCRdist, nearest", "0.709", "0.768"),
    ("SCEPTR + TCRdist, nearest", "0.723", "0.783"),
    ("SCEPTR, mean", "0.726", "0.788"),
    ("aim", "0.74", "0.81"),
]

Scorer = Callable[[np.ndarray], np.ndarray]  # positions of references -> scores of all receptors


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--encoder", nargs="+", default=[], metavar="NAME_OR_DIR", help="what airrformer.load takes")
    arguments.add_argument("--seed", type=int, default=1, help="of the draws, the background and the bootstrap")
    arguments.add_argument("--draws", type=int, default=5)
    given = arguments.parse_args()
    folder = Path(os.environ["AIRRFORMER_DATA"])
    receptors, epitopes = read_receptors(folder)
    background = read_background(folder, receptors, given.seed)
    counts = epitopes.explode().value_counts()
    names = counts.index[:EPITOPES]
    is_of = np.array([[name in known for name in names] for known in epitopes])
    print(f"{len(receptors):,} receptors of {len(counts)} epitopes, {len(background):,} of the background")
    print("receptors of an epitope:", ", ".join(f"{name} {count}" for name, count in counts[:EPITOPES].items()))
    distances, seconds = {}, {}
    for name, make in sources(given.encoder).items():
        started = time.process_time()
        distances[name] = make(receptors, background)
        seconds[name] = time.process_time() - started
    found = {name: judge(scorer, is_of, given.seed, given.draws) for name, scorer in scorers(distances).items()}
    show("Measured elsewhere, and the aim", [dict(zip(("method", "10", "100"), row)) for row in PUBLISHED])
    rows = [
        {"method": name}
        | {str(n): f"{table[i].mean():.3f} ± {table[i].std(ddof=1):.2f}" for i, n in enumerate(REFERENCES)}
        for name, table in found.items()
    ]
    show("AUROC by references, mean ± standard deviation over epitopes", rows)
    first = "SCEPTR, nearest" if "SCEPTR" in distances else "TCRdist, nearest"
    show(f"Ahead of {first}, on the same draws", ahead(found, first, given.seed))
    show("CPU seconds for all distances", [{"distance": name, "seconds": round(s, 1)} for name, s in seconds.items()])


def show(title: str, rows: list[dict]) -> None:
    """A table in Markdown."""
    table = pd.DataFrame(rows)
    print(f"\n{title}\n\n| {' | '.join(table)} |\n|{' --- |' * len(table.columns)}")
    for row in table.itertuples(index=False):
        print(f"| {' | '.join(map(str, row))} |")


# ----------------------------------------------------------------------------------------------------- the receptors


def read_receptors(folder: Path) -> tuple[pd.DataFrame, pd.Series]:
    """Letters (see ``read_table``) of the receptors and, in the same order, the epitopes of each, a set."""
    iedb = pd.read_csv(folder / "iedb_paired_tcr" / "immrep_IEDB.filtered.csv.gz")
    tables = [iedb.loc[~iedb["just_10X"], IEDB].set_axis(IMMREP22, axis=1).replace("unknown", "")]
    for file in sorted((folder / "immrep22" / "train").glob("*.tsv.gz")):
        rows = pd.read_csv(file, sep="\t").assign(epitope=file.name.split(".")[0])
        tables.append(rows.loc[rows["Label"] == 1, IMMREP22])
    table = pd.concat(tables, ignore_index=True)
    table["receptor_id"] = [f"{i}" for i in range(len(table))]
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "receptors.tsv"
        table.to_csv(path, sep="\t", index=False)
        letters = read_table(path, receptor_id="receptor_id")
    print(f"{len(table):,} rows, {len(table) - len(letters)} of them without a J gene or a chain that can be told")
    epitopes = table["epitope"][letters.index.astype(int)].groupby(keys(letters).to_numpy(), sort=False).agg(set)
    return letters[~keys(letters).duplicated()].reset_index(drop=True), epitopes


def read_background(folder: Path, receptors: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Letters of control receptors, those that are among ``receptors`` left out."""
    letters = read_table(folder / "tcr_controls_paired" / "controls_paired.tsv.gz")
    others = letters[~keys(letters).duplicated() & ~keys(letters).isin(keys(receptors))]
    return others.sample(BACKGROUND, random_state=seed).reset_index(drop=True)


def read_table(path: Path, **columns: str) -> pd.DataFrame:
    """``receptor_letters`` of the rows that have both chains, by id; and ``<chain>_junction``."""
    columns |= {f"{chain}.{ours}": f"{chain}{theirs}" for chain in CHAINS for ours, theirs in PARTS.items()}
    dataset = Dataset(sequences=str(path), columns=columns, receptor="TCR", chains=list(CHAINS), alleles="gene")
    parsed = parse_input(path, dataset)
    letters = receptor_letters(parsed.receptor_ids, parsed.chains, CHAINS).set_index(pd.Index(parsed.receptor_ids))
    for chain in CHAINS:
        rows = parsed.chains[parsed.chains["chain"] == chain].set_index("receptor_id")
        letters[f"{chain}_junction"] = rows["junction_aa"]
    return letters


def keys(letters: pd.DataFrame) -> pd.Series:
    """V genes and CDR3s: what makes a receptor the same."""
    return letters["TRA_v"] + "," + letters["TRA_cdr3"] + "," + letters["TRB_v"] + "," + letters["TRB_cdr3"]


# ----------------------------------------------------------------------------------------------------- the distances

Distances = tuple[np.ndarray, np.ndarray]  # between receptors, (n, n), and to the background, (n, m), float32


def sources(encoders: list[str]) -> dict[str, Callable[[pd.DataFrame, pd.DataFrame], Distances]]:
    found = {name: by_loops(loops) for name, loops in LOOPS.items()}
    try:
        import sceptr  # noqa: F401
    except ImportError:
        print("SCEPTR is not installed and left out: pip install airrformer[benchmarks]")
    else:
        found["SCEPTR"] = by_vectors(sceptr_vectors)
    for name in encoders:
        found[name] = by_vectors(partial(encoder_vectors, af.load(name)))
    return found


def by_loops(loops: LoopDistance) -> Callable[[pd.DataFrame, pd.DataFrame], Distances]:
    return lambda receptors, background: (loops.matrix(receptors, receptors), loops.matrix(receptors, background))


def by_vectors(vectors: Callable[[pd.DataFrame], np.ndarray]) -> Callable[[pd.DataFrame, pd.DataFrame], Distances]:
    """Cosine distances."""

    def make(receptors: pd.DataFrame, background: pd.DataFrame) -> Distances:
        left, right = unit(vectors(receptors)), unit(vectors(background))
        return np.maximum(1 - left @ left.T, 0), np.maximum(1 - left @ right.T, 0)

    return make


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def encoder_vectors(encoder, letters: pd.DataFrame) -> np.ndarray:
    """float32 (n, D): of encoders that read pairs their loops, else the mean vector of each chain, side by side."""
    if encoder.config.pairs:
        loops = [
            letters[[f"{chain}_{loop}" for loop in ("cdr1", "cdr2", "cdr3")]].agg("|".join, axis=1) for chain in CHAINS
        ]
        return encoder.embed(list(zip(*loops)), pooling="loops", loci=[CHAINS] * len(letters))
    found = []
    for chain in CHAINS:
        of, sequences = pd.factorize(letters[f"{chain}_sequence"])
        found.append(unit(encoder.embed(list(sequences)))[of])
    return np.hstack(found)


def sceptr_vectors(letters: pd.DataFrame) -> np.ndarray:
    import sceptr
    from libtcrlm.schema import tcr

    logging.getLogger("libtcrlm").setLevel(logging.ERROR)  # a line for each junction without C or F
    table = {}
    for chain, known in zip(CHAINS, (tcr.TravGene, tcr.TrbvGene)):
        genes = letters[f"{chain}_v"].str.split(",").str[0]
        table[f"{chain}V"] = genes.where(genes.isin(known.__members__), None)
        table[f"CDR3{chain[-1]}"] = letters[f"{chain}_junction"]
        table[f"{chain}J"] = letters[f"{chain}_j"].replace("", None)
    return sceptr.calc_vector_representations(pd.DataFrame(table))


# -------------------------------------------------------------------------------------------------------- the scores


def scorers(distances: dict[str, Distances]) -> dict[str, Scorer]:
    """All methods by name."""
    found: dict[str, Scorer] = {}
    for name, (between, others) in distances.items():
        found[f"{name}, nearest"] = nearest(between)
        found[f"{name}, mean"] = log_kernel(between, others)
        found[f"{name}, ratio"] = log_kernel(between, others, ratio=True)
    learned = [name for name in distances if name not in LOOPS]
    for name in learned:
        found[f"{name} + TCRdist, nearest"] = nearest(sum(standardised(distances[d][0]) for d in (name, "TCRdist")))
        found[f"{OURS} + {name}, ratio"] = half_added(found[f"{OURS}, ratio"], found[f"{name}, ratio"])
    return found


def nearest(between: np.ndarray) -> Scorer:
    return lambda references: -between[:, references].min(axis=1)


def log_kernel(between: np.ndarray, others: np.ndarray, ratio: bool = False) -> Scorer:
    width = np.float32(BANDWIDTH * np.median(others))
    usual = log_mean(others, width) if ratio else 0
    return lambda references: log_mean(between[:, references], width) - usual


def log_mean(distances: np.ndarray, width: np.float32) -> np.ndarray:
    least = distances.min(axis=1)  # taken out, so that nothing is 0 for all
    return np.log(np.exp((least[:, None] - distances) / width).mean(axis=1)) - least / width


def standardised(between: np.ndarray) -> np.ndarray:
    return (between - between.mean()) / between.std()


def half_added(ours: Scorer, other: Scorer) -> Scorer:
    return lambda references: ours(references) + other(references) / 2


# ------------------------------------------------------------------------------------------------------- the judging


def judge(scorer: Scorer, is_of: np.ndarray, seed: int, draws: int) -> np.ndarray:
    """AUROC, mean over draws, float64 (len(REFERENCES), epitopes). ``is_of`` is bool (n, epitopes)."""
    found = np.zeros((len(REFERENCES), is_of.shape[1], draws))
    for epitope, y in enumerate(is_of.T):
        for draw in range(draws):
            order = np.random.default_rng([seed, epitope, draw]).permutation(np.flatnonzero(y))
            for i, n in enumerate(REFERENCES):
                asked = np.ones(len(y), dtype=bool)
                asked[order[:n]] = False
                found[i, epitope, draw] = auroc(y[asked], scorer(order[:n])[asked])
    return found.mean(axis=2)


def auroc(y: np.ndarray, scores: np.ndarray) -> float:
    positives = y.sum()
    return (rankdata(scores)[y].sum() - positives * (positives + 1) / 2) / (positives * (len(y) - positives))


def ahead(found: dict[str, np.ndarray], first: str, seed: int) -> list[dict]:
    epitopes = next(iter(found.values())).shape[1]
    some = np.random.default_rng(seed).integers(epitopes, size=(2_000, epitopes))
    rows = []
    for name in found:
        if name != first:
            differences = found[name] - found[first]
            low, high = np.percentile(differences[:, some].mean(axis=2), (2.5, 97.5), axis=1)
            cells = zip(REFERENCES, differences.mean(axis=1), low, high)
            rows.append({"method": name} | {str(n): f"{d:+.3f} [{a:+.3f}, {b:+.3f}]" for n, d, a, b in cells})
    return rows


if __name__ == "__main__":
    sys.exit(main())
