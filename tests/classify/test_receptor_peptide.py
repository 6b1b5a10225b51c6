"""Networks that read receptor and peptide: what they can learn, and what they must not."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from airrformer.classify import classify, predict
from airrformer.classify.metrics import auroc_by_column
from airrformer.classify.models import Task, fit, task_of
from airrformer.classify.pairs import Pairs, joined, write_loops, write_peptides
from airrformer.classify.peptides import (
    epitope_folds,
    leave_epitope_out,
    measure,
    nearest_receptor,
    network,
    over_epitopes,
    peptide_groups,
    peptide_similarity,
    score_peptides,
    shortcuts,
)
from airrformer.classify.persistence import load_model
from airrformer.classify.receptor_peptide import ReceptorPeptideClassifier, Slots, peptides_of
from airrformer.config import LettersEncoder, Target, load_config
from airrformer.errors import UserError
from airrformer.parse import parse_dataset
from airrformer.paths import Results

FAST = {"width": 32, "layers": 1, "feed_forward": 64, "dropout": 0.0, "learning_rate": 4e-3, "batch_size": 64}
FAST |= {"ratio": 2, "max_epochs": 14, "patience": 10, "looks": "peptide"}
PARTNER = {"D": "K", "K": "D"}  # of the fifth residue of a peptide, in the middle of the CDR3 that binds it


def some(rng, n, letters="AGSTNQVLIFY"):
    return "".join(rng.choice(list(letters), n))


def world(rng, receptors=400, peptides=16):
    """A receptor's CDR3 has D or K in its middle; it binds the peptides with the other one of these at place 5.

    Letters (n,), peptides, Y int8 (n, K): half of the peptides have D, half K, and so have the receptors.
    """
    middle = np.array(["D", "K"])[np.arange(receptors) % 2]
    cdr3 = [f"AS{some(rng, int(rng.integers(2, 4)))}{residue}{some(rng, 3)}QY" for residue in middle]
    fifth = np.array(["D", "K"])[np.arange(peptides) % 2]
    sought = [f"{some(rng, 4)}{residue}{some(rng, 4)}" for residue in fifth]
    Y = (middle[:, None] == np.vectorize(PARTNER.get)(fifth)).astype(np.int8)
    letters = pd.DataFrame(
        {"TRB_cdr1": "SGHNS", "TRB_cdr2": "YN", "TRB_cdr3": cdr3, "TRB_v": "TRBV9", "TRB_sequence": cdr3}
    )
    return letters, sought, Y


@pytest.fixture(scope="module")
def study():
    """What is learned from, of which nine in ten pairs are unknown, and 200 new receptors."""
    rng = np.random.default_rng(0)
    X, peptides, Y = world(rng, peptides=44)
    known = np.where(rng.random(Y.shape) < 0.1, Y, -1).astype(np.int8)
    return X[:300], known[:300], peptides, X[300:], Y[300:]


def macro(model, X, peptides, Y):
    return auroc_by_column(Y, model.score(X, peptides)).mean()


# ------------------------------------------------------------------------------------------------- what they learn


@pytest.mark.parametrize(
    "form, looks",
    [
        ("cross", "receptor"),
        ("cross", "peptide"),
        pytest.param("cross", "both", marks=pytest.mark.slow),
        pytest.param("joint", "", marks=pytest.mark.slow),
    ],
)
def test_a_rule_is_learned_and_holds_for_peptides_that_are_new(study, form, looks):
    X, known, peptides, X_new, Y_new = study
    learned = np.arange(44) < 32
    settings = FAST | {"form": form, "looks": looks or "receptor"}
    model = ReceptorPeptideClassifier(peptides[:32], **settings).fit(X, known[:, learned])
    assert macro(model, X_new, peptides[:32], Y_new[:, learned]) > 0.95
    assert macro(model, X_new, peptides[32:], Y_new[:, ~learned]) > 0.9
    P = model.predict_proba(X_new)
    assert P.shape == (100, 32) and P.dtype == np.float64 and ((P >= 0) & (P <= 1)).all()
    np.testing.assert_allclose(model.decision_function(X_new), model.score(X_new, peptides[:32]))


@pytest.mark.parametrize("sees", ["receptor", "peptide"])
def test_one_side_alone_tells_nothing(study, sees):
    X, known, peptides, X_new, Y_new = study
    model = ReceptorPeptideClassifier(peptides, **FAST | {"sees": sees, "max_epochs": 6}).fit(X, known)
    scores = model.score(X_new, peptides)
    if sees == "peptide":
        np.testing.assert_allclose(scores, np.broadcast_to(scores[:1], scores.shape), atol=1e-6)
    else:
        np.testing.assert_allclose(scores, np.broadcast_to(scores[:, :1], scores.shape), atol=1e-6)
        # who binds D peptides does not bind K peptides: what is right for one half is wrong for the other
        assert auroc_by_column(Y_new, scores).mean() == pytest.approx(0.5)
    assert np.abs(scores - np.log(1 / 2)).max() < 1.0  # a positive has two negatives, whoever the epitope is


def test_labels_given_to_others_teach_nothing(study):
    X, known, peptides, X_new, Y_new = study
    shuffled = known[np.random.default_rng(3).permutation(len(known))]
    model = ReceptorPeptideClassifier(peptides, **FAST | {"max_epochs": 6}).fit(X, shuffled)
    # Receptors and peptides are of two kinds each, so that chance is coarse: 0.45 to 0.61 over permutations and numbers
    # of threads, where what is learned reaches 0.95.
    assert abs(macro(model, X_new, peptides, Y_new) - 0.5) < 0.2


def test_peptides_held_out_for_stopping_are_not_learned(study):
    X, known, peptides, _, _ = study
    settings = FAST | {"hold_out": "peptides", "validation": 0.25, "max_epochs": 1}

    def weights(Y):
        return ReceptorPeptideClassifier(peptides, **settings).fit(X, Y).weights_[0]

    model = ReceptorPeptideClassifier(peptides, **settings)
    (held,) = model._held_out(np.unique(peptides, return_inverse=True)[1])
    assert held.sum() == 11
    before = weights(known)
    for k, same in ((np.flatnonzero(held)[0], True), (np.flatnonzero(~held)[0], False)):
        other = known.copy()
        other[:, k] = known[::-1, k]  # as many of each label
        after = weights(other)
        assert all((before[name] == after[name]).all() for name in before) == same


# -------------------------------------------------------------------------------------------- what is drawn, and read


def test_no_epitope_has_more_negatives_for_a_positive_than_another():
    Y = np.full((100, 3), -1, dtype=np.int8)
    Y[:64, 0], Y[64:, 0] = 1, 0  # 64 positives
    Y[64:68, 1], Y[:40, 1] = 1, 0  # 4 positives
    Y[70, 2] = 1  # no negative
    slots = Slots(Y, ratio=3, balance=0.5)
    # 68 positives, shared as 8 to 2
    assert np.bincount(slots.classes[slots.labels == 1]).tolist() == [54, 14]
    assert np.bincount(slots.classes[slots.labels == 0]).tolist() == [162, 42]
    drawn = slots.draw(np.tile(np.arange(len(slots)), 20), np.random.default_rng(0))
    classes, labels = np.tile(slots.classes, 20), np.tile(slots.labels, 20)
    assert (Y[drawn, classes] == labels).all()
    # a positive of the rare class stands for 14 / 4 pairs, and is a negative of the other so much more often than
    # a receptor of no class
    times = np.bincount(drawn[(classes == 0) & (labels == 0)], minlength=100)
    assert times[64:68].mean() / times[80:].mean() == pytest.approx(3.5, rel=0.1)
    some = np.random.default_rng(1).permutation(len(slots))[:100]
    few = slots.draw(some, np.random.default_rng(2), few=True)
    assert (Y[few, slots.classes[some]] == slots.labels[some]).all()
    ours, negative = set(few[slots.labels[some] == 1]), slots.labels[some] == 0
    assert set(few[negative]) - ours and all(r in ours or not (Y[r] == 1).any() for r in few[negative])
    assert len(Slots(np.full((4, 2), -1), 3, 0.5)) == 0


def test_tokens_of_loops_and_peptides():
    tokens = write_loops([["CA", "C"], ["F", "F?"]])
    assert tokens.ids.tolist() == [[0, 23, 5, 31, 18, 2], [0, 23, 31, 18, 3, 2]]  # ? is unknown
    assert tokens.segments.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]]
    assert tokens.residues.tolist()[0] == [False, True, True, False, True, False]
    peptide = write_peptides(["ACF", "A"], segment=2)
    assert peptide.ids.tolist() == [[0, 5, 23, 18, 2], [0, 5, 2, 1, 1]] and peptide.lengths.tolist() == [5, 3]
    both = joined(peptide, write_peptides(["C", "FF"], segment=1))
    assert both.ids.tolist() == [[0, 5, 23, 18, 2, 0, 23, 2], [0, 5, 2, 0, 18, 18, 2, 1]]
    assert both.segments.tolist()[1] == [2, 2, 2, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("form, looks", [("cross", "both"), ("joint", "receptor")])
def test_a_pair_does_not_depend_on_its_batch_mates(form, looks):
    torch.manual_seed(0)
    model = ReceptorPeptideClassifier(width=16, heads=2, form=form, looks=looks)
    model.parts_ = ["TRB_cdr1", "TRB_cdr3"]
    network = model._network().eval()
    torch.nn.init.normal_(network.output.weight)  # zeros at first
    receptors = write_loops([["SGH", "SGHNSWW"], ["CASF", "CASSQQQQYF"]])
    peptides = write_peptides(["AAADAAA", "LLLLLLLKLLLLL"], segment=2)
    grid = torch.cartesian_prod(torch.arange(2), torch.arange(2))
    whole = network(Pairs(receptors, peptides, grid[:, 0], grid[:, 1]))
    first = torch.tensor([0])
    alone = network(Pairs(receptors.rows(first), peptides.rows(first), first, first))
    torch.testing.assert_close(whole[:1], alone, atol=1e-5, rtol=0)
    assert (whole[1:] - whole[:1]).abs().min() > 1e-3


def test_what_is_no_peptide_is_told():
    assert peptides_of([" gilgfvftl", "flu"], {"flu": "NLVPMVATV"}) == ["GILGFVFTL", "NLVPMVATV"]
    with pytest.raises(UserError, match=r"class 'HA': 'HA' is no peptide .* peptides: \{HA: SEQUENCE\}"):
        peptides_of(["GILGFVFTL", "HA"])
    with pytest.raises(UserError, match="'GILGFVFTX' is no peptide"):
        peptides_of(["GILGFVFTX"])
    X = pd.DataFrame({"TRB_cdr3": ["ASSF", "ATTF"]})
    for settings, message in (
        ({"form": "none"}, "form 'none' is unknown: use one of cross, joint"),
        ({"looks": "up"}, "looks 'up' is unknown"),
        ({"regions": ("cdr1",)}, "no column of cdr1"),
        ({"peptides": ["GILGFVFTL"]}, "Y has 2 columns, and there are 1 peptides"),
    ):
        with pytest.raises(UserError, match=message):
            ReceptorPeptideClassifier(**{"peptides": ["GILGFVFTL", "NLVPMVATV"]} | settings).fit(X, np.eye(2))
    model = ReceptorPeptideClassifier(["GILGFVFTL", "NLVPMVATV"])
    with pytest.raises(UserError, match="no receptor has a letter in TRB_cdr3"):
        model.fit(X.assign(TRB_cdr3=""), np.eye(2))
    with pytest.raises(UserError, match="a table of the receptors' loops was expected"):
        model.fit(["ASSF", "ATTF"], np.eye(2))


def test_parameters_repetition_and_missing_parts(study):
    X, known, peptides, X_new, _ = study
    model = ReceptorPeptideClassifier(peptides, **FAST | {"max_epochs": 1, "n_models": 2, "validation": 0.2})
    assert clone(model).get_params() == model.get_params()
    one, two = (clone(model).fit(X, known).decision_function(X_new) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    model.fit(X, known)
    assert len(model.weights_) == len(model.epochs_) == 2
    assert model.score(X_new[:0], peptides).shape == (0, 44) and model.score(X_new, []).shape == (100, 0)
    lacking = model.score(X_new[:5].assign(TRB_cdr3=""), peptides)
    drawn = model.score(X.assign(TRB_cdr3=X["TRB_cdr3"]), peptides)
    assert all(np.isclose(drawn, row, atol=1e-5).all(axis=1).any() for row in lacking)


# -------------------------------------------------------------------------------------------------- epitopes left out


def swapped(rng, receptors=240, peptides=12):
    """Each receptor binds one of the peptides that it may bind, and is a negative of all others."""
    X, sought, Y = world(rng, receptors, peptides)
    which = np.array([rng.choice(np.flatnonzero(y)) for y in Y])
    return X, sought, (which[:, None] == np.arange(peptides)).astype(np.int8)


def test_no_receptor_of_a_peptide_left_out_is_learned_from():
    X, peptides, Y = swapped(np.random.default_rng(5))
    peptides[1] = peptides[0][:-1] + "W"  # alike: on one side with it
    X.loc[0, "TRB_cdr3"] = "ASSWWWWQY"
    X.loc[1, "TRB_cdr3"] = "ASSWWWVQY"  # one edit away, of another peptide
    Y[0], Y[1] = np.eye(12)[2], np.eye(12)[3]
    folds = epitope_folds(X, Y, peptides, folds=3)
    assert (np.sum([fold.held for fold in folds], axis=0) == 1).all()
    assert any(fold.held[0] and fold.held[1] for fold in folds)
    for fold in folds:
        assert fold.held.sum() == 4 and not (fold.train & fold.test).any()
        binds = (Y[:, fold.held] == 1).any(axis=1)
        assert (fold.test == binds).all()
        learned = set(np.flatnonzero(fold.train))
        assert not learned & set(np.flatnonzero(binds)) and len(learned) > 100
        assert not fold.train[[0, 1]].any() or not fold.test[[0, 1]].any()
    assert sum(fold.test[0] for fold in folds) == 1
    with pytest.raises(UserError, match="11 peptides that are unlike one another are too few"):
        epitope_folds(X, Y, peptides, folds=6)


def test_scorers_are_taught_nothing_of_the_peptides_left_out():
    X, peptides, Y = swapped(np.random.default_rng(6))
    X.index = [f"r{i}" for i in range(len(X))]
    binders = {peptide: set(X.index[Y[:, k] == 1]) for k, peptide in enumerate(peptides)}
    asked = []

    def watch(letters, known, taught, tested, sought):
        assert not set(taught) & set(sought) and known.shape == (len(letters), len(taught))
        assert not any(binders[peptide] & set(letters.index) for peptide in sought)
        assert set(tested.index) == set.union(*(binders[peptide] for peptide in sought))
        for peptide, y in zip(taught, known.T):
            assert set(letters.index[y == 1]) == binders[peptide] & set(letters.index)
        asked.extend(sought)
        return np.stack([[i in binders[peptide] for i in tested.index] for peptide in sought], axis=1) * 1.0

    table = leave_epitope_out(X, Y, peptides, {"told": watch}, folds=3)
    assert sorted(asked) == sorted(peptides) == sorted(table["peptide"])
    assert (table["auroc"] == 1).all() and (table["auc01"] == 1).all()
    assert (table["positives"] == [len(binders[peptide]) for peptide in table["peptide"]]).all()
    found = over_epitopes(table.assign(auroc=np.arange(12) / 11)).iloc[0]
    assert found["peptides"] == 12 and found["auroc"] == pytest.approx(0.5) and found["auc01_low"] == 1
    # twelve values evenly from 0 to 1: their mean has a standard deviation of 0.091
    assert found["auroc_low"] == pytest.approx(0.5 - 1.96 * 0.091, abs=0.03)


def test_a_rule_carries_over_and_no_shortcut_does():
    X, peptides, Y = swapped(np.random.default_rng(7), 400, 40)
    # who may bind a peptide of its kind, and is said to bind another one of these, is no negative
    kinds = np.arange(40) % 2
    Y[(Y == 0) & (kinds[Y.argmax(axis=1)][:, None] == kinds)] = -1
    settings = FAST | {"hold_out": "receptors"}
    scorers = {"network": network(**settings | {"max_epochs": 30})} | shortcuts(**settings | {"max_epochs": 2})
    table = leave_epitope_out(X, Y, peptides, scorers, folds=2)
    found = over_epitopes(table).set_index("model")["auroc"]
    # twenty peptides are taught, and for another one the rule is taken or not: all or nothing
    assert found["network"] > 0.8
    assert found["peptide_alone"] == 0.5
    assert found[["receptor_alone", "nearest_receptor", "peptide_similarity"]].max() < 0.65


def test_shortcuts_by_hand():
    letters = pd.DataFrame({"TRB_cdr3": ["ASSIRSSYEQY", "ASSLGGGTEAF", "ASSIRSAYEQY"]})
    Y = np.array([[1, 0], [0, 1]], dtype=np.int8)
    taught, sought = ["GILGFVFTL", "NLVPMVATV"], ["GILGFVFTA", "NLVPMVATA"]
    near = nearest_receptor(letters[:2], Y, taught, letters[2:], sought)
    assert near.tolist() == [[-9.0, -9.0]]  # S to A, three times
    scores = peptide_similarity(letters[:2], Y, taught, letters[2:], sought)
    assert scores[0, 0] > scores[0, 1]  # the nearest receptor binds the first
    assert peptide_groups(["AAAAAAAAA", "AAAAAAWWW", "AAAAAWWWW", "KKKKKKKKK"], 3) == ["AAAAAAAAA"] * 3 + ["KKKKKKKKK"]
    assert measure(np.array([1, 0, -1, 0]), np.array([3.0, 1.0, 9.0, 2.0]))["auroc"] == 1
    assert measure(np.array([1, -1]), np.array([3.0, 1.0])) == {}


# -------------------------------------------------------------------------------------------- in the workflow's hands

SETTINGS = {"kind": "receptor_peptide", "models": 1, "width": 16, "layers": 1, "heads": 2, "epochs": 2}


def test_classes_that_cannot_be_learned_have_no_score(study):
    X, known, peptides, X_new, _ = study
    known = known.copy()
    known[:, 3] = np.where(known[:, 3] == 1, 1, -1)  # nobody is said not to bind it
    settings = load_config({"classifiers": {"c": SETTINGS}}).classifiers["c"]
    task = Task(settings, 1, letters=LettersEncoder(kind="letters"), peptides=tuple(peptides))
    fitted = fit(task, X, known, np.arange(300) % 3)
    assert fitted.trained.tolist() == [k != 3 for k in range(44)]
    assert fitted.estimator[-1].peptides == [p for k, p in enumerate(peptides) if k != 3]
    scores = fitted.scores(X_new)
    assert np.isnan(scores[:, 3]).all() and not np.isnan(np.delete(scores, 3, axis=1)).any()


def toy(folder, rng):
    """180 receptors of three peptides, as a table that is parsed, and the config for it."""
    X, peptides, Y = world(rng, receptors=180, peptides=3)
    which = np.array([rng.choice(np.flatnonzero(y)) for y in Y])
    junctions = ["C" + text + "F" for text in X["TRB_cdr3"]]
    table = pd.DataFrame({"receptor_id": [f"r{i}" for i in range(180)], "locus": "TRB", "v_call": "TRBV9*01"})
    table = table.assign(j_call="TRBJ2-7*01", junction_aa=junctions, epitope=[peptides[k] for k in which])
    table.to_csv(folder / "toy.tsv", sep="\t", index=False)
    dataset = {"sequences": str(folder / "toy.tsv"), "receptor": "TCR", "chains": ["TRB"]}
    dataset |= {"labels": {"column": "epitope", "id": "receptor_id"}}
    return {
        "datasets": {"toy": dataset},
        "encoders": {"letters": {"kind": "letters"}},
        "poolings": {"letters": {"kind": "letters"}},
        "classifiers": {
            "pairs": SETTINGS | {"ratio": 1, "learning_rate": 0.005},
            "ratio": {"kind": "density_ratio"},
            "both": {"kind": "stack", "members": [{"classifier": "pairs"}, {"classifier": "ratio"}]},
        },
        "evaluation": {"splits": ["random"], "bootstrap": 100, "folds": 2, "baselines": False},
    }


@pytest.mark.parametrize("name", ["pairs", "both"])
def test_it_is_judged_saved_and_predicts_the_same(tmp_path, name):
    config = load_config(toy(tmp_path, np.random.default_rng(1)))
    results, target = Results(tmp_path / "results"), Target("toy", "letters", "letters", name)
    parse_dataset(config.datasets["toy"], results.dataset("toy"))
    metrics = classify(config, target, results, results.classifier(*target))
    assert set(metrics["splits"]["random"]["classes"]) == set(metrics["classes"]) and len(metrics["classes"]) == 3
    folder = results.classifier(*target) / "model"
    scores = predict(folder, tmp_path / "toy.tsv", tmp_path / "scores.tsv")
    saved = load_model(folder)
    estimator = saved.estimator if name == "pairs" else saved.estimator.members_[0]
    assert estimator[-1].peptides == metrics["classes"] == scores.columns[1:].tolist()
    letters = saved.training.letters
    order = scores.set_index("receptor_id").loc[saved.training.ids]
    X = letters if name == "pairs" else {"letters/letters": letters}
    np.testing.assert_allclose(saved.predict(X), order[metrics["classes"]].to_numpy(), atol=1e-6)
    assert scores[metrics["classes"]].to_numpy().std() > 1e-4
    new = score_peptides(saved.estimator, letters, ["GILGFVFTL", metrics["classes"][0]])
    np.testing.assert_allclose(new[:, 1], estimator.decision_function(letters)[:, 0], atol=1e-5)
    assert new.shape == (180, 2) and np.abs(new[:, 0] - new[:, 1]).max() > 1e-3
    with pytest.raises(UserError, match="a StandardScaler reads no peptides"):
        score_peptides(StandardScaler(), letters, ["GILGFVFTL"])
    assert json.loads((folder / "config.json").read_text())["trained"] == [True] * 3


def test_a_class_that_is_no_peptide_is_named_or_refused(tmp_path):
    settings = toy(tmp_path, np.random.default_rng(1))
    config, target = load_config(settings), Target("toy", "letters", "letters", "pairs")
    with pytest.raises(UserError, match="class 'HA': 'HA' is no peptide"):
        task_of(config, target, ["HA"])
    settings["classifiers"]["pairs"]["peptides"] = {"HA": "GILGFVFTL"}
    assert task_of(load_config(settings), target, ["HA"]).peptides == ("GILGFVFTL",)
    settings["classifiers"]["pairs"]["width"] = 18
    with pytest.raises(UserError, match="no multiple"):
        load_config(settings)
