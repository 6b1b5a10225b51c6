import json
import pickle
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.svm import SVC

from airrformer.classify import classify
from airrformer.classify.families import PerClass
from airrformer.classify.features import read_inputs, read_labelled
from airrformer.classify.persistence import TRUSTED_TYPES, _same_bytes, check_encoders, load_model
from airrformer.classify.vectors import KINDS
from airrformer.errors import UserError


@pytest.fixture
def study(make_study):
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, 60)
    X = (rng.normal(size=(60, 6)) + which[:, None]).astype(np.float32)

    def make(classifier="logistic"):
        study = make_study(X, [[["A", "B"][k]] for k in which], classifier=classifier, splits=["random"])
        classify(study.config, study.target, study.results, study.output)
        return study

    return make


@pytest.mark.parametrize("classifier", ["logistic", "neighbors"])
def test_the_saved_model_scores_as_it_did(study, classifier):
    study = study(classifier)
    saved = load_model(study.output / "model")
    description = saved.description
    data = read_labelled(study.config, "toy", study.results)
    X = read_inputs(study.config, study.target, study.results, data).whole
    scores, Y = saved.predict(X), data.labels(np.zeros(60, dtype=int), 0)[0]
    assert scores[Y == 1].mean() > 0.6 > 0.4 > scores[Y == 0].mean()
    assert saved.training.ids == data.ids and set(saved.training.labels) == {"A", "B"}
    assert description["classes"] == ["A", "B"] and len(description["thresholds"]) == 2
    assert description["n_features"] == 6 and description["n_receptors"] == 60
    assert description["encoders"] == [{"name": "numbers", "kind": "blosum62", "directory": None, "sha256": None}]
    assert check_encoders(description, study.output / "model").root == str(study.results.root)


def test_the_folder_may_move_with_its_results(study, tmp_path):
    study = study()
    (tmp_path / "elsewhere").mkdir()
    moved = study.results.root.rename(tmp_path / "elsewhere" / "results")
    model = moved / study.output.relative_to(study.results.root) / "model"
    assert check_encoders(load_model(model).description, model).root == str(moved)


def test_what_is_not_trusted_does_not_load(study):
    study = study()
    path = study.output / "model" / "estimator.skops"
    skops.io.dump({"f": np.unpackbits, "g": subprocess.run}, path)
    with pytest.raises(UserError, match="no saved classifier of airrformer"):
        load_model(study.output / "model")
    skops.io.dump(SVC(), path)
    with pytest.raises(UserError, match="holds a SVC, not a classifier"):
        load_model(study.output / "model")
    path.write_bytes(pickle.dumps(SVC()))
    with pytest.raises(UserError, match="no saved classifier of airrformer"):
        load_model(study.output / "model")


def test_no_pickle_within(study):
    with zipfile.ZipFile(study().output / "model" / "estimator.skops") as archive:
        assert {name.rsplit(".", 1)[-1] for name in archive.namelist()} <= {"json", "npy", "npz"}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_same_model_is_the_same_bytes(kind):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 5)), rng.integers(0, 2, (60, 2)).astype(np.int8)
    small = {"random_forest": {"n_estimators": 3}, "gradient_boosting": {"max_iter": 3}, "mlp": {"max_iter": 5}}
    first, second = (PerClass(KINDS[kind].build(random_state=1, **small.get(kind, {}))).fit(X, Y) for _ in range(2))
    saved = _same_bytes(skops.io.dumps(first))
    assert saved == _same_bytes(skops.io.dumps(second)) == _same_bytes(saved)
    again = skops.io.loads(saved, trusted=list(TRUSTED_TYPES))
    np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))


def test_a_target_is_written_the_same_again(study):
    study = study()

    def files():
        paths = [path for path in study.output.rglob("*") if path.is_file()]
        return {path.relative_to(study.output).as_posix(): path.read_bytes() for path in paths}

    first = files()
    shutil.rmtree(study.output)
    classify(study.config, study.target, study.results, study.output)
    model = {f"model/{name}" for name in ("config.json", "estimator.skops", "training.parquet")}
    assert set(first) == {"card.md", "metrics.json", "predictions.tsv", *model}
    assert files() == first


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(UserError, match="cannot read the model"):
        load_model(tmp_path)
    for content in ("[]", '{"version": 1, "classes": ["a"]}'):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match="was not written by `airrformer classify`"):
            load_model(tmp_path)


def test_an_encoder_that_changed_or_went(study):
    study = study()
    model = study.output / "model"
    description = json.loads((model / "config.json").read_text())
    encoder = {"name": "scratch", "kind": "pretrain", "directory": "encoders/scratch", "sha256": "0" * 64}
    description["encoders"].append(encoder)
    with pytest.raises(UserError, match="the encoder of this model is not there"):
        check_encoders(description, model)
    weights = study.results.encoder("scratch") / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"other")
    with pytest.raises(UserError, match="not the weights that the model was trained on"):
        check_encoders(description, model)


def test_the_card_says_what_a_reader_needs(study):
    card = (study().output / "card.md").read_text()
    for expected in ("# toy/numbers/mean/logistic", "| A |", "| random | **macro** |", "Not for", "95 % bootstrap"):
        assert expected in card


def test_a_job_that_trains_does_not_import_torch(study):
    study = study()
    code = (
        "import sys; from airrformer.classify import classify; from airrformer.config import Target, load_config; "
        "from airrformer.paths import Results; a = sys.argv; "
        "classify(load_config(a[1]), Target(*a[2].split('/')), Results(a[3]), a[4]); "
        "assert 'torch' not in sys.modules"
    )
    arguments = [study.config.whole(), "/".join(study.target), str(study.results.root), str(study.output)]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, timeout=300)
