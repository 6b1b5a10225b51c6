"""Labels given to other receptors at random, through every kind of classifier and every split: all must be chance."""

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter
from sklearn.metrics import roc_auc_score

from airrformer.classify.evaluation import assess, open_study
from airrformer.classify.families import FAMILIES
from airrformer.classify.features import read_inputs
from airrformer.classify.models import Task, fit, task_of
from airrformer.classify.multi_kernel import ViewKernel
from airrformer.classify.residues import Completed, LettersOneHot
from airrformer.config import Classifier, LettersEncoder, Target, load_config

SPLITS = ["random", "cluster", "group", "class", "parent", "given"]
GRIDS = {
    "random_forest": {"trees": 20, "grid": {"min_samples_leaf": [3]}},
    "gradient_boosting": {"grid": {"trees": [20], "leaves": [7]}},
    "rbf_svm": {"grid": {"C": [1], "gamma": [1]}},
    "distance_svm": {"grid": {"C": [1], "bandwidth": [0.3]}},
    "mlp": {"grid": {"alpha": [1]}},
    "cnn": {"models": 1, "grid": {"channels": [8]}},
}
KINDS = sorted(set(FAMILIES) - {"residue_head"})  # which reads residues, not these: test_residue_heads
ALL = [*KINDS, "stack", "kernels_sum", "kernels_product"]


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
        kernels = [{"distance": {}}, {"encoder": "numbers", "pooling": "mean"}]
        for how in ("sum", "product"):
            kernel = {"kind": "multi_kernel", "combine": how, "kernels": kernels, "grid": {"C": [0.3, 3]}}
            config["classifiers"][f"kernels_{how}"] = kernel
        config["evaluation"] |= {"splits": splits, "bootstrap": 200, "shuffle_labels": True, "seeds": [seed]}
        config["seed"] = seed
        return load_config(config), study.results

    return make


def aurocs(control, kind, splits, seeds):
    found = []
    for seed in seeds:
        config, results = control(splits, seed)
        study = open_study(config, "toy", results)
        views = (
            (("letters", "letters"),) if kind.startswith("kernels") else (("numbers", "mean"), ("letters", "letters"))
        )
        for encoder, pooling in views:
            target = Target("toy", encoder, pooling, kind)
            if target not in config.expand_targets():
                continue
            inputs = read_inputs(config, target, results, study.data)
            metrics, _ = assess(study, task_of(config, target), inputs, kind)
            assert any("given to other receptors at random" in note for note in metrics["notes"])
            found += [judged["macro"]["auroc"] for judged in metrics["splits"].values() if "macro" in judged]
    return found


@pytest.mark.parametrize("kind", ALL)
def test_shuffled_labels_are_chance(control, kind):
    found = aurocs(control, kind, ["random", "group"], [1])
    assert abs(np.mean([entry["value"] for entry in found]) - 0.5) < 0.09


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
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


# ------------------------------------------------------------------------------------------------ a chain is missing

RESIDUES = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
LACKING = [
    ("logistic_regression", {}, "onehot"),
    ("rbf_svm", {"grid": {"C": [3], "gamma": [1]}}, "onehot"),
    ("random_forest", {"trees": 50, "grid": {"min_samples_leaf": [3]}}, "physchem"),
    ("gradient_boosting", {"grid": {"trees": [50], "leaves": [7]}}, "physchem"),
    ("gradient_boosting", {"categories": True, "grid": {"trees": [50], "leaves": [7]}}, "codes"),
    ("mlp", {"grid": {"alpha": [1]}}, "physchem"),
    ("cnn", {"models": 1, "grid": {"channels": [8]}}, "onehot"),
    ("density_ratio", {"grid": {"bandwidth": [0.1]}}, "onehot"),
    ("density_stack", {"grid": {"C": [0.1]}}, "onehot"),
    ("k_nearest_neighbors", {"grid": {"n_neighbors": [15]}}, "onehot"),
    ("distance_svm", {"grid": {"C": [1], "bandwidth": [0.3]}}, "onehot"),
    ("multi_kernel", {"kernels": [{"distance": {}}, {}], "grid": {"C": [1]}}, "onehot"),
]


def random_pairs(n, seed):
    """Letters without any signal and labels: of 1, 60 % lack the alpha chain, of 0, 10 %. CDR1 and CDR2 go by gene."""
    rng = np.random.default_rng(seed)
    genes = np.random.default_rng(0)

    def words(shortest, longest, n, rng):
        return np.array(
            ["".join(rng.choice(RESIDUES, rng.integers(shortest, longest))) for _ in range(n)], dtype=object
        )

    y = rng.integers(0, 2, n)
    columns = {}
    for chain in ("TRA", "TRB"):
        first, second, of = words(5, 8, 40, genes), words(5, 8, 40, genes), rng.integers(0, 40, n)
        columns |= {f"{chain}_cdr1": first[of], f"{chain}_cdr2": second[of], f"{chain}_cdr3": words(10, 16, n, rng)}
        columns |= {f"{chain}_v": np.array([f"{chain}V{i}" for i in of], dtype=object)}
        columns |= {
            f"{chain}_j": np.array([f"{chain}J1"] * n, dtype=object),
            f"{chain}_sequence": np.full(n, "Q", object),
        }
    letters = pd.DataFrame(columns, dtype=object)
    lacks = rng.random(n) < np.where(y == 1, 0.6, 0.1)
    letters.loc[lacks, [name for name in letters if name.startswith("TRA")]] = ""
    return letters, y


def of_missing(kind, settings, encoding):
    """The AUROC on 1,000 receptors of a model of 600; 0.75 where it knows who lacks a chain; standard error 0.02."""
    (X, y), (X_new, y_new) = random_pairs(600, 1), random_pairs(1000, 2)
    chosen = TypeAdapter(Classifier).validate_python({"kind": kind, **settings})
    kernels = ()
    if kind == "multi_kernel":
        X, X_new = {"x": X}, {"x": X_new}
        kernels = ViewKernel("x", options={}, reader=Completed()), ViewKernel("x", reader=LettersOneHot())
    task = Task(chosen, 1, letters=LettersEncoder(kind="letters", encoding=encoding), kernels=kernels)
    fitted = fit(task, X, y[:, None].astype(np.int8), np.arange(600) % 2)
    return roc_auc_score(y_new, fitted.scores(X_new)[:, 0])


@pytest.mark.parametrize("kind, settings, encoding", [LACKING[0], LACKING[2], LACKING[7]])
def test_a_missing_chain_tells_nothing(kind, settings, encoding):
    assert abs(of_missing(kind, settings, encoding) - 0.5) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("kind, settings, encoding", LACKING)
def test_a_missing_chain_tells_no_kind_anything(kind, settings, encoding):
    assert abs(of_missing(kind, settings, encoding) - 0.5) < 0.06
