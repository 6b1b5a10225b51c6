from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from airrformer.config import load_config
from airrformer.embed.store import Features, write_features
from airrformer.explain import map_embeddings, maps
from airrformer.paths import Results
from airrformer.receptors.tables import write_table

COLUMNS = ["receptor_id", "label", "pca_1", "pca_2", "tsne_1", "tsne_2"]


@pytest.fixture
def results(tmp_path) -> Results:
    return Results(tmp_path)


@pytest.fixture
def config():
    return load_config(
        {
            "datasets": {"toy": {"sequences": "toy.fasta", "receptor": "TCR", "chains": ["TRB"]}},
            "encoders": {"blosum": {"kind": "blosum62"}},
            "poolings": {"mean": {"kind": "mean"}, "counts": {"kind": "counts"}},
        }
    )


def clouds(n: int, dimensions: int = 12) -> np.ndarray:
    """Two clouds far apart: the even rows and the odd ones."""
    matrix = np.random.default_rng(0).normal(size=(n, dimensions))
    matrix[::2] += 10
    return matrix.astype(np.float32)


def write_inputs(results: Results, matrix: np.ndarray, labels: list) -> list[str]:
    ids = [f"r{i}" for i in range(len(matrix))]
    # the receptors stand in another order: rows are joined by id
    receptors = pd.DataFrame({"receptor_id": ids[::-1], "label": labels[::-1], "occurrences": 1})
    receptors["not_label"] = [[] for _ in ids]
    write_table(receptors, results.receptors("toy"))
    features = Features(ids, matrix, [f"TRB_{i}" for i in range(matrix.shape[1])])
    write_features(features, results.features("toy", "blosum", "mean"))
    return ids


def read_map(results: Results) -> pd.DataFrame:
    return pd.read_csv(results.map("toy", "blosum", "mean"), sep="\t", keep_default_na=False, na_values={"tsne_1": ""})


def test_clouds_stay_apart_in_both_maps(config, results):
    labels = [["even"] if i % 2 == 0 else [] if i == 1 else ["odd", "other"] for i in range(60)]
    ids = write_inputs(results, clouds(60), labels)
    map_embeddings(config, "toy", "blosum", results)
    table = read_map(results)
    assert list(table) == COLUMNS and table["receptor_id"].tolist() == ids
    assert table["label"].tolist() == ["even" if i % 2 == 0 else "" if i == 1 else "odd;other" for i in range(60)]
    assert (table["pca_1"][::2] > 0).nunique() == 1 and (table["pca_1"][::2] * table["pca_1"][1::2].mean() < 0).all()
    places = table[["tsne_1", "tsne_2"]].astype(float).to_numpy()
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.diag([np.inf] * 60)
    assert (distances.argmin(1) % 2 == np.arange(60) % 2).all()
    assert not results.map("toy", "blosum", "counts").exists()


def test_maps_are_repeatable_and_follow_the_seed(config, results):
    write_inputs(results, clouds(40), [["a"]] * 40)
    map_embeddings(config, "toy", "blosum", results)
    first = results.map("toy", "blosum", "mean").read_bytes()
    map_embeddings(config, "toy", "blosum", results)
    assert results.map("toy", "blosum", "mean").read_bytes() == first


def test_above_the_limit_a_sample_has_a_tsne_place(config, results, monkeypatch):
    monkeypatch.setattr(maps, "_TSNE_RECEPTORS", 20)
    write_inputs(results, clouds(40), [["a"]] * 40)
    map_embeddings(config, "toy", "blosum", results)
    table = read_map(results)
    assert table["tsne_1"].notna().sum() == 20 and table["pca_1"].notna().all()


@pytest.mark.parametrize(("n", "dimensions"), [(1, 5), (3, 5), (5, 1)])
def test_few_receptors_and_few_features_still_give_a_map(config, results, n, dimensions):
    write_inputs(results, clouds(n, dimensions), [["a"]] * n)
    map_embeddings(config, "toy", "blosum", results)
    table = read_map(results)
    assert len(table) == n and np.isfinite(table[["pca_1", "pca_2"]]).all().all()


def test_constant_features_and_measured_values(config, results):
    write_inputs(results, np.ones((6, 4), dtype=np.float32), [0.5, 1.25, 2.0, 3.0, np.nan, 1e-9])
    map_embeddings(config, "toy", "blosum", results)
    table = read_map(results)
    assert (table["pca_1"] == 0).all() and table["label"].tolist() == ["0.5", "1.25", "2", "3", "", "1e-09"]
