import logging

import numpy as np
import pandas as pd
import pytest

from airrformer.classify import classify, predict
from airrformer.classify.columns import ColumnsAsNumbers, summary, text_columns
from airrformer.config import load_config
from airrformer.errors import UserError
from airrformer.parse import parse_dataset
from airrformer.paths import Results
from airrformer.receptors.germlines import rebuild_chain


def test_words_become_columns_and_numbers_stay():
    train = pd.DataFrame({"isotype": ["IgG1", "IgG4", "", "IgG1"], "age": ["30", "", "50", "1e2"]})
    made = ColumnsAsNumbers().fit(train)
    assert made.transform(train).tolist() == [[1, 0, 30], [0, 1, 60], [0, 0, 50], [1, 0, 100]]
    other = pd.DataFrame({"isotype": ["IgM", "IgG4"], "age": ["old", "7"]})
    assert made.transform(other).tolist() == [[0, 0, 60], [0, 1, 7]]


def test_what_a_table_has_where_there_is_nothing_is_no_word():
    rows = [{"a": "x "}, {"a": None}, {"a": float("nan")}, {}]
    assert text_columns(rows, ["a"])["a"].tolist() == ["x", "", "", ""]


def test_numbers_that_are_none_are_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        said = summary(text_columns([{"a": f"{i},5", "b": str(i), "c": "xy"[i % 2]} for i in range(30)] + [{}], "abc"))
    assert said == "a: 30 words, 1 missing; b: numbers, 1 missing; c: 2 words, 1 missing"
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "column a: 30 words among 30 values"
    ]


def test_a_column_without_any_value_is_nothing():
    empty = pd.DataFrame({"a": ["", ""], "b": ["x", "y"]})
    assert ColumnsAsNumbers().fit(empty).transform(empty).tolist() == [[1, 0], [0, 1]]


@pytest.fixture
def study(tmp_path):
    """Receptors of which the isotype tells the label, and nothing else does."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        middle = "".join(rng.choice(list("ADEGNPQRST"), 6))
        chain = rebuild_chain("IGHV3-23*01", f"CAR{middle}YFDYW", "IGHJ4*02").sequence_aa
        rows.append([f"r{i:02d}", chain, ["IgG1", "IgG4"][i % 2], ["yes", "no"][(i % 2 + (i % 10 == 0)) % 2]])
    table = pd.DataFrame(rows, columns=["id", "VH", "isotype", "binds"])
    table.to_csv(tmp_path / "in.csv", index=False)
    config = load_config(
        {
            "datasets": {
                "ab": {
                    "sequences": str(tmp_path / "in.csv"),
                    "columns": {"receptor_id": "id", "heavy.sequence_aa": "VH"},
                    "receptor": "antibody",
                    "chains": ["heavy"],
                    "labels": {"column": "binds", "classes": ["yes", "no"]},
                    "groups": {"type": "isotype"},
                }
            },
            "encoders": {
                "isotype": {"kind": "columns", "columns": ["type"]},
                "letters": {"kind": "letters"},
            },
            "poolings": {"columns": {"kind": "columns"}, "letters": {"kind": "letters"}},
            "classifiers": {
                "both": {
                    "kind": "multi_kernel",
                    "kernels": [{"distance": {}}, {"encoder": "isotype", "pooling": "columns", "weight": 4}],
                },
                "logistic": {"kind": "logistic_regression"},
            },
            "evaluation": {"splits": ["random"], "bootstrap": 100, "baselines": False},
            "targets": [
                {"encoders": ["letters"], "classifiers": ["both"]},
                {"encoders": ["isotype"], "classifiers": ["logistic"]},
            ],
        }
    )
    results = Results(tmp_path / "results")
    parse_dataset(config.datasets["ab"], results.dataset("ab"))
    return config, results, table


def test_a_model_learns_from_columns_and_asks_for_them(study, tmp_path):
    config, results, table = study
    table.loc[[3, 10], "isotype"] = None
    table.to_csv(tmp_path / "in.csv", index=False)
    parse_dataset(config.datasets["ab"], results.dataset("ab"))
    assert not config.expand_embeddings()  # nothing is made of columns beforehand
    targets = config.expand_targets()
    assert [target[1:] for target in targets] == [("letters", "letters", "both"), ("isotype", "columns", "logistic")]
    table.iloc[::-1].drop(columns="binds").to_csv(tmp_path / "new.csv", index=False)
    table.drop(columns="isotype").to_csv(tmp_path / "bare.csv", index=False)
    for target in targets:
        metrics = classify(config, target, results, results.classifier(*target))
        assert metrics["splits"]["random"]["macro"]["auroc"]["value"] > 0.8
        card = (results.classifier(*target) / "card.md").read_text()
        assert "- **The type of a receptor tells its label**: the rate of positives" in card
        assert "keeps each type together. The model itself reads this column, by `isotype` (columns).\n" in card
        scores = predict(results.classifier(*target) / "model", tmp_path / "new.csv", tmp_path / "scores.tsv")
        assert scores["receptor_id"].tolist() == table["id"].tolist()[::-1]
        said = scores.set_index("receptor_id")["yes"].reindex(table["id"])
        assert said[(table["isotype"] == "IgG1").to_numpy()].min() > said[(table["isotype"] == "IgG4").to_numpy()].max()
        alone = tmp_path / "alone.csv"
        table.iloc[[3]].to_csv(alone, index=False)
        one = predict(results.classifier(*target) / "model", alone, tmp_path / "one.tsv")
        assert one["yes"].item() == pytest.approx(said.iloc[3], abs=1e-6)
        with pytest.raises(UserError, match="no column 'isotype' with values"):
            predict(results.classifier(*target) / "model", tmp_path / "bare.csv", tmp_path / "scores.tsv")


def test_a_dataset_without_the_column_is_not_read(study):
    config, *_ = study
    without = config.model_copy(update={"datasets": {"ab": config.datasets["ab"].model_copy(update={"groups": {}})}})
    assert without.fits("ab", "letters", "letters") and not without.fits("ab", "isotype", "columns")
