"""Heads on residue vectors, and encoders trained below them; the encoders are tiny and their weights random."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import airrformer as af
from airrformer.classify import ResidueHeadClassifier, classify, predict
from airrformer.classify.features import read_inputs, read_labelled
from airrformer.classify.heads import changed, changes, depth, learning_rates, trainable
from airrformer.classify.judging import inner_folds
from airrformer.classify.models import Task, fit, take
from airrformer.classify.residue_heads import Chain, Residues, ResidueSource, bounds, residue_table, similar_groups
from airrformer.config import Target, load_config
from airrformer.core.config import ALPHABET_SIZE, TAGS, ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.core.weights import save
from airrformer.embed.encoders import load
from airrformer.errors import UserError
from airrformer.paths import Results
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS, write_table

FAST = {"hidden": 32, "kernel": 3, "learning_rate": 5e-3, "max_epochs": 12, "batch_size": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder of two blocks as `airrformer pretrain` writes it."""
    model = Transformer(ModelConfig(layers=2, width=32, heads=4, feed_forward=64, max_length=64, positions="rotary"))
    initialise(model, torch.Generator().manual_seed(0))
    place = tmp_path_factory.mktemp("encoders") / "tiny"
    save(model, place)
    return place


def motifs(n, seed):
    """Sequences with WK (label 1) or KW (label 0) somewhere: the same residues, in another order."""
    rng = np.random.default_rng(seed)
    y, sequences = rng.integers(0, 2, n), []
    for label in y:
        letters = list(rng.choice(list("ACDEFGHILMNPQRSTVY"), rng.integers(10, 18)))
        place = rng.integers(1, len(letters) - 3)
        letters[place : place + 2] = "WK" if label else "KW"
        sequences.append("".join(letters))
    return sequences, y


def table_of(sequences, spans):
    return pd.DataFrame({"TRB_sequence": sequences, "TRB_span": spans, "TRB_locus": "TRB"}, dtype=object)


@pytest.fixture(scope="module")
def study():
    return *motifs(500, 1), *motifs(300, 2)


def auroc(model, X, y):
    return roc_auc_score(y, model.predict_proba(X)[:, 1])


# ------------------------------------------------------------------------------------------------- what they learn


@pytest.mark.parametrize(
    "head, fine_tune", [("light_attention", "none"), ("cnn", "none"), ("attention", "lora"), ("attention", "all")]
)
def test_they_learn_what_a_mean_cannot_tell(folder, study, head, fine_tune):
    X, y, X_new, y_new = study
    encoder = load(folder)
    mean = LogisticRegression(max_iter=1000).fit(encoder.embed(X), y)
    assert roc_auc_score(y_new, mean.predict_proba(encoder.embed(X_new))[:, 1]) < 0.6
    rates = {"encoder_learning_rate": 3e-3, "layer_decay": 1.0}
    model = ResidueHeadClassifier(folder, head, fine_tune, **FAST | rates).fit(X, y)
    assert auroc(model, X_new, y_new) > 0.93
    P = model.predict_proba(X_new)
    assert P.dtype == np.float64 and P.shape == (300, 2)
    np.testing.assert_allclose(P.sum(axis=1), 1)


def test_a_random_label_teaches_nothing(folder, study):
    X, _, X_new, _ = study
    rng = np.random.default_rng(0)
    model = ResidueHeadClassifier(folder, "cnn", n_models=2, **FAST).fit(X, rng.integers(0, 2, len(X)))
    assert abs(auroc(model, X_new, rng.integers(0, 2, len(X_new))) - 0.5) < 0.1  # three standard errors


def test_a_head_sees_its_region_alone(folder, study):
    source = ResidueSource(lambda: load(folder), layer=0)  # the embedding: a residue knows nothing of the others

    def before_the_motif(sequences):
        spans = [f"0:{min(s.find('W'), s.find('K'))}" for s in sequences]
        return Residues(table_of(sequences, spans), source)

    X, y, X_new, y_new = study
    model = ResidueHeadClassifier(head="cnn", **FAST | {"max_epochs": 4}).fit(before_the_motif(X), y)
    assert [len(v) for v in source.vectors([Chain("ACDEFG", "1:4"), Chain("ACDEFG", "0:6")])] == [3, 6]
    new = before_the_motif(X_new)
    scores = model.predict_proba(new)
    assert abs(roc_auc_score(y_new, scores[:, 1]) - 0.5) < 0.1  # three standard errors
    assert scores[:, 1].std() > 0.001
    cut = [s[: int(span[2:])] + "W" * 5 for s, span in zip(X_new, new.table["TRB_span"])]
    other = Residues(new.table.assign(TRB_sequence=cut), source)
    np.testing.assert_allclose(model.predict_proba(other), scores, atol=1e-6, rtol=0)


def test_unknown_labels_are_left_out_and_each_class_has_its_output(folder, study):
    X, y, X_new, y_new = study
    Y = np.stack([y, 1 - y], axis=1).astype(np.int8)
    Y[:100, 1] = -1
    model = ResidueHeadClassifier(folder, "light_attention", **FAST).fit(X, Y)
    P = model.predict_proba(X_new)
    assert P.shape == (300, 2) and model.predict(X_new).shape == (300, 2)
    assert roc_auc_score(y_new, P[:, 0]) > 0.9 and roc_auc_score(1 - y_new, P[:, 1]) > 0.9


# --------------------------------------------------------------------------------------------- how they are trained


def tiny(folder):
    return load(folder).model


def test_lora_trains_adapters_alone(folder, study):
    X, y = study[:2]
    before = {name: value.clone() for name, value in tiny(folder).state_dict().items()}
    encoder = trainable(tiny(folder), "lora", 2, 4)
    trained = [name for name, parameter in encoder.named_parameters() if parameter.requires_grad]
    # two blocks of four matrices, each with a product of two narrow ones
    assert len(trained) == 16 and all("lora_" in name for name in trained)
    assert not any(".blocks.1." in name for name, p in trainable(tiny(folder), "lora", 1, 4).named_parameters()
                   if p.requires_grad)  # fmt: skip
    source = ResidueSource(lambda: load(folder))
    table = table_of(X, [f"0:{len(s)}" for s in X])
    model = ResidueHeadClassifier(fine_tune="lora", lora_rank=4, **FAST | {"max_epochs": 1})
    model.fit(Residues(table, source), y)
    kept = {name: value for name, value in model.weights_[0].items() if name.startswith(("adapter.", "encoder."))}
    assert len(kept) == 16 and kept["adapter.encoder.blocks.0.attention.qkv.down"].shape == (4, 32)
    assert kept["adapter.encoder.blocks.0.attention.qkv.up"].shape == (96, 4)
    after = source.encoder.model.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    merged = changed(source.encoder.model, kept).state_dict()
    moved = {name for name in before if not torch.equal(merged[name], before[name])}
    assert moved == {name.removeprefix("adapter.").replace(".down", ".weight") for name in kept if ".down" in name}


def test_a_merged_adapter_is_the_adapted_encoder(folder):
    encoder = trainable(tiny(folder), "lora", 2, 4)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "lora_B" in name:  # zero at the start
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(len(name)))
    tokens = torch.tensor([[0, 5, 6, 7, 8, 2]])
    merged = changed(tiny(folder), changes(encoder))
    torch.testing.assert_close(merged(tokens), encoder.eval()(tokens), atol=1e-5, rtol=0)
    assert (merged(tokens) - tiny(folder)(tokens)).abs().max() > 0.01


def test_each_block_has_the_rate_that_is_said(folder):
    model = ResidueHeadClassifier(fine_tune="all", learning_rate=1e-2, encoder_learning_rate=1e-3, layer_decay=0.5)
    model.width_, model.layer_, model.chains_ = 32, 2, ["TRB"]
    network = model._network(1, trainable(tiny(folder), "all", 2, 8))
    rate_of = {id(p): group["lr"] for group in learning_rates(network, *model.rates) for p in group["params"]}
    rates = {name: rate_of[id(p)] for name, p in network.named_parameters() if id(p) in rate_of}
    assert rates["heads.0.scores.weight"] == rates["top.4.bias"] == 1e-2
    assert rates["encoder.encoder.final_norm.weight"] == rates["encoder.encoder.blocks.1.attention.qkv.weight"] == 1e-3
    assert rates["encoder.encoder.blocks.0.feed_forward.output.weight"] == 5e-4
    assert rates["encoder.encoder.embedding.tokens.weight"] == 2.5e-4
    assert depth("head.dense.linear.weight", 2) is None  # no hidden state stands on the output layer
    assert not any("head.dense" in name for name in rates)
    assert ResidueHeadClassifier(fine_tune="lora").rates == (1e-3, 5e-4, 0.8)
    assert ResidueHeadClassifier(fine_tune="all").rates == (1e-3, 5e-5, 0.8)


def test_blocks_above_the_layer_are_left_alone(folder):
    names = {name for name, p in trainable(tiny(folder), "all", 1, 8).named_parameters() if p.requires_grad}
    assert any(".blocks.0." in name for name in names) and "encoder.embedding.tokens.weight" in names
    assert not any(".blocks.1." in name or "final_norm" in name for name in names)


def test_likes_are_held_out_together():
    chains = [[Chain(s, f"1:{len(s)}") for s in ("QASSF", "CASSF", "QATSF", "QGGGGG", "QWWWWW", "QHHHHH")]]
    groups = similar_groups(chains)  # of residues from the second on: ASSF twice, ATSF one edit away, and three others
    assert groups[0] == groups[1] == groups[2] and len(set(groups)) == 4
    scan = [[Chain(s, "0:4") for s in ("AAAA", "AAAC", "AACC", "ACCC", "AAAA")]]  # one chain of neighbours
    assert similar_groups(scan)[0] == similar_groups(scan)[4] and len(set(similar_groups(scan))) == 4
    held = ResidueHeadClassifier(n_models=4, validation=0.25)._held_out(np.unique(groups, return_inverse=True)[1])
    assert np.sum(held, axis=0).tolist() == [1] * 6
    assert all(not set(groups[rows]) & set(groups[~rows]) for rows in held)


def test_labels_of_test_receptors_change_nothing(folder, study):
    X, y = study[0][:150], study[1][:150]
    table = table_of(X, [f"0:{len(s)}" for s in X])
    view, test = Residues(table, ResidueSource(lambda: load(folder))), np.arange(150) % 3 == 0
    settings = load_config({"classifiers": {"h": {"kind": "residue_head", "models": 2, "hidden": 8, "epochs": 3}}})
    found = []
    for labels in (y, np.where(test, 1 - y, y)):
        Y = labels[:, None].astype(np.int8)
        inner = inner_folds(np.array(X)[~test].tolist(), Y[~test], "1/0", np.arange((~test).sum()))
        fitted = fit(Task(settings.classifiers["h"], 1), take(view, ~test), Y[~test], inner)
        found.append(fitted.calibrate(fitted.scores(take(view, test))))
    np.testing.assert_array_equal(*found)


def test_training_stops_and_keeps_the_best_epoch(folder, study):
    X, y, X_new, y_new = study
    settings = FAST | {"max_epochs": 40, "patience": 3, "learning_rate": 1e-2}
    model = ResidueHeadClassifier(folder, "cnn", n_models=2, **settings).fit(X, y)
    assert all(1 <= epoch < 40 for epoch in model.epochs_) and auroc(model, X_new, y_new) > 0.93
    short = ResidueHeadClassifier(folder, "cnn", **settings | {"max_epochs": 1}).fit(X, y)
    assert short.epochs_ == [1]


# ------------------------------------------------------------------------------------------------------ conventions


def test_parameters_and_labels_as_scikit_learn_knows_them(folder, study):
    X, y, X_new, _ = study
    model = ResidueHeadClassifier(folder, "cnn", hidden=8, max_epochs=1)
    assert clone(model).get_params() == model.get_params()
    named = clone(model).fit(pd.Series(X), np.where(y, "binder", "other"))
    assert set(named.predict(np.array(X_new))) <= {"binder", "other"}
    assert named.predict_proba([]).shape == (0, 2)
    again = clone(model).fit(X, np.where(y, "binder", "other"))
    np.testing.assert_array_equal(named.predict_proba(X_new), again.predict_proba(X_new))
    named.set_params(encoder="blosum62").fit(X, y)
    assert named.width_ == 20 and named.predict_proba(X_new).shape == (300, 2)
    with pytest.raises(UserError, match="two labels were expected, not 1"):
        clone(model).fit(X, np.ones(len(X)))
    with pytest.raises(UserError, match="head 'mean' is unknown: use one of attention, light_attention, cnn"):
        ResidueHeadClassifier(folder, "mean").fit(X, y)
    with pytest.raises(UserError, match="blosum62 has no weights to train"):
        ResidueHeadClassifier("blosum62", fine_tune="all").fit(X, y)
    with pytest.raises(UserError, match="a multiple of 4"):
        ResidueHeadClassifier(folder, hidden=6).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "given", "said"),
    [
        ({"n_models": 0}, {}, "n_models is 0"),
        ({"validation": 0}, {}, "validation 0: one network or more is needed, and a share above 0"),
        ({}, {"Y": [0, 1]}, "2 labels for 40 receptors: give one for each"),
        ({}, {"groups": ["a"] * 39}, "39 groups for 40 receptors"),
        ({}, {"groups": [None, *"ab" * 19, "a"]}, "a receptor without a group"),
        ({}, {"Y": np.full((40, 2), 5)}, "5 stands in Y; 1, 0 and -1"),
        ({}, {"X": [("CASSF", "CAVF")] * 40}, "columns of a table, such as TRA_sequence, TRB_sequence"),
    ],
)
def test_what_cannot_be_learned_is_said(study, settings, given, said):
    X, y, _, _ = study
    with pytest.raises(UserError, match=said):
        ResidueHeadClassifier("blosum62", **settings).fit(**{"X": X[:40], "Y": y[:40]} | given)


@pytest.mark.parametrize("fine_tune", ["none", "all"])
def test_batch_mates_and_pickles_change_nothing(folder, study, fine_tune):
    import pickle

    X, y, X_new, _ = study
    model = ResidueHeadClassifier(folder, "light_attention", fine_tune, hidden=8, max_epochs=2).fit(X[:200], y[:200])
    together = model.decision_function(X_new[:40])
    np.testing.assert_allclose([model.decision_function([s])[0] for s in X_new[:10]], together[:10], atol=1e-5)
    longer = model.decision_function([X_new[0], "ACDEFGHIKL" * 6])
    assert longer[0] == pytest.approx(together[0], abs=1e-5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.decision_function(X_new[:40]), together, atol=1e-6)


def test_a_chain_that_is_missing_is_that_of_a_training_receptor(folder, study):
    X, y = study[:2]
    table = pd.DataFrame({"TRA_sequence": X, "TRB_sequence": X[::-1], "TRG_sequence": ""})
    model = ResidueHeadClassifier(folder, "cnn", hidden=8, max_epochs=1).fit(table, y)
    assert model.chains_ == ["TRA", "TRB"]  # no receptor has the third
    lacking = model.predict_proba(table[:3].assign(TRA_sequence=""))
    drawn = [
        {
            tuple(np.round(p, 6))
            for p in model.predict_proba(pd.DataFrame({"TRA_sequence": X, "TRB_sequence": [b] * 500}))
        }
        for b in X[::-1][:3]
    ]
    assert all(tuple(np.round(p, 6)) in some for p, some in zip(lacking, drawn))


@pytest.mark.parametrize("fine_tune", ["none", "lora"])
def test_an_encoder_that_knows_loci_is_told_them(study, tmp_path, fine_tune):
    tagged = ModelConfig(
        layers=1, width=32, heads=4, feed_forward=64, tags=True, alphabet_size=ALPHABET_SIZE + len(TAGS)
    )
    model = Transformer(tagged)
    initialise(model, torch.Generator().manual_seed(0))
    save(model, tmp_path)
    X, y = study[0][:60], study[1][:60]
    table, source = table_of(X, [f"0:{len(s)}" for s in X]), ResidueSource(lambda: load(tmp_path))
    head = ResidueHeadClassifier(fine_tune=fine_tune, hidden=8, max_epochs=1).fit(Residues(table, source), y)
    scores = head.decision_function(Residues(table, source))
    other = head.decision_function(Residues(table.assign(TRB_locus="TRA"), source))
    assert np.abs(scores - other).max() > 1e-4
    if fine_tune == "none":
        (told,), (bare,) = (source.vectors([Chain(X[0], "0:3", locus)]) for locus in ("TRB", ""))
        np.testing.assert_allclose(told, load(tmp_path).embed_residues([X[0]], loci=["TRB"])[0][:3], atol=1e-6)
        np.testing.assert_allclose(bare, load(tmp_path).embed_residues([X[0]])[0][:3], atol=1e-6)


# -------------------------------------------------------------------------------------------- in the workflow's hands

CONFIG = {
    "datasets": {
        "toy": {"sequences": "toy.fasta", "receptor": "TCR", "chains": ["TRB"], "labels": {"path": "toy.tsv"}}
    },
    "encoders": {
        "tiny": {"kind": "pretrain", "corpus": ["toy"], "model": {"layers": 2, "width": 32, "heads": 4}},
        "blosum": {"kind": "blosum62"},
        "letters": {"kind": "letters"},
    },
    "poolings": {
        "cdr3": {"kind": "residues", "region": "cdr3"}, "mean": {"kind": "mean"}, "letters": {"kind": "letters"},
    },
    "classifiers": {
        "logistic": {"kind": "logistic_regression"},
        "head": {"kind": "residue_head", "head": "cnn", "models": 2, "hidden": 8, "kernel": 3, "epochs": 1},
        "lora": {"kind": "residue_head", "fine_tune": "lora", "models": 1, "hidden": 8, "epochs": 1, "lora_rank": 2},
        "whole": {"kind": "residue_head", "fine_tune": "all", "models": 1, "hidden": 8, "epochs": 1},
        "both": {
            "kind": "stack",
            "members": [
                {"classifier": "head"}, {"encoder": "blosum", "pooling": "cdr3", "classifier": "head"},
            ],
        },
    },
    "evaluation": {"splits": ["random"], "bootstrap": 100, "folds": 2},
}  # fmt: skip


def test_the_config_says_what_goes_together():
    config = load_config(CONFIG)
    made = {target[1:] for target in config.expand_targets()}
    assert made == {
        *(("tiny", "cdr3", name) for name in ("head", "lora", "whole", "both")),
        *(("blosum", "cdr3", name) for name in ("head", "both")),  # nothing in it to fine-tune
        *((encoder, "mean", "logistic") for encoder in ("tiny", "blosum")),
        ("letters", "letters", "logistic"),
    }
    assert {embedding.pooling for embedding in config.expand_embeddings()} == {"mean"}
    assert [embedding.encoder for embedding in config.expand_residues()] == ["tiny", "blosum"]
    again = load_config(json.loads(config.whole()))
    assert again.classifiers == config.classifiers and again.poolings == config.poolings
    with pytest.raises(UserError, match="multiple of 4"):
        load_config({"classifiers": {"h": {"kind": "residue_head", "hidden": 6}}})


@pytest.mark.parametrize(
    "row, reason",
    [
        (("tiny", "mean", "head"), "kind residue_head reads no vectors, and encoder 'tiny' makes them"),
        (("tiny", "cdr3", "logistic"), "kind logistic_regression reads no residues, and pooling 'cdr3' makes them"),
        (("blosum", "cdr3", "lora"), "fine_tune: lora trains weights, and encoder 'blosum' has none"),
    ],
)
def test_what_cannot_be_made_is_said(row, reason):
    named = {name: [value] for name, value in zip(("encoders", "poolings", "classifiers"), row)}
    (line,) = load_config(CONFIG | {"targets": [named]}).loose_ends()
    assert line == f"targets.0.classifiers: {row[2]!r} is never built: {reason}"


@pytest.fixture
def toy(folder, tmp_path):
    """Parsed receptors with a motif in the CDR3, and the tiny encoder in its place."""
    cdr3, y = motifs(90, 3)
    ids = [f"r{i:03d}" for i in range(90)]
    rows = [
        dict.fromkeys(CHAIN_COLUMNS)
        | {"receptor_id": i, "chain": "TRB", "locus": "TRB", "sequence_aa": f"QQC{s}FGG"}
        | {"cdr3_start": 3, "cdr3_end": 3 + len(s)}
        for i, s in zip(ids, cdr3)
    ]
    results = Results(tmp_path / "results")
    write_table(pd.DataFrame(rows).astype({column: "Int32" for column in BOUND_COLUMNS}), results.chains("toy"))
    receptors = pd.DataFrame({"receptor_id": ids, "label": [[str(k)] for k in y], "not_label": [[] for _ in ids]})
    write_table(receptors.assign(occurrences=1), results.receptors("toy"))
    save(tiny(folder), results.encoder("tiny"))
    return results, load_config(CONFIG), [f"QQC{s}FGG" for s in cdr3]


def test_spans_come_from_the_chains(toy):
    results, _, sequences = toy
    chains = pd.read_parquet(results.chains("toy"))
    table = residue_table(["r001", "r000", "absent"], chains, ["TRB"], "cdr3")
    expected = [[sequences[i], f"3:{len(sequences[i]) - 3}", "TRB"] for i in (1, 0)]
    assert table.values.tolist() == [*expected, [""] * 3]
    assert table.columns.tolist() == ["TRB_sequence", "TRB_span", "TRB_locus"]
    assert residue_table(["r000"], chains, ["TRB"], None)["TRB_span"].tolist() == [f"0:{len(sequences[0])}"]


def test_an_encoder_of_loops_reads_loops(toy, tmp_path):
    """Its residues are the same whether they are made before or with the encoder in training; ends are none."""
    from airrformer.classify.residue_heads import _tokens, _vectors

    results, _, sequences = toy
    chains = pd.read_parquet(results.chains("toy"))[:2].assign(cdr1_start=0, cdr1_end=1, cdr2_start=1, cdr2_end=3)
    table = residue_table(["r000", "r001"], chains, ["TRB"], "cdr3", "cdrs")
    loops = [f"Q|QC|{s[3:-3]}" for s in sequences[:2]]
    assert table["TRB_sequence"].tolist() == loops
    assert table["TRB_span"].tolist() == [f"3:{len(s) - 3}" for s in sequences[:2]]
    model = Transformer(ModelConfig(layers=1, width=16, heads=2, feed_forward=32, loops=True))
    initialise(model, torch.Generator().manual_seed(0))
    save(model, tmp_path / "loops")
    source = ResidueSource(lambda: load(tmp_path / "loops"))
    for span in (None, "0:7"):
        rows = [[Chain(*texts) if span is None else Chain(texts[0], span) for texts in table.to_numpy()]]
        (made,), (read,) = _vectors(source, rows)([0, 1]), _tokens(source.encoder, rows)([0, 1])
        hidden = source.encoder.model.hidden_states(read.values, (1,))[0]
        torch.testing.assert_close(hidden[read.mask], made.values[made.mask], atol=1e-5, rtol=0)


def test_each_fold_is_read_by_its_own_encoder(toy):
    results, _, _ = toy
    tiny = CONFIG["encoders"]["tiny"] | {"corpus": "train_folds"}
    config = load_config(CONFIG | {"encoders": {"tiny": tiny}, "classifiers": {"head": CONFIG["classifiers"]["head"]}})
    other = Transformer(load(results.encoder("tiny")).model.config)
    initialise(other, torch.Generator().manual_seed(1))
    save(other, results.fold_encoders("tiny") / "random_1_0")
    inputs = read_inputs(
        config, Target("toy", "tiny", "cdr3", "head"), results, read_labelled(config, "toy", results), "cpu"
    )
    assert inputs.feature_names == ["TRB_sequence", "TRB_span", "TRB_locus"]
    whole, fold = inputs.whole, inputs.of_fold("random", 1, 0)
    assert fold.table.equals(whole.table)
    chain = [Chain(*whole.table.iloc[0])]
    (ours,), (theirs,) = whole.source.vectors(chain), fold.source.vectors(chain)
    first, end = bounds(chain[0].span)
    np.testing.assert_allclose(
        ours, load(results.encoder("tiny")).embed_residues([chain[0].sequence])[0][first:end], atol=1e-6
    )
    assert np.abs(ours - theirs).max() > 0.1


@pytest.mark.parametrize("classifier", ["head", "lora", "whole", "both"])
def test_from_training_to_scores(toy, tmp_path, classifier):
    results, config, sequences = toy
    target = Target("toy", "tiny", "cdr3", classifier)
    metrics = classify(config, target, results, results.classifier(*target), device="cpu")
    assert metrics["n_receptors"] == 90 and np.isfinite(metrics["splits"]["random"]["macro"]["auroc"]["value"])
    model = results.classifier(*target) / "model"
    assert {path.name for path in model.iterdir()} == {
        *("config.json", "estimator.skops", "training.parquet", "weights.safetensors")
    }
    described = {
        entry["name"]: entry["sha256"] for entry in json.loads((model / "config.json").read_text())["encoders"]
    }
    assert (described["tiny"] is None) == (classifier == "whole")
    (tmp_path / "new.fasta").write_text("".join(f">n{i}\n{s}\n" for i, s in enumerate(sequences[:20])))
    first = predict(model, tmp_path / "new.fasta", tmp_path / "first.tsv", device="cpu")
    assert first["1"].between(0, 1).all() and first["1"].nunique() > 5
    again = predict(model, tmp_path / "new.fasta", tmp_path / "again.tsv", device="cpu")
    pd.testing.assert_frame_equal(first, again)
    (tmp_path / "one.fasta").write_text(f">n3\n{sequences[3]}\n")
    alone = predict(model, tmp_path / "one.fasta", tmp_path / "alone.tsv", device="cpu")
    assert alone["1"][0] == pytest.approx(first["1"][3], abs=1e-5)
    weights = results.encoder("tiny") / "model.safetensors"
    weights.rename(weights.with_name("gone"))
    if classifier == "whole":  # it has the encoder in its own file
        pd.testing.assert_frame_equal(predict(model, tmp_path / "new.fasta", tmp_path / "own.tsv", device="cpu"), first)
    else:
        with pytest.raises(UserError, match="the encoder of this model is not there"):
            predict(model, tmp_path / "new.fasta", tmp_path / "own.tsv")


def test_nothing_imports_torch_before_there_are_residues_to_read():
    code = "import sys; import airrformer.classify; assert not {'torch', 'peft', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_it_is_told_when_peft_is_missing(folder, study, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match="fine_tune: lora needs the package peft, which is not installed"):
        ResidueHeadClassifier(folder, fine_tune="lora", max_epochs=1).fit(study[0][:50], study[1][:50])


def test_published_names_are_loaded_as_everywhere():
    with pytest.raises(UserError, match="neither a folder with an encoder nor one of"):
        ResidueHeadClassifier("no_such_encoder").fit(["CASSF"] * 4, [0, 1, 0, 1])
    assert af.load("blosum62").width == 20
