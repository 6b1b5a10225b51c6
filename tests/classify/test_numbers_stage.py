"""Regression, through the whole stage: judged by ranks and distances, saved, and read back."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr, spearmanr

from airrformer.classify import classify, compare_dataset, make_baselines
from airrformer.classify.features import read_inputs, read_labelled
from airrformer.classify.persistence import load_model
from airrformer.config import Target, load_config


@pytest.fixture
def study(make_study):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 6)).astype(np.float32)
    values = 60 + 4 * X[:, 0] - 2 * X[:, 1] + rng.normal(size=90)
    values[5] = np.nan  # not measured
    study = make_study(X, list(values), [f"d{i}" for i in rng.integers(0, 9, 90)])
    config = study.config.model_dump(mode="json")
    config["datasets"]["toy"] |= {"task": "regression"}
    config["datasets"]["toy"]["labels"]["column"] = "Tm"
    config["encoders"]["letters"] = {"kind": "letters"}
    config["poolings"]["letters"] = {"kind": "letters"}
    config["classifiers"] |= {"ridge": {"kind": "ridge"}, "svr": {"kind": "rbf_svm"}, "cnn": {"kind": "cnn"}}
    config["classifiers"]["stack"] = {
        "kind": "stack",
        "members": [{"classifier": "ridge"}, {"classifier": "ridge", "encoder": "letters", "pooling": "letters"}],
    }
    return load_config(config), study.results


def test_classifiers_are_not_asked_for_numbers(study):
    config, _ = study
    assert {target.classifier for target in config.expand_targets()} == {"neighbors", "ridge", "svr", "stack"}


@pytest.mark.parametrize("classifier", ["ridge", "svr", "neighbors", "stack"])
def test_numbers_are_judged_by_rank_and_distance(study, classifier):
    config, results = study
    target = Target("toy", "numbers", "mean", classifier)
    output = results.classifier(*target)
    metrics = classify(config, target, results, output)
    assert metrics["task"] == "regression" and metrics["classes"] == ["Tm"] and metrics["n_receptors"] == 89
    table = pd.read_csv(output / "predictions.tsv", sep="\t")
    assert table.columns.tolist() == ["split", "seed", "fold", "class", "receptor_id", "label", "score"]
    for name, judged in metrics["splits"].items():
        folds = [fold for _, fold in table[table["split"] == name].groupby("fold")]
        macro = judged["macro"]
        assert macro["spearman"]["value"] == pytest.approx(
            np.mean([spearmanr(f["label"], f["score"]).statistic for f in folds]), abs=1e-6
        )
        assert macro["pearson"]["value"] == pytest.approx(
            np.mean([pearsonr(f["label"], f["score"]).statistic for f in folds]), abs=1e-6
        )
        rmse = np.mean([np.sqrt(np.mean((f["label"] - f["score"]) ** 2)) for f in folds])
        assert macro["rmse"]["value"] == pytest.approx(rmse, rel=1e-6)
        assert macro["spearman"]["value"] > 0.6
    card = (output / "card.md").read_text()
    assert "Says the Tm of a receptor" in card and "| random | Tm | 89 |" in card and "AUROC" not in card

    saved = load_model(output / "model")
    data = read_labelled(config, "toy", results)
    predicted = saved.predict(read_inputs(config, target, results, data).whole)
    assert spearmanr(predicted[:, 0], data.numbers[:, 0]).statistic > 0.8
    assert 45 < predicted.mean() < 75


def test_baselines_of_numbers(study):
    config, results = study
    metrics = make_baselines(config, "toy", results, results.baselines("toy"))
    spearman = {name: m["splits"]["random"]["macro"]["spearman"]["value"] for name, m in metrics["baselines"].items()}
    assert spearman["class_only"] is None  # a constant has no order
    names = {"kmers", "physchem", "nearest_edit", "nearest_tcrdist", "untrained"}
    assert names <= set(spearman) and all(abs(spearman[name]) < 0.4 for name in names - {"untrained"})
    whats = {entry["what"] for entry in metrics["baselines"].values()}
    assert "3-mers of the CDR3s and the genes, ridge regression" in whats and not any("logistic" in w for w in whats)

    target = Target("toy", "numbers", "mean", "ridge")
    classify(config, target, results, results.classifier(*target))
    table = compare_dataset(config, "toy", results, results.comparisons("toy"))
    assert set(table["b"]) == {"numbers/mean/ridge"} and set(table["split"]) == {"random", "cluster", "group"}
    table = table.set_index(["split", "a"]).loc["random"]
    assert table.loc["baseline/nearest_tcrdist", "high"] < 0 and table.loc["baseline/nearest_tcrdist", "folds"] == 3
    assert np.isnan(table.loc["baseline/class_only", "difference"])
