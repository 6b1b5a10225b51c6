"""The page of a measured value: ranked by Spearman, predicted against measured, and no word of AUROC."""

import re

import numpy as np
import pandas as pd
import pytest

from airrformer.config import load_config
from airrformer.paths import Results, write_json
from airrformer.receptors.tables import write_table
from airrformer.report import write_leaderboard
from airrformer.report.page import render

SKILL = {"knn": 0.4, "ridge": 0.7}  # correlation of prediction and value
N = 80


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    config = load_config(
        {
            "datasets": {
                "developability": {
                    "sequences": "data/gdpa1.csv",
                    "receptor": "antibody",
                    "chains": ["heavy", "light"],
                    "labels": {"column": "Titer"},
                    "groups": {"fold": "fold"},
                    "task": "regression",
                }
            },
            "encoders": {"blosum62": {"kind": "blosum62"}},
            "poolings": {"mean": {"kind": "mean"}},
            "classifiers": {
                "knn": {"kind": "k_nearest_neighbors"},
                "ridge": {"kind": "ridge"},
            },
            "evaluation": {"splits": ["random", "given"], "given": "fold"},
        }
    )
    results = Results(tmp_path_factory.mktemp("regression") / "results")
    for target in config.expand_targets():
        judged, predictions = judge(SKILL[target.classifier])
        folder = results.classifier(*target)
        write_json(folder / "metrics.json", {"version": 2, "target": target._asdict()} | judged)
        write_table(predictions, folder / "predictions.tsv")
    found = {
        "length_only": {"kind": "shortcut", "what": "the lengths of the CDR3s"} | judge(0.68)[0],
        "kmers": {"kind": "strong", "what": "3-mers of the CDR3s and the genes"} | judge(0.66)[0],
        "class_only": {"kind": "shortcut", "what": "how common a class is"} | judge(None)[0],
    }
    path = results.baselines("developability") / "metrics.json"
    write_json(path, {"version": 1, "dataset": "developability", "baselines": found, "leaks": [], "corpora": {}})
    ridge = "blosum62/mean/ridge"
    rows = [
        row
        for split in ("random", "given")
        for row in (
            ("blosum62/mean/knn", ridge, split, -0.3, -0.4, -0.2, 0.01, 0.03, 4, ""),
            ("baseline/length_only", ridge, split, -0.02, -0.2, 0.1, 0.8, 1.0, 4, ""),
            ("baseline/kmers", ridge, split, -0.04, -0.2, 0.1, 0.5, 1.0, 4, ""),
            (
                "baseline/class_only",
                ridge,
                split,
                np.nan,
                np.nan,
                np.nan,
                np.nan,
                np.nan,
                0,
                "fewer than 2 folds: no test",
            ),
        )
    ]
    columns = ["a", "b", "split", "difference", "low", "high", "p", "p_holm", "folds", "note"]
    write_table(pd.DataFrame(rows, columns=columns), results.comparisons("developability"))
    summary = {"receptors": N, "records": N, "chains": 2 * N, "files": ["data/gdpa1.csv"], "molecule": "protein"}
    summary |= {"rejected": {}, "notes": [], "labels": None}
    write_json(results.parse_summary("developability"), summary)
    ids = [f"mab_{i:02d}" for i in range(N)]
    rng = np.random.default_rng(3)
    places = {name: rng.normal(size=N) for name in ("pca_1", "pca_2", "tsne_1", "tsne_2")}
    values = pd.DataFrame({"receptor_id": ids, "label": np.linspace(10, 400, N)})
    write_table(values.assign(**places), results.map("developability", "blosum62", "mean"))
    return config, results


def judge(skill: float | None) -> tuple[dict, pd.DataFrame]:
    rng = np.random.default_rng(5)
    value = np.linspace(10, 400, N)
    tables, splits = [], {}
    for split in ("random", "given"):
        noise = rng.normal(size=N) * 80
        predicted = np.full(N, 200.0) if skill is None else 200 + skill * (value - 200) + noise * (1 - skill)
        place = {"split": split, "seed": 1, "fold": np.arange(N) % 4, "class": "Titer"}
        ids = [f"mab_{i:02d}" for i in range(N)]
        tables.append(pd.DataFrame(place | {"receptor_id": ids, "label": value, "score": predicted}))
        rho = None if skill is None else skill
        scores = {"spearman": interval(rho), "pearson": interval(rho), "rmse": interval(62.5)}
        macro = {name: s | {"low_classes": s["low"], "high_classes": s["high"]} for name, s in scores.items()}
        splits[split] = {
            "n_groups": None,
            "group": None,
            "notes": [],
            "leakage": {"exact": 0, "distance_1": 0, "distance_2": 1, "of": N},
            "n_tested": N,
            "classes": {"Titer": {"n": N} | scores},
            "macro": macro,
            "chosen": [{"seed": 1, "fold": fold} for fold in range(4)],
        }
    metrics = {
        **{"task": "regression", "n_receptors": N, "n_features": 60, "classes": ["Titer"], "left_out": [], "seed": 7},
        **{"folds": 4, "seeds": [1], "negatives": {}, "splits": splits, "notes": [], "versions": {}, "settings": {}},
    }
    return metrics, pd.concat(tables)


def interval(value: float | None) -> dict:
    return {"value": value, "low": value and value - 0.1, "high": value and value + 0.1}


def test_the_page_speaks_of_spearman_and_never_of_auroc(measured):
    page = render(*measured)
    own = re.sub(r"<style>.*?</style>|<script>.*?</script>|<pre>.*?</pre>", "", page, flags=re.S)
    text = " ".join(re.sub(r"<[^>]+>", "", own).split())
    assert "AUROC" not in text and "Prevalence" not in text and "Brier" not in text
    assert "trained 2 regressors to predict a measured value" in text
    assert (
        "On developability the best model (blosum62 / mean / ridge) reaches a Spearman correlation of "
        "0.70 [0.60, 0.80] when receptors are split at random and 0.70 [0.60, 0.80] in the folds that were given"
    ) in text
    assert "length_only does as well as the best model in developability." in text
    assert "class_only does" not in text and "class_only and" not in text
    assert "Plain models that are not clearly beaten in developability." in text
    assert "lowest quarter" in text
    assert "The difference is that of the Spearman correlation, below 0 where the other model is behind" in text
    assert "Paired comparisons in the given split: it is not better than all of the 3 other models" in text
    assert "kmers (3-mers of the CDR3s and the genes): -0.04 [-0.20, 0.10], p 1.00" in text.replace("−", "-")


def test_predicted_is_drawn_against_measured(measured):
    page = render(*measured)
    scatters = re.findall(r'<svg[^>]*aria-labelledby="scatter-(\w+)-0-title[^>]*>.*?</svg>', page, flags=re.S)
    assert scatters == ["random", "given"]
    assert "80 receptors; Spearman correlation 0.70 [0.60, 0.80]." in page


def test_the_leaderboard_has_the_numbers_of_a_regression(measured):
    config, results = measured
    table = write_leaderboard(config, results)
    names = ("knn", "ridge", "length_only", "kmers", "class_only")
    assert list(table["classifier"]) == [name for name in names for _ in range(2)]
    row = table[(table["classifier"] == "ridge") & (table["split"] == "given")].iloc[0]
    assert (row["spearman"], row["spearman_low"], row["rmse"], row["kind"]) == (0.7, 0.6, 62.5, "model")
    assert table["auroc"].isna().all() and (table["status"] == "ok").all()
    assert table[table["classifier"] == "class_only"]["spearman"].isna().all()
