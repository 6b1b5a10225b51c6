"""Labels given to other receptors at random, through every kind of classifier and every split: all must be chance."""

import numpy as np
import pytest

from airrformer.classify.evaluation import assess, open_study
from airrformer.classify.families import FAMILIES
from airrformer.classify.features import read_inputs
from airrformer.classify.models import task_of
from airrformer.config import Target, load_config

SPLITS = ["random", "cluster", "group", "class", "parent", "given"]
GRIDS = {
    "random_forest": {"trees": 20, "grid": {"min_samples_leaf": [3]}},
    "gradient_boosting": {"grid": {"trees": [20], "leaves": [7]}},
    "rbf_svm": {"grid": {"C": [1], "gamma": [1]}},
    "distance_svm": {"grid": {"C": [1], "bandwidth": [0.3]}},
    "mlp": {"grid": {"alpha": [1]}},
    "cnn": {"models": 1, "grid": {"channels": [8]}},
}
KINDS = sorted(FAMILIES)


@pytest.fixture
def control(make_study):
    """``control(splits, seed)``: a study with a strong signal, of which the labels are then shuffled."""

    def make(splits, seed):
        rng = np.random.default_rng(seed)
        which = rng.integers(0, 3, 180)
        X = (rng.normal(size=(180, 6)) + 3 * np.eye(3, 6)[which]).astype(np.float32)
        cdr3 = [
            rng.choice(list("ADEFGH"))[0] * 2 + "KLM"[k] * 4 + "".join(rng.choice(list("NPQRST"), 5)) for k in which
        ]
        labels = [[["A", "B", "C"][k]] for k in which]
        study = make_study(X, labels, [f"d{i}" for i in rng.integers(0, 12, 180)], cdr3, folder=f"seed{seed}")
        config = study.config.model_dump(mode="json")
        config["datasets"]["toy"]["parent"] = {"TRB": f"QQC{cdr3[0]}FGG"}
        config["encoders"]["letters"] = {"kind": "letters", "regions": ["cdr3"]}
        config["poolings"]["letters"] = {"kind": "letters"}
        config["classifiers"] |= {kind: {"kind": kind, **GRIDS.get(kind, {})} for kind in KINDS}
        members = [
            {"classifier": "density_ratio"},
            {"classifier": "linear_svm", "encoder": "numbers", "pooling": "mean"},
        ]
        config["classifiers"]["stack"] = {"kind": "stack", "members": members}
        config["evaluation"] |= {"splits": splits, "bootstrap": 200, "shuffle_labels": True, "seeds": [seed]}
        config["seed"] = seed
        return load_config(config), study.results

    return make


def aurocs(control, kind, splits, seeds):
    found = []
    for seed in seeds:
        config, results = control(splits, seed)
        study = open_study(config, "toy", results)
        for encoder, pooling in (("numbers", "mean"), ("letters", "letters")):
            target = Target("toy", encoder, pooling, kind)
            if target not in config.expand_targets():
                continue
            inputs = read_inputs(config, target, results, study.data)
            metrics, _ = assess(study, task_of(config, target), inputs, kind)
            assert any("given to other receptors at random" in note for note in metrics["notes"])
            found += [judged["macro"]["auroc"] for judged in metrics["splits"].values() if "macro" in judged]
    return found


@pytest.mark.parametrize("kind", [*KINDS, "stack"])
def test_shuffled_labels_are_chance(control, kind):
    found = aurocs(control, kind, ["random", "group"], [1])
    assert abs(np.mean([entry["value"] for entry in found]) - 0.5) < 0.09


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "stack"])
def test_shuffled_labels_are_chance_in_every_split(control, kind):
    found = aurocs(control, kind, SPLITS, range(1, 5))
    assert len(found) >= 4 * 5
    values = np.array([entry["value"] for entry in found])
    assert abs(values.mean() - 0.5) < 0.03
    # intervals hold models and folds fixed, so they miss chance more often than one time in twenty
    assert np.mean([entry["low_classes"] < 0.5 < entry["high_classes"] for entry in found]) >= 0.75


def test_the_same_study_without_the_control_is_easy(control):
    config, results = control(["random"], 1)
    values = config.model_dump(mode="json")
    values["evaluation"]["shuffle_labels"] = False
    config = load_config(values)
    study = open_study(config, "toy", results)
    target = Target("toy", "letters", "letters", "density_ratio")
    metrics, _ = assess(study, task_of(config, target), read_inputs(config, target, results, study.data), "toy")
    assert metrics["splits"]["random"]["macro"]["auroc"]["value"] > 0.95
