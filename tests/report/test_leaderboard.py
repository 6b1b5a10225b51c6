import json
import shutil

import pandas as pd
import pytest

from airrformer.errors import UserError
from airrformer.paths import Results
from airrformer.report import write_leaderboard
from airrformer.report.leaderboard import COLUMNS

from .conftest import BASELINES

CONTRACT = [
    *(
        "dataset",
        "encoder",
        "pooling",
        "classifier",
        "split",
        "status",
        "note",
        "n_receptors",
        "n_classes",
        "prevalence",
    ),
    *("auroc", "auroc_low", "auroc_high", "auprc", "auprc_low", "auprc_high"),
    *("auc01", "auc01_low", "auc01_high", "mcc", "mcc_low", "mcc_high"),
    *("auroc_low_classes", "auroc_high_classes"),
    *(
        f"{metric}{end}"
        for metric in ("precision_at_k", "brier_calibrated", "ece_calibrated", "spearman", "pearson", "rmse")
        for end in ("", "_low", "_high")
    ),
    "kind",
]


@pytest.fixture
def written(config, results, tmp_path):
    copied = Results(shutil.copytree(results.root, tmp_path / "results"))
    write_leaderboard(config, copied)
    return pd.read_csv(copied.leaderboard, sep="\t")


def test_a_row_for_each_target_and_split_in_the_order_of_the_config(config, written):
    assert list(written.columns) == CONTRACT == list(COLUMNS)
    models = written[written["kind"] == "model"]
    keys = models[["dataset", "encoder", "pooling", "classifier", "split"]].itertuples(index=False, name=None)
    expected = [(*target, split) for target in config.expand_targets() for split in config.evaluation.splits]
    assert list(keys) == expected
    assert list(written.index[: len(models)]) == list(models.index)


def test_baselines_have_rows_of_their_own(config, results, written):
    own = written[written["kind"] != "model"]
    assert set(own["encoder"]) == {"baseline"} and set(own["pooling"]) == {"-"}
    kinds = own.drop_duplicates("classifier").set_index("classifier")["kind"].to_dict()
    assert kinds == {name: kind for name, (kind, *_) in BASELINES.items()}
    assert len(own) == 2 * len(BASELINES) * 3
    found = json.loads((results.baselines("bnab") / "metrics.json").read_text())["baselines"]["kmers"]
    auroc = found["splits"]["group"]["macro"]["auroc"]
    row = own[(own["dataset"] == "bnab") & (own["classifier"] == "kmers") & (own["split"] == "group")].iloc[0]
    assert row["auroc"] == pytest.approx(auroc["value"], abs=1e-6)
    assert row["auroc_low_classes"] == pytest.approx(auroc["low_classes"], abs=1e-6)


def test_numbers_are_those_of_metrics_json(config, results, written):
    target = config.expand_targets()[0]
    metrics = json.loads((results.classifier(*target) / "metrics.json").read_text())
    row = written.iloc[2]
    assert row["split"] == "group" and row["status"] == "ok" and row["n_receptors"] == metrics["n_receptors"]
    for metric in ("auroc", "auprc", "auc01", "mcc"):
        found = metrics["splits"]["group"]["macro"][metric]
        assert row[metric] == pytest.approx(found["value"], abs=1e-6)
        assert row[f"{metric}_low"] == pytest.approx(found["low"], abs=1e-6)


def test_skipped_targets_have_a_row_a_note_and_no_numbers(written):
    skipped = written[written["encoder"] == "esm2_8m"]
    assert len(skipped) == 2 * 2 * 2 * 3 and (skipped["status"] == "skipped").all()
    assert skipped["note"].str.contains("esm2_t6_8M_UR50D.pt").all()
    assert skipped["n_receptors"].isna().all() and skipped["auroc"].isna().all()
    assert (written[written["encoder"] != "esm2_8m"]["status"] == "ok").all()


def test_an_undefined_metric_and_a_split_that_cannot_be_made_are_empty(config, results, tmp_path):
    copied = Results(shutil.copytree(results.root, tmp_path / "results"))
    target = config.expand_targets()[0]
    path = copied.classifier(*target) / "metrics.json"
    metrics = json.loads(path.read_text())
    metrics["splits"]["random"]["macro"]["auroc"] = {"value": None, "low": None, "high": None}
    metrics["splits"]["group"] = {"skipped": "there is one group only"}
    path.write_text(json.dumps(metrics))
    table = write_leaderboard(config, copied)
    assert pd.isna(table.loc[0, "auroc"]) and table.loc[0, "status"] == "ok" and table.loc[0, "mcc"] > 0
    assert table.loc[2, "status"] == "skipped" and table.loc[2, "note"] == "there is one group only"


def test_a_broken_result_file_is_named(config, results, tmp_path):
    copied = Results(shutil.copytree(results.root, tmp_path / "results"))
    path = copied.classifier(*config.expand_targets()[0]) / "metrics.json"
    path.write_text('{"version": 1,')
    with pytest.raises(UserError, match=r"metrics\.json: not valid JSON"):
        write_leaderboard(config, copied)
    assert not copied.leaderboard.exists()


def test_a_folder_without_results_is_a_mistake(config, tmp_path):
    with pytest.raises(UserError, match=r"no results of .* here; name the folder"):
        write_leaderboard(config, Results(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
