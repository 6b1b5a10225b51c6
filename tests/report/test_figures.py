import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from airrformer.report.figures import calibration, map_figure, masked_figure, mean_curve, palette, splits_figure
from airrformer.report.findings import calibration_sentence
from airrformer.report.svg import MARKERS, marker, number, tag, ticks


def predictions(n=600, folds=3, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    return pd.DataFrame({"seed": 1, "fold": rng.integers(0, folds, n), "label": label, "score": rng.normal(label)})


@pytest.mark.parametrize(("kind", "metric"), [("roc", roc_auc_score), ("pr", average_precision_score)])
def test_the_area_under_a_mean_curve_is_the_mean_of_the_folds(kind, metric):
    table = predictions()
    expected = np.mean([metric(fold["label"], fold["score"]) for _, fold in table.groupby("fold")])
    x, y = np.array(mean_curve(kind, table)).T
    assert np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) == pytest.approx(expected, abs=0.01)


def test_folds_with_one_label_are_left_out_and_nothing_is_drawn_without_any():
    table = predictions()
    table.loc[table["fold"] == 0, "label"] = 1
    assert mean_curve("roc", table) == mean_curve("roc", table[table["fold"] != 0])
    assert mean_curve("pr", table.assign(label=0)) == []


def test_calibration_compares_scores_with_what_happened():
    rng = np.random.default_rng(1)
    score = rng.uniform(size=20_000)
    table = calibration(pd.DataFrame({"score": score, "label": (rng.uniform(size=len(score)) < score).astype(int)}))
    assert len(table) == 10 and (table["score"] - table["share"]).abs().max() < 0.05
    assert ((table["low"] < table["share"]) & (table["share"] < table["high"])).all()
    assert calibration_sentence(table).startswith("Scores can be read as probabilities")
    assert calibration_sentence(table.assign(share=table["share"] / 4)).endswith("and too high.")
    assert len(calibration(pd.DataFrame({"score": [0.1, 1.0], "label": [0, 1]}))) == 0


def test_alternative_text_and_escaping():
    rows = [("<b>x</b>", {"random": {"value": 0.8, "low": 0.7, "high": 0.9}, "group": {"value": None}})]
    svg = splits_figure("s", "a & b", rows, ["random", "group"])
    assert "<b>" not in svg and "&lt;b&gt;x&lt;/b&gt;" in svg
    assert 'role="img"' in svg and 'aria-labelledby="s-title s-desc"' in svg
    assert "random 0.80 [0.70, 0.90], group undefined" in svg


def test_a_masked_figure_frames_the_true_residue_and_stands_unknown_ones():
    letters = "ACDEFGHIKLMNPQRSTVWY"
    table = pd.DataFrame([{"position": 90, "residue": "C"} | {x: 0.05 for x in letters},
                          {"position": 91, "residue": "X"} | {x: 0.05 for x in letters}])  # fmt: skip
    svg = masked_figure("m", "scratch", table)
    assert svg.count('class="frame"') == 1 and svg.count('class="cell"') == 40
    assert "C1 0.05, X2 undefined" in svg


def test_maps_draw_each_receptor_once_and_name_the_rest_other():
    places = pd.DataFrame({"tsne_1": [0.0, 1, 2, np.nan], "tsne_2": [0.0, 1, 2, 3]})
    svg = map_figure("t", "by label", places, pd.Series(["a", "b", "z", "a"]), palette(["a", "b"]))
    assert "map of 3 receptors: a 1, b 1, other 1" in svg
    assert svg.count("<path") == 3


def test_classes_differ_by_colour_and_shape():
    marks = palette([str(i) for i in range(40)])
    assert len({(mark.colour, mark.shape) for mark in marks.values()}) == 40
    assert len({marker(kind, 0, 0, 5) for kind in range(MARKERS)}) == MARKERS


def test_ticks_and_numbers_are_round():
    assert ticks(0.45, 0.9, 5) == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert ticks(0, 1500, 5) == [0, 500, 1000, 1500]
    assert ticks(1, 1) == [1]
    assert [number(x) for x in (1.0, 1.25, -0.01)] == ["1", "1.2", "0"]
    assert tag("a", "<", href='"') == '<a href="&#34;">&lt;</a>'
