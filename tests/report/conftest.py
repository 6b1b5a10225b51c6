"""A small results tree as the stages write it: two data sets, five encoders of which one was skipped, nasty rejects."""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd
import pytest

from airrformer.config import Config, Target, load_config
from airrformer.paths import Results, write_json
from airrformer.receptors.tables import write_table
from airrformer.report.read import read_json

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
CHAIN = "GITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYYSQIVNDFQKGDIAEGYSVSREKKESFPLTVTSAQKNPTAFYLCASSIRSSYEQYFGPGTRLTVT"
CLASSES = {
    "sars2_tcr": ["YLQPRTFLL", "SPRWYFYYL", "HTTDPSFLGRY", "NYNYLYRLF", "KTFPPTEPK", "FPPTSFGPL"],
    "bnab": ["V2 apex", "CD4 binding site", "V3 glycan"],
}
RECEPTORS = {"sars2_tcr": 300, "bnab": 90}
# How well each encoder does at random, and what it loses by cluster and by group.
SKILL = {
    "scratch": (0.9, 0.12, 0.25),
    "antiberty": (1.5, 0.5, 1.2),
    "blosum62": (0.75, 0.1, 0.2),
    "kmer": (1.1, 0.2, 0.3),
}
# What is beside the models: kind, what it reads, how well it does.
BASELINES = {
    "class_only": ("shortcut", "how common a class is", (0.0, 0.0, 0.0)),
    "genes_only": ("shortcut", "V and J genes", (1.4, 0.3, 1.1)),
    "kmers": ("strong", "3-mers of the CDR3s and the genes, logistic regression", (1.3, 0.3, 0.4)),
    "untrained": ("strong", "mean vectors of an encoder with random weights, logistic regression", (0.3, 0.1, 0.1)),
}
LEAKAGE = {"random": (9, 41, 77), "cluster": (0, 0, 12), "group": (2, 17, 40)}
NASTY = "<script>alert('x')</script>&\"]]>"
SKIPPED = (
    "esm2_t6_8M_UR50D: no weights found and none could be downloaded; put esm2_t6_8M_UR50D.pt into "
    "~/.cache/torch/hub/checkpoints and run again"
)


def demo_config() -> Config:
    return load_config(
        {
            "datasets": {
                "sars2_tcr": {
                    "sequences": "data/sars2_tcr.fasta.gz",
                    "receptor": "TCR",
                    "chains": ["TRB"],
                    "labels": {"path": "data/sars2_tcr.labels.tsv", "classes": CLASSES["sars2_tcr"]},
                    "groups": {"donor": "subject_id"},
                },
                "bnab": {
                    "sequences": ["data/bnab.heavy.fasta.gz", "data/bnab.light.fasta.gz"],
                    "receptor": "antibody",
                    "chains": ["heavy", "light"],
                    "labels": {"path": "data/bnab.labels.tsv"},
                    "groups": {"lineage": "lineage"},
                },
            },
            "encoders": {
                "scratch": {"kind": "pretrain", "corpus": ["sars2_tcr", "bnab"]},
                "antiberty": {"kind": "antiberty"},
                "esm2_8m": {"kind": "esm2", "name": "esm2_t6_8M_UR50D", "if_unreachable": "skip"},
                "blosum62": {"kind": "blosum62"},
                "kmer": {"kind": "kmer"},
            },
            "poolings": {
                "mean": {"kind": "mean"},
                "cdr3": {"kind": "mean", "region": "cdr3"},
                "counts": {"kind": "counts"},
            },
            "classifiers": {"logistic": {"kind": "logistic_regression"}, "knn": {"kind": "k_nearest_neighbors"}},
            "report": {
                "title": "Binding of SARS-CoV-2 TCRs and HIV antibodies",
                "masked_example": {"name": "a TRBV19 chain", "sequence": CHAIN, "region": "CASSIRSSYEQYF"},
            },
        }
    )


def build_results(root, config: Config | None = None) -> tuple[Config, Results]:
    """Write the tree below ``root`` and return the config that it belongs to."""
    config, results = config or demo_config(), Results(root)
    for name in config.datasets:
        _dataset(results, name)
    for target in config.expand_targets():
        if target.encoder in SKILL:
            _target(config, results, target)
    for name in config.datasets:
        _baselines(config, results, name)
    _encoders(results)
    return config, results


@pytest.fixture(scope="session")
def _built(tmp_path_factory):
    return build_results(tmp_path_factory.mktemp("report") / "results")


@pytest.fixture
def config(_built) -> Config:
    return _built[0]


@pytest.fixture
def results(_built) -> Results:
    """Shared by the tests: copy it before changing a file."""
    return _built[1]


def _random(*key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def _labels(name: str) -> tuple[list[str], np.ndarray]:
    n, classes = RECEPTORS[name], CLASSES[name]
    share = np.linspace(1.6, 0.4, len(classes))
    labels = _random(name).choice(classes, n, p=share / share.sum())
    return [f"{name}_{i:04d}" for i in range(n)], labels


def _dataset(results: Results, name: str) -> None:
    ids, labels = _labels(name)
    rejected = pd.DataFrame(
        [
            ("data/a.fasta", 12, f"bad_{NASTY}", "stop codon inside the V domain", "CASS*" + "L" * 200),
            ("data/a.fasta", 40, "bad_2", "stop codon inside the V domain", "CAS*F"),
            ("data/a.fasta", 41, "bad_3", f"residue {NASTY} is no amino acid", NASTY),
        ],
        columns=["file", "line", "id", "reason", "value"],
    )
    write_table(rejected, results.rejected(name))
    write_json(
        results.parse_summary(name),
        {
            "version": 1,
            "files": [f"data/{name}.fasta.gz"],
            "molecule": "nucleotide" if name == "bnab" else "protein",
            "records": len(ids) + 3,
            "chains": len(ids),
            "receptors": len(ids),
            "rejected": {reason: int(n) for reason, n in rejected["reason"].value_counts().items()},
            "notes": [f"read {len(ids) + 3} records; {NASTY}"],
            "labels": {"rows": len(ids) + 2, "matched": len(ids), "unmatched": 2, "examples": ["donor9_x", NASTY]},
            "classes": {c: int((labels == c).sum()) for c in CLASSES[name]},
            "numbered": {"by": {"genes": len(ids) - 4, "numbering": 3, "cdr3_only": 0, "none": 1}},
        },
    )
    genes = _random("genes", name).choice([f"TRBV{k}*01" for k in (2, 5, 6, 7, 12, 19, 20, 27, 28)], len(ids))
    chain = "TRB" if name == "sars2_tcr" else "heavy"
    write_table(pd.DataFrame({"receptor_id": ids, "chain": chain, "v_call": genes}), results.chains(name))


def _scores(labels: np.ndarray, rng: np.random.Generator, skill: float) -> np.ndarray:
    return 1 / (1 + np.exp(-(skill * labels + rng.normal(size=len(labels)) - 1.5)))


def _estimate(metric, labels, scores) -> dict:
    """The metric with an interval of a likely width: a bootstrap would take longer than all the tests."""
    if len(np.unique(labels)) < 2:
        return {"value": None, "low": None, "high": None}
    value, half = float(metric(labels, scores)), 0.5 / labels.sum() ** 0.5
    return {"value": value, "low": value - half, "high": min(1.0, value + half)}


def _auroc(labels: np.ndarray, scores: np.ndarray) -> float:
    ranks, positives = scores.argsort(kind="stable").argsort() + 1, labels.sum()
    return (ranks[labels == 1].sum() - positives * (positives + 1) / 2) / positives / (len(labels) - positives)


def _auprc(labels: np.ndarray, scores: np.ndarray) -> float:
    hits = labels[(-scores).argsort(kind="stable")]
    return (hits.cumsum() / np.arange(1, len(hits) + 1))[hits == 1].mean()


# Plain numpy, as a thousand calls of scikit-learn take longer than all the tests; no ties are looked after.
METRICS = {
    "auroc": _auroc,
    "auprc": _auprc,
    "auc01": lambda labels, scores: 0.5 + 0.5 * (_auroc(labels, scores) - 0.5),
    "mcc": lambda labels, scores: np.corrcoef(labels, scores > np.quantile(scores, 0.8))[0, 1],
    "precision_at_k": lambda labels, scores: labels[(-scores).argsort(kind="stable")[:10]].mean(),
    "brier": lambda labels, scores: ((scores - labels) ** 2).mean(),
    "ece": lambda labels, scores: abs(scores.mean() - labels.mean()),
    "brier_calibrated": lambda labels, scores: labels.mean() * (1 - labels.mean()),
    "ece_calibrated": lambda labels, scores: abs(scores.mean() - labels.mean()) / 4,
}


def _mean(estimates: list[dict]) -> dict:
    known = [e for e in estimates if e["value"] is not None]
    spread = max(len(known), 1) ** 0.5
    value = float(np.mean([e["value"] for e in known]))
    half = float(np.mean([e["high"] - e["low"] for e in known])) / 2 / spread
    return {"value": value, "low": value - half, "high": min(1.0, value + half)}


def _judged(config: Config, dataset: str, skills, more: float, rng) -> tuple[dict, pd.DataFrame]:
    """What metrics.json says of a model of such skill in each split, and its predictions."""
    ids, labels = _labels(dataset)
    start, by_cluster, by_group = skills
    tables, splits = [], {}
    for k, (split, loss) in enumerate([("random", 0.0), ("cluster", by_cluster), ("group", by_group)]):
        classes = {}
        fold = rng.integers(0, 3, len(ids))
        for i, name in enumerate(CLASSES[dataset]):
            truth = (labels == name).astype(int)
            scores = _scores(truth, rng, start - loss + more - 0.15 * i if start else 0.0)
            if dataset == "bnab" and split == "group" and i == 2:
                truth = np.zeros_like(truth)  # a class that no tested group has: AUROC is undefined
            classes[name] = {"n": len(ids), "n_positive": int(truth.sum()), "prevalence": float(truth.mean())} | {
                metric: _estimate(function, truth, scores) for metric, function in METRICS.items()
            }
            probability = (scores * truth.mean() / max(scores.mean(), 1e-9)).clip(0, 1)
            columns = {"receptor_id": ids, "label": truth, "score": scores.round(4), "probability": probability}
            place = {"split": split, "seed": 1, "fold": fold, "class": name}
            tables.append(pd.DataFrame(place | columns | {"decision": (scores > 0.4).astype(int)}))
        macro = {metric: _mean([c[metric] for c in classes.values()]) for metric in METRICS}
        for value in macro.values():
            value |= {"low_classes": value["low"] - 0.04, "high_classes": value["high"] + 0.03}
        swapped, background = macro["auroc"], {"value": 0.93, "low": 0.9, "high": 0.95}
        splits[split] = {
            "n_groups": [None, 240, 31][k],
            "group": [None, None, next(iter(config.datasets[dataset].groups))][k],
            "notes": [f"how the {split} split was made"],
            "leakage": dict(zip(("exact", "distance_1", "distance_2"), LEAKAGE[split])) | {"of": len(ids)},
            "n_tested": len(ids),
            "classes": classes,
            "macro": {"prevalence": float(np.mean([c["prevalence"] for c in classes.values()]))} | macro,
            "negatives": {
                kind: {metric: value for metric in ("auroc", "auprc", "auc01", "mcc")}
                for kind, value in (("swapped", swapped), ("background", background))
            } if dataset == "bnab" else {},
            "pooled": {"auroc": 0.77, "note": "The pooled AUROC is misleading: it ranks what is not on one scale."},
            "chosen": [{"seed": 1, "fold": fold, "C": 1.0} for fold in range(3)],
        }  # fmt: skip
    left_out = [{"class": "MPER", "n": 4, "reason": "fewer than 3 receptors in some fold"}]
    methods = ["swapped", "background"] if dataset == "bnab" else ["swapped"]
    metrics = {
        "task": "classification",
        "n_receptors": len(ids),
        "n_features": 128,
        "classes": CLASSES[dataset],
        "left_out": left_out if dataset == "bnab" else [],
        "seed": 7,
        "folds": 3,
        "seeds": [1],
        "negatives": {"methods": methods, "ratio": None, "seed": 1, "excluded": 3, "classes": {}},
        "splits": splits,
        "notes": [],
        "versions": {"airrformer": "0.1.0", "scikit-learn": "1.9.1"},
        "settings": {"evaluation": config.evaluation.model_dump(mode="json")},
    }
    return metrics, pd.concat(tables)


def _baselines(config: Config, results: Results, dataset: str) -> None:
    """baselines/metrics.json, and comparisons.tsv: on bnab the best is better than all, on sars2_tcr it is not."""
    found = {
        name: {"kind": kind, "what": what} | _judged(config, dataset, skills, 0.1, _random(name, dataset))[0]
        for name, (kind, what, skills) in BASELINES.items()
    }
    leaks = [
        {"check": "missing", "level": "bad", "title": "What is missing tells the label", "auroc": 0.91, "classes": {},
         "sentence": f"the V gene is missing in 82% of the positives of {NASTY}: an AUROC of 0.91 by itself."},
        {"check": "occurrences", "level": "fine", "title": "How often a receptor stands in the input tells its label",
         "auroc": None, "classes": {}, "sentence": "positives stand there 1.00 times on average: not defined."},
    ]  # fmt: skip
    read = {"exact": 300, "distance_1": 300, "distance_2": 300, "of": 300}
    folds = [
        {"trial": 0, "fold": fold, "exact": 100, "distance_1": 100, "distance_2": 100, "of": 100} for fold in range(3)
    ]
    corpora = {"scratch": {split: read | {"folds": folds} for split in ("random", "cluster", "group")}}
    write_json(
        results.baselines(dataset) / "metrics.json",
        {"version": 1, "dataset": dataset, "baselines": found, "leaks": leaks if dataset == "bnab" else [],
         "corpora": corpora},
    )  # fmt: skip
    rows = []
    for split in ("group", "cluster", "random"):
        scores = {
            "/".join(target[1:]): read_json(results.classifier(*target) / "metrics.json")["splits"][split]
            for target in config.expand_targets()
            if target.dataset == dataset and target.encoder in SKILL
        }
        best = max(scores, key=lambda name: scores[name]["macro"]["auroc"]["value"])
        scores |= {f"baseline/{name}": own["splits"][split] for name, own in found.items()}
        for name in scores:
            if name == best:
                continue
            gap = -0.08 if dataset == "bnab" or name == "baseline/untrained" else -0.01
            p = 0.004 if gap < -0.05 else 0.6
            note = "fewer than 2 folds: no test" if split == "random" else ""
            rows.append((name, best, split, gap, gap - 0.03, gap + 0.03, p, None if note else p, 3, note))
    columns = ["a", "b", "split", "difference", "low", "high", "p", "p_holm", "folds", "note"]
    write_table(pd.DataFrame(rows, columns=columns), results.comparisons(dataset))


def _target(config: Config, results: Results, target: Target) -> None:
    bonus = {"cdr3": 0.15, "logistic": 0.1}
    more = bonus.get(target.pooling, 0) + bonus.get(target.classifier, 0)
    rng = _random(*target)
    judged, predictions = _judged(config, target.dataset, SKILL[target.encoder], more, rng)
    ids, labels = _labels(target.dataset)
    folder = results.classifier(*target)
    write_table(predictions, folder / "predictions.tsv")
    write_json(folder / "metrics.json", {"version": 2, "target": target._asdict()} | judged)
    if target.encoder != "kmer":
        centres = {name: rng.normal(size=2) * 9 for name in CLASSES[target.dataset]}
        xy = np.stack([centres[label] for label in labels]) + rng.normal(size=(len(ids), 2)) * 6
        places = pd.DataFrame({"receptor_id": ids, "label": labels})
        places[["pca_1", "pca_2"]] = xy / 5
        places[["tsne_1", "tsne_2"]] = xy
        write_table(places, results.map(target.dataset, target.encoder, target.pooling))


def _encoders(results: Results) -> None:
    base = {"name": None, "weights": None, "source": None, "sha256": None, "reason": None}
    for name, entry in {
        "scratch": {"status": "ready", "kind": "pretrain", "weights": "results/encoders/scratch/model.safetensors",
                    "source": "trained", "sha256": "ab" * 32},
        "antiberty": {"status": "ready", "kind": "antiberty", "name": "antiberty", "source": "local",
                      "weights": "site-packages/antiberty/trained_models/model/pytorch_model.bin", "sha256": "cd" * 32},
        "esm2_8m": {"status": "skipped", "kind": "esm2", "name": "esm2_t6_8M_UR50D", "reason": SKIPPED},
    }.items():  # fmt: skip
        write_json(results.encoder_status(name), base | {"encoder": name} | entry)
    steps = np.arange(0, 1501, 100)
    fall = np.exp(-steps / 350)
    history = pd.DataFrame(
        {
            "step": steps,
            "train_loss": [None, *(0.75 + 2.2 * fall[1:] + _random("loss").normal(size=len(steps) - 1) * 0.05)],
            "validation_loss": 0.82 + 2.2 * fall,
            "validation_accuracy": 0.76 * (1 - fall) + 0.05,
            "learning_rate": 1e-3 * fall,
            "seconds": steps * 0.08,
        }
    )
    write_table(history, results.encoder("scratch") / "history.tsv")
    framework = {"n": 5210, "accuracy": 0.85, "perplexity": 1.9, "unigram_accuracy": 0.1, "unigram_perplexity": 17.5,
                 "position_unigram_accuracy": 0.61, "position_unigram_perplexity": 3.4}  # fmt: skip
    cdr3 = {"n": 870, "accuracy": 0.41, "perplexity": 6.5, "unigram_accuracy": 0.17, "unigram_perplexity": 15.7,
            "position_unigram_accuracy": 0.37, "position_unigram_perplexity": 8.9}  # fmt: skip
    write_json(
        results.encoder("scratch") / "metrics.json",
        {"version": 1, "parameters": 812_345, "steps": 1500, "best_step": 1400, "seconds": 118.2, "seed": 7,
         "corpus": ["sars2_tcr", "bnab"], "n_train": 1400, "n_validation": 150, "device": "cpu", "precision": "fp32",
         "regions": {"framework": framework, "cdr3": cdr3}},
    )  # fmt: skip
    region = "CASSIRSSYEQYF"
    for name in ("scratch", "antiberty"):
        rng = _random("masked", name)
        p = rng.dirichlet(np.full(20, 0.25), len(region))
        for i, residue in enumerate(region):
            p[i, RESIDUES.index(residue)] += 6 if i < 3 or i > 8 else 0.1
        table = pd.DataFrame(p / p.sum(1, keepdims=True), columns=list(RESIDUES))
        table.insert(0, "residue", list(region))
        table.insert(0, "position", CHAIN.index(region) + np.arange(len(region)))
        write_table(table, results.masked(name))
    for stage, seconds in {"parse": 12.1, "pretrain": 121.4, "embed": 44.0, "classify": 160.2}.items():
        row = pd.DataFrame({"s": [seconds], "h:m:s": ["0:00:10"], "max_rss": [812.5]})
        write_table(row, results.dataset("benchmarks") / stage / "job.tsv")
