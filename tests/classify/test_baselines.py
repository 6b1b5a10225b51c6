"""Shortcuts and plain models on small studies; comparisons of all that was judged."""

import json

import numpy as np
import pandas as pd
import pytest

from airrformer.classify import baselines, classify, compare_dataset, make_baselines
from airrformer.classify.baselines import BASELINES
from airrformer.config import load_config
from airrformer.errors import UserError
from airrformer.receptors.tables import read_receptors, write_receptors


@pytest.fixture
def study(make_study):
    """Class A is told by the features; receptors of A occur more often; nothing else tells."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, 90)
    X = (rng.normal(size=(90, 6)) + 0.5 * which[:, None]).astype(np.float32)
    study = make_study(X, [[["B", "A"][k]] for k in which], [f"d{i}" for i in rng.integers(0, 9, 90)])
    path = study.results.receptors("toy")
    receptors = read_receptors(path)
    receptors["occurrences"] = np.where(which, rng.integers(1, 9, 90), 1)
    write_receptors(receptors, path)
    return study


def test_every_baseline_is_judged_on_the_same_folds(study):
    output = study.results.baselines("toy")
    metrics = make_baselines(study.config, "toy", study.results, output)
    assert json.loads((output / "metrics.json").read_text()) == metrics
    assert list(metrics["baselines"]) == [baseline.name for baseline in BASELINES]
    assert {entry["kind"] for entry in metrics["baselines"].values()} == {"shortcut", "strong"}
    auroc = {name: m["splits"]["group"]["macro"]["auroc"]["value"] for name, m in metrics["baselines"].items()}
    assert auroc["class_only"] == auroc["genes_only"] == auroc["presence_only"] == 0.5  # all the same here
    assert auroc["frequency_only"] > 0.85 and auroc["length_only"] == 0.5
    for name in ("kmers", "physchem", "nearest_edit", "nearest_tcrdist", "untrained"):
        assert 0.2 < auroc[name] < 0.8  # CDR3s are random here
    leaks = {leak["check"]: leak for leak in metrics["leaks"]}
    assert leaks["occurrences"]["level"] == "bad" and leaks["occurrences"]["auroc"] > 0.85

    classify(study.config, study.target, study.results, study.output)
    table = compare_dataset(study.config, "toy", study.results, study.results.comparisons("toy"))
    assert set(table["b"]) == {"numbers/mean/logistic"} and set(table["split"]) == {"random", "cluster", "group"}
    assert set(table["a"]) == {f"baseline/{baseline.name}" for baseline in BASELINES}
    worst = table[(table["a"] == "baseline/class_only") & (table["split"] == "random")].iloc[0]
    assert worst["high"] < 0 and worst["p"] < 0.1 and worst["p_holm"] >= worst["p"]
    written = pd.read_csv(study.results.comparisons("toy"), sep="\t")
    assert len(written) == len(table)


def test_nothing_to_compare_is_an_error(study):
    with pytest.raises(UserError, match="no predictions to compare; run `airrformer classify` first"):
        compare_dataset(study.config, "toy", study.results, study.results.comparisons("toy"))


def test_what_an_encoder_has_read_is_counted(study):
    values = study.config.model_dump(mode="json")
    values["encoders"]["own"] = {"kind": "pretrain", "corpus": ["toy"]}
    config = load_config(values)
    metrics = make_baselines(config, "toy", study.results, study.results.baselines("toy"))
    read = metrics["corpora"]["own"]
    assert set(read) == {"random", "cluster", "group"}
    assert read["group"]["exact"] == read["group"]["of"] == 90 and len(read["group"]["folds"]) == 3


def test_a_large_set_is_calibrated_on_some_of_it_and_scored_as_ever(study, monkeypatch):
    found = []
    (nearest,) = (baseline for baseline in BASELINES if baseline.name == "nearest_tcrdist")
    monkeypatch.setattr(baselines, "BASELINES", (nearest,))
    for sample in (2000, 10):
        monkeypatch.setattr(baselines, "INNER_SAMPLE", sample)
        metrics = make_baselines(study.config, "toy", study.results, study.results.baselines("toy"))
        found.append(metrics["baselines"]["nearest_tcrdist"]["splits"]["random"]["macro"])
    whole, some = found
    assert whole["auroc"] == some["auroc"] and whole["brier"] == some["brier"]
    assert whole["brier_calibrated"] != some["brier_calibrated"]
