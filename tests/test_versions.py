"""What each stage makes of the same small input, by the stage's number.

A test here fails when a stage's output changes: raise its number in airrformer/versions.py, so that Snakemake runs it
again in everybody's results, and write the new values down beside it. (Training's are in tests/pretrain.)
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from airrformer.classify import classify
from airrformer.config import Target, load_config
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.embed.encoders import Blosum62, TransformerEncoder
from airrformer.embed.features import dataset_features
from airrformer.embed.store import write_features
from airrformer.parse import parse_dataset
from airrformer.paths import Results
from airrformer.receptors.tables import read_chains, read_receptors
from airrformer.versions import STAGE_VERSIONS

DATA = Path(__file__).parents[1] / "data"
PARTS = {
    "encoders": {"blosum62": {"kind": "blosum62"}, "kmer": {"kind": "kmer", "k": 2}},
    "poolings": {"mean": {"kind": "mean"}, "cdr3": {"kind": "max", "region": "cdr3"}, "counts": {"kind": "counts"}},
    "classifiers": {"logistic": {"kind": "logistic_regression", "grid": {"C": [0.1, 1]}}},
    "evaluation": {"folds": 2, "bootstrap": 100},
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """40 receptors of two of the demo's classes, parsed."""
    folder = tmp_path_factory.mktemp("golden")
    header, *rows = (DATA / "sars2_tcr.labels.tsv").read_text("utf-8").splitlines()
    rows = [row for name in ("YLQPRTFLL", "KTFPPTEPK") for row in [r for r in rows if r.split("\t")[1] == name][:20]]
    ids = {row.split("\t")[0] for row in rows}
    with gzip.open(DATA / "sars2_tcr.fasta.gz", "rt", encoding="utf-8") as file:
        records = [record for record in file.read().split(">") if record.split("|")[0] in ids]
    (folder / "toy.fasta").write_text("".join(f">{record}" for record in records), "utf-8")
    (folder / "labels.tsv").write_text("\n".join([header, *rows, ""]), "utf-8")
    toy = {
        "sequences": str(folder / "toy.fasta"),
        "id": "{receptor_id}|{locus}|{v_call}|{junction_aa}|{j_call}",
        "receptor": "TCR",
        "chains": ["TRB"],
        "labels": {"path": str(folder / "labels.tsv"), "column": "epitope"},
        "groups": {"donor": "subject_id"},
    }
    config, results = load_config({"datasets": {"toy": toy}, **PARTS}), Results(folder / "results")
    parse_dataset(config.datasets["toy"], results.dataset("toy"))
    return config, results


def digest(table) -> str:
    return hashlib.sha256(table.to_csv(index=False, na_rep="", lineterminator="\n").encode()).hexdigest()[:12]


def features(toy, encoder: str, *poolings: str, with_=None):
    config, results = toy
    chosen = {name: config.poolings[name] for name in poolings}
    ids = read_receptors(results.receptors("toy"))["receptor_id"].tolist()
    chains = read_chains(results.chains("toy"))
    return dataset_features(chains, ids, config.datasets["toy"], config.encoders[encoder], chosen, with_)


def fingerprint(matrix) -> list[float]:
    """Three numbers that a change of any row, column or value would move."""
    dense = np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix, dtype=np.float64)
    rows, columns = (np.arange(1, size + 1) for size in dense.shape)
    return [dense.sum(), rows @ dense.sum(1), dense.sum(0) @ columns]


def test_parse(toy):
    _, results = toy
    chains = read_chains(results.chains("toy")).drop(columns="file")  # a temporary folder
    found = digest(chains), digest(read_receptors(results.receptors("toy")))
    assert (STAGE_VERSIONS["parse"], *found) == PARSE


def test_embed(toy):
    pooled = features(toy, "blosum62", "mean", "cdr3", with_=Blosum62())
    counted = features(toy, "kmer", "counts")["counts"]
    model = Transformer(ModelConfig(layers=2, width=16, heads=2, feed_forward=32))
    initialise(model, torch.Generator().manual_seed(0))
    contextual = features(toy, "blosum62", "mean", with_=TransformerEncoder(model, "small", "cpu"))
    matrices = (pooled["mean"], pooled["cdr3"], counted, contextual["mean"])
    assert STAGE_VERSIONS["embed"] == EMBED[0]
    assert [fingerprint(made.matrix) for made in matrices] == [pytest.approx(v, rel=1e-4, abs=0.05) for v in EMBED[1]]


def test_classify(toy):
    config, results = toy
    write_features(features(toy, "kmer", "counts")["counts"], results.features("toy", "kmer", "counts"))
    target = Target("toy", "kmer", "counts", "logistic")
    splits = classify(config, target, results, results.classifier(*target))["splits"]
    found = {
        split: [made["macro"][metric]["value"] for metric in ("auroc", "auprc", "auc01")]
        for split, made in splits.items()
        if "macro" in made
    }
    assert STAGE_VERSIONS["classify"] == CLASSIFY[0]
    assert found == {split: pytest.approx(values, abs=1e-6) for split, values in CLASSIFY[1].items()}


PARSE = (5, "c73459adcfdf", "c9407674baee")
EMBED = (
    1,
    [[-823.175, -16885.366, -8426.402], [2482.0, 51150.0, 26654.0], [539.0, 11306.0, 128525.0], [0.0, -0.0, -514.246]],
)
CLASSIFY = (
    6,
    {
        "random": [0.705, 0.720785, 0.578947],
        "cluster": [0.705, 0.720785, 0.578947],
        "group": [0.85, 0.873135, 0.763158],
    },
)
