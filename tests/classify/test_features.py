import numpy as np
import pytest

from airrformer.classify.features import name_classes, read_inputs, read_labelled
from airrformer.config import load_config
from airrformer.embed.store import Features, write_features
from airrformer.errors import UserError
from airrformer.receptors.tables import read_receptors, write_table


def study_of(make_study, labels, order=None):
    X = np.arange(len(labels), dtype=np.float32)[:, None] * [[1, 10]]
    return make_study(X.astype(np.float32), labels, order=order)


def test_rows_are_joined_by_id(make_study):
    study = study_of(make_study, [["A"], ["B"], [], ["A", "B"]], order=[3, 1, 0, 2])
    data = read_labelled(study.config, "toy", study.results)
    assert data.ids == ["r000", "r001", "r003"] and data.unlabelled == 1
    X = read_inputs(study.config, study.target, study.results, data).whole
    assert X.tolist() == [[0, 0], [1, 10], [3, 30]] and X.dtype == np.float64
    assert data.labels(np.zeros(3, dtype=int), 0)[0].tolist() == [[1, 0], [0, 1], [1, 1]]


def test_a_receptor_without_features_is_an_error(make_study):
    study = study_of(make_study, [["A"], ["B"], ["A"]])
    path = study.results.features("toy", "numbers", "mean")
    write_features(Features(["r000", "r001"], np.zeros((2, 1), dtype=np.float32), ["TRB_0"]), path)
    with pytest.raises(UserError, match=r"features.parquet: no features for 1 of 3 receptors \(such as r002\)"):
        read_inputs(study.config, study.target, study.results, read_labelled(study.config, "toy", study.results))


def test_no_label_at_all_is_an_error(make_study):
    study = study_of(make_study, [["A"], ["B"]])
    receptors = read_receptors(study.results.receptors("toy"))
    receptors["label"] = [[], []]
    write_table(receptors, study.results.receptors("toy"))
    with pytest.raises(UserError, match="no receptor has a label"):
        read_labelled(study.config, "toy", study.results)


def test_class_names():
    assert name_classes([["B"], ["A"]], None) == ["A", "B"]
    assert name_classes([["B"], ["A"]], ["B", "A", "absent"]) == ["B", "A"]
    assert name_classes([["1"], ["0"]], None) == ["1"]
    assert name_classes([["1"], ["-1"]], None) == ["1"]
    assert name_classes([["2"], ["1"], ["0"]], None) == ["0", "1", "2"]


def test_a_background_that_is_not_there_is_an_error(make_study):
    study = study_of(make_study, [["A"], ["B"], ["A"]])
    values = study.config.model_dump(mode="json")
    values["datasets"]["toy"]["negatives"] = {"methods": ["background"]}
    with pytest.raises(UserError, match="the background is receptors without any label, and there is none"):
        read_labelled(load_config(values), "toy", study.results)
