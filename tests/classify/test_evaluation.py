"""The whole stage on small studies: what leaks shows, what does not stays at chance, and nothing hangs on row order."""

import json

import numpy as np
import pandas as pd
import pytest

from airrformer.classify import classify
from airrformer.classify.judging import inner_folds
from airrformer.config import load_config
from airrformer.errors import UserError


def run(study):
    return classify(study.config, study.target, study.results, study.output)


def predictions(study):
    return pd.read_csv(study.output / "predictions.tsv", sep="\t")


def leaky(n_groups=24, each=6, seed=0):
    """Features tell the group and nothing else; each group has one label."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), each)
    X = rng.normal(size=(n_groups, 40))[groups] + 0.2 * rng.normal(size=(n_groups * each, 40))
    labels = [[["A", "B", "C"][g % 3]] for g in groups]
    return X.astype(np.float32), labels, [f"d{g}" for g in groups]


def signal(n=120, seed=0, strength=1.5):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 8)) + strength * np.eye(3, 8)[which]
    return X.astype(np.float32), [[["A", "B", "C"][k]] for k in which], [f"d{i}" for i in rng.integers(0, 12, n)]


@pytest.mark.parametrize("classifier", ["logistic", "neighbors"])
def test_a_leak_through_groups_shows_side_by_side(make_study, classifier):
    metrics = run(make_study(*leaky(), classifier=classifier))
    random, group = (metrics["splits"][split]["macro"]["auroc"] for split in ("random", "group"))
    assert random["value"] > 0.9
    assert group["value"] < 0.65 and group["low"] < 0.55
    assert metrics["splits"]["group"]["n_groups"] == 24 and metrics["splits"]["group"]["group"] == "donor"


@pytest.mark.parametrize("classifier", ["logistic", "neighbors"])
def test_shuffled_labels_are_at_chance(make_study, classifier):
    X, labels, groups = signal(n=180, seed=3)
    macro = []
    for seed in range(3):
        shuffled = [labels[i] for i in np.random.default_rng(seed).permutation(len(labels))]
        study = make_study(X, shuffled, groups, classifier=classifier, splits=["random", "group"])
        macro += [split["macro"] for split in run(study)["splits"].values()]
    for metric, chance in (("auroc", 0.5), ("auc01", 0.5), ("mcc", 0)):
        assert abs(np.mean([entry[metric]["value"] for entry in macro]) - chance) < 0.06, metric
    # the intervals leave out how training falls out, so one of 95 % may miss chance a little more often than that
    assert sum(entry["auroc"]["low"] < 0.5 < entry["auroc"]["high"] for entry in macro) >= 4


@pytest.mark.parametrize("classifier", ["logistic", "neighbors"])
def test_same_input_same_bytes_in_any_order(make_study, classifier):
    X, labels, groups = signal()
    found = []
    for folder, order in (("a", None), ("b", None), ("c", np.random.default_rng(1).permutation(len(labels)))):
        study = make_study(X, labels, groups, classifier=classifier, order=order, folder=folder, seeds=[1, 2])
        found.append((json.dumps(run(study)), (study.output / "predictions.tsv").read_bytes()))
    assert found[0] == found[1] == found[2]


def test_the_files_follow_the_contract(make_study):
    study = make_study(*signal(), seeds=[1, 2])
    returned = run(study)
    metrics = json.loads((study.output / "metrics.json").read_text())
    assert metrics == returned
    assert list(metrics)[:10] == [
        "version", "target", "task", "n_receptors", "n_features", "classes", "left_out", "seed", "folds", "seeds",
    ]  # fmt: skip
    assert metrics["n_receptors"] == 120 and metrics["n_features"] == 8 and metrics["classes"] == ["A", "B", "C"]
    for name, split in metrics["splits"].items():
        assert split["n_tested"] == 120 and split["leakage"]["of"] == 240
        assert (split["n_groups"] is None) == (name == "random")
        assert sum(entry["n_positive"] for entry in split["classes"].values()) == 120
        for entry in [split["macro"], *split["classes"].values()]:
            for metric in ("auroc", "auprc", "auc01", "mcc"):
                assert entry[metric]["low"] <= entry[metric]["value"] <= entry[metric]["high"]
    table = predictions(study)
    assert table.columns.tolist() == [
        "split", "seed", "fold", "class", "receptor_id", "label", "score", "probability", "decision",
    ]  # fmt: skip
    assert len(table) == 3 * 2 * 3 * 120
    assert table.groupby(["split", "seed", "class"])["receptor_id"].nunique().eq(120).all()
    assert table["score"].between(0, 1).all() and set(table["decision"]) == {0, 1}
    assert (study.output / "model" / "estimator.skops").is_file()


def test_the_numbers_are_those_of_the_predictions(make_study):
    from sklearn.metrics import average_precision_score, matthews_corrcoef, roc_auc_score

    study = make_study(*signal(), splits=["random"], top_k=20)
    metrics = run(study)
    table = predictions(study)
    for name, entry in metrics["splits"]["random"]["classes"].items():
        folds = [fold for _, fold in table[table["class"] == name].groupby("fold")]
        assert entry["auroc"]["value"] == pytest.approx(np.mean([roc_auc_score(f["label"], f["score"]) for f in folds]))
        assert entry["auprc"]["value"] == pytest.approx(
            np.mean([average_precision_score(f["label"], f["score"]) for f in folds])
        )
        assert entry["mcc"]["value"] == pytest.approx(
            np.mean([matthews_corrcoef(f["label"], f["decision"]) for f in folds])
        )
        top = [f.nlargest(20, "score")["label"].mean() for f in folds]
        assert entry["precision_at_k"]["value"] == pytest.approx(np.mean(top))


def test_neither_scores_nor_thresholds_see_the_test_labels(make_study):
    X, labels, _ = signal(n=90)
    groups = [f"d{i % 3}" for i in range(90)]  # three groups: each is one fold
    study = make_study(X, labels, groups, splits=["group"], folder="a")
    run(study)
    before = predictions(study)
    fold = before.loc[before["receptor_id"] == "r000", "fold"].iloc[0]
    d0 = range(0, 90, 3)
    turned = dict(zip(d0, [labels[i] for i in [*d0][1:] + [*d0][:1]]))  # other labels, as many of each class
    study = make_study(
        X, [turned.get(i, label) for i, label in enumerate(labels)], groups, splits=["group"], folder="b"
    )
    run(study)
    after = predictions(study)
    columns = ["class", "receptor_id", "score", "decision"]
    before, after = (table[table["fold"] == fold].reset_index(drop=True) for table in (before, after))
    assert set(before["receptor_id"]) == {f"r{i:03d}" for i in d0}
    pd.testing.assert_frame_equal(before[columns], after[columns])
    assert (before["label"] != after["label"]).any()


def test_a_class_within_one_group_is_undefined_not_chance(make_study):
    X, labels, groups = signal()
    groups = ["d0" if group == "d1" else group for group in groups]
    labels = [["A"] if group == "d0" else [name[0].replace("A", "B")] for name, group in zip(labels, groups)]
    metrics = run(make_study(X, labels, groups))
    judged = metrics["splits"]["group"]["classes"]["A"]
    for metric in ("auroc", "auprc", "auc01", "mcc"):
        assert judged[metric] == {"value": None, "low": None, "high": None}
    assert metrics["splits"]["group"]["macro"]["auroc"]["value"] is not None
    assert metrics["splits"]["random"]["classes"]["A"]["auroc"]["value"] is not None
    assert any(note.startswith("A, split group: judged in 0 of 3 folds") for note in metrics["notes"])


def test_a_fold_without_positives_does_not_count(make_study):
    X, labels, groups = signal()
    # class A in two groups of the twelve: one fold of three has none of it
    labels = [["A"] if group in ("d0", "d1") else [name[0].replace("A", "B")] for name, group in zip(labels, groups)]
    study = make_study(X, labels, groups, splits=["group"])
    metrics = run(study)
    assert metrics["splits"]["group"]["classes"]["A"]["auroc"]["value"] is not None
    assert any(note.startswith("A, split group: judged in 2 of 3 folds") for note in metrics["notes"])


def test_small_classes_are_left_out_and_said_so(make_study):
    X, labels, groups = signal()
    labels = [["rare"] if i < 5 else label for i, label in enumerate(labels)]
    metrics = run(make_study(X, labels, groups, splits=["random"]))
    assert metrics["classes"] == ["A", "B", "C"] and metrics["n_receptors"] == 120
    assert metrics["left_out"] == [{"class": "rare", "n": 5, "reason": "5 receptors, but 3 folds need at least 6"}]


def test_no_class_is_an_error(make_study):
    study = make_study(signal(n=20)[0], [["A"]] * 20)
    said = r"A: no receptor counts as not of it; say which do: rows that say no \(labels.value\), .*background"
    with pytest.raises(UserError, match=f"no class is large enough to be judged .{said}"):
        run(study)
    assert not study.output.exists()


def test_a_split_without_groups_is_skipped(make_study):
    X, labels, _ = signal()
    metrics = run(make_study(X, labels))
    assert "names no groups" in metrics["splits"]["group"]["skipped"]
    assert metrics["splits"]["random"]["macro"]["auroc"]["value"] > 0.7
    assert metrics["settings"]["final"]["tuned_by"] == "cluster"


def test_a_chain_that_no_receptor_has_is_said_once_and_noted(make_study, caplog):
    study = make_study(*signal(), splits=["random"])
    config = study.config.model_dump(mode="json")
    config["datasets"]["toy"] |= {"chains": ["TRA", "TRB"], "missing_chain": "zero"}
    study.config = load_config(config)
    with caplog.at_level("WARNING"):
        metrics = run(study)
    said = "None of the 120 receptors has the chain TRA that the dataset's chains name"
    assert [said in note for note in metrics["notes"]].count(True) == 1
    assert not any("chain TRB" in note for note in metrics["notes"])
    assert caplog.text.count(said) == 1


def test_leakage_is_counted(make_study):
    X, labels, _ = signal(n=60)
    rng = np.random.default_rng(2)
    cdr3 = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 12)) for _ in range(60)]
    cdr3[20:40] = cdr3[:20]  # twins
    cdr3[40:60] = ["W" + s[1:] if s[0] != "W" else "A" + s[1:] for s in cdr3[:20]]  # one edit away
    metrics = run(make_study(X, labels, cdr3=cdr3, splits=["random", "cluster"]))
    random, cluster = (metrics["splits"][split]["leakage"] for split in ("random", "cluster"))
    assert random["exact"] == 0 and 0 < random["distance_1"] <= 60
    assert (
        "40 receptors are of 20 sets with the same chains; a set shares a fold." in metrics["splits"]["random"]["notes"]
    )
    assert (cluster["exact"], cluster["distance_1"], cluster["of"]) == (0, 0, 60)
    assert metrics["splits"]["cluster"]["n_groups"] == 20


def test_several_classes_of_one_receptor(make_study):
    X, labels, groups = signal()
    labels = [[*label, "B"] if label == ["A"] and i % 2 else label for i, label in enumerate(labels)]
    study = make_study(X, labels, groups, splits=["random"])
    metrics = run(study)
    table = predictions(study)
    both = f"r{next(i for i, label in enumerate(labels) if len(label) == 2):03d}"
    assert table[(table["receptor_id"] == both) & (table["label"] == 1)]["class"].tolist() == ["A", "B"]
    assert any("several classes" in note for note in metrics["notes"])


def test_one_and_zero_are_one_class(make_study):
    X, labels, groups = signal()
    metrics = run(make_study(X, [["1"] if label == ["A"] else ["0"] for label in labels], groups))
    assert metrics["classes"] == ["1"]
    assert metrics["splits"]["random"]["macro"]["auroc"]["value"] > 0.7


def test_inner_folds_keep_twins_together_where_groups_are_too_few():
    Y = np.tile(np.array([[1], [0]], dtype=np.int8), (20, 1))
    alone, twins = np.arange(40), np.arange(40) // 4
    folds = inner_folds(["a"] * 20 + ["b"] * 20, Y, "1/0", twins)
    assert set(folds) == {0, 1, 2} and all(len(set(four)) == 1 for four in folds.reshape(10, 4))
    # groups are kept where there are enough of them, whoever is whose twin
    assert all(
        len(set(five)) == 1 for five in inner_folds([f"g{i // 5}" for i in range(40)], Y, "", alone).reshape(8, 5)
    )
