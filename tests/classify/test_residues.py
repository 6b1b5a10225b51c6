"""Letters as numbers, place by place, and the network over them."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from airrformer.classify.residues import (
    ENCODINGS,
    LettersOf,
    LettersOneHot,
    PhysChem,
    ResidueCNN,
    fill_missing,
    find_donors,
    place,
)
from airrformer.errors import UserError

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


def table(loops, genes=None, **more):
    columns = {"TRB_cdr3": loops, "TRB_v": genes or ["TRBV19"] * len(loops), "TRB_j": ["TRBJ1-1"] * len(loops)}
    return pd.DataFrame(columns | more, dtype=str)


def study(n, seed=0, lengths=(9, 13)):
    """Loops whose label is a W in the second half of one of two motifs."""
    rng = np.random.default_rng(seed)
    loops = ["".join(rng.choice(list(AMINO_ACIDS), rng.integers(*lengths))) for _ in range(n)]
    y = rng.integers(0, 2, n)
    loops = [s[:2] + ("WG" if label else "SG") + s[4:] for s, label in zip(loops, y)]
    return table(loops), y


def test_both_ends_of_a_loop_line_up():
    codes = place(["CASSF", "CF", "C", "", "CXF"], 6)
    assert codes.dtype == np.uint8
    assert codes.tolist() == [
        [2, 1, 16, 0, 16, 5],
        [2, 0, 0, 0, 0, 5],
        [2, 0, 0, 0, 0, 0],
        [0] * 6,
        [2, 21, 0, 0, 0, 5],
    ]


def test_the_middle_of_a_loop_longer_than_the_window_is_left_out():
    assert place(["ACDEF"], 3).tolist() == [[1, 2, 5]]
    assert place(["ACDEF"], 0).shape == (1, 0)


def test_lower_case_and_foreign_letters():
    assert place(["ac*é"], 4).tolist() == [[1, 2, 21, 21]]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_new_receptors_of_any_length_and_gene(encoding):
    train = table(["ASSF", "ASF", "ATSF"], ["TRBV19", "TRBV7-9", "TRBV19"])
    new = table(["ASSSSSSSF", "A", "B*", "WWWW"], ["TRBV99", "", "TRBV7-9", "TRBV19"])
    encoder = LettersOneHot(encoding=encoding, regions=["cdr3"], genes=encoding != "codes").fit(train)
    X = encoder.transform(new)
    assert X.shape == (4, len(encoder.get_feature_names_out())) and X.dtype == np.float64
    assert sparse.issparse(X) == (encoding in ("onehot", "pairs"))
    assert np.isfinite(X.toarray() if sparse.issparse(X) else X).all()


def test_onehot_keeps_what_varies_and_names_it():
    encoder = LettersOneHot(regions=["cdr3"], genes=True).fit(table(["ASF", "ATF", "ATF"], ["TRBV2", "TRBV2", "TRBV3"]))
    assert encoder.get_feature_names_out().tolist() == [
        "TRB_cdr3_2=S", "TRB_cdr3_2=T", "TRB_v=TRBV2", "TRB_v=TRBV3",
    ]  # fmt: skip
    X = encoder.transform(table(["ASF", "GTF", "AWF"], ["TRBV3", "TRBV99", "TRBV2"]))
    assert X.toarray().tolist() == [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert X.indices.dtype == np.int32


def test_pairs_are_neighbours_at_their_place():
    encoder = LettersOneHot(regions=["cdr3"], encoding="pairs").fit(table(["AS", "SA", "AA"]))
    X = pd.DataFrame(encoder.transform(table(["AS", "SA"])).toarray(), columns=encoder.get_feature_names_out())
    assert X.loc[:, "TRB_cdr3_1=AS"].tolist() == [1, 0] and X.loc[:, "TRB_cdr3_1=SA"].tolist() == [0, 1]


def test_blosum_and_properties_by_place():
    letters = table(["AW", "WA"])
    blosum = LettersOneHot(regions=["cdr3"], encoding="blosum").fit(letters)
    X = pd.DataFrame(blosum.transform(letters), columns=blosum.get_feature_names_out())
    assert X["TRB_cdr3_1_W"].tolist() == [-3, 11]
    physchem = LettersOneHot(regions=["cdr3"], encoding="physchem").fit(letters)
    X = pd.DataFrame(physchem.transform(letters), columns=physchem.get_feature_names_out())
    assert X["TRB_cdr3_1_volume"].diff()[1] > 0
    assert "TRB_cdr3_1_charge" not in X  # the same for both


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_missing_loop_is_the_typical_one(encoding):
    train = table(["ASSF", "ATSF", "ATSF", ""])
    X = LettersOneHot(regions=["cdr3"], encoding=encoding, missing="mean").fit(train).transform(train)
    X = X.toarray() if sparse.issparse(X) else X
    np.testing.assert_allclose(X[3], X[1] if encoding == "codes" else X[:3].mean(axis=0))


@pytest.mark.parametrize("transformer", [LettersOneHot(genes=True), PhysChem()])
def test_a_missing_chain_is_that_of_a_training_receptor(transformer):
    """Its parts belong together, it is the same in any company, and receptors do not all get the same one."""
    loops = [("SGHDT", "YNNE", "ASSF", "TRBV1"), ("KGHDS", "YNNQ", "ATSF", "TRBV2"), ("SGYDT", "FNNE", "AWWF", "TRBV3")]
    beta = pd.DataFrame(loops, columns=["TRB_cdr1", "TRB_cdr2", "TRB_cdr3", "TRB_v"]).assign(TRB_j="TRBJ1-1")
    alpha = [f"AV{letter}F" for letter in AMINO_ACIDS]
    rest = {"TRA_cdr1": "DSAIYN", "TRA_cdr2": "IQSSQRE", "TRA_v": "TRAV21", "TRA_j": "TRAJ1"}
    train = pd.concat([beta] * 7, ignore_index=True)[:20].assign(TRA_cdr3=alpha, **rest)
    bare = train.assign(**dict.fromkeys(beta.columns, ""))
    encoder = clone(transformer).fit(train)
    names = encoder.get_feature_names_out()
    own = np.array([name.startswith("TRB") for name in names])
    X, whole = (m.toarray() if sparse.issparse(m) else m for m in map(encoder.transform, (bare, train)))
    known = {tuple(row) for row in whole[:, own]}
    assert len(known) == 3 and {tuple(row) for row in X[:, own]} == known  # no mixture of two
    alone = encoder.transform(bare[4:5])
    np.testing.assert_array_equal(alone.toarray()[0] if sparse.issparse(alone) else alone[0], X[4])
    shuffled = clone(transformer).fit(train[::-1]).transform(bare)
    np.testing.assert_array_equal(shuffled.toarray() if sparse.issparse(shuffled) else shuffled, X)


def test_what_nobody_has_stays_missing_and_a_gene_is_drawn_with_its_loops():
    letters = pd.DataFrame(
        {"TRB_cdr1": ["SGHDT", "", "KGHDS"], "TRB_cdr2": [""] * 3, "TRB_cdr3": ["ASSF", "ATSF", "AWWF"]}, dtype=object
    )
    donors = find_donors(letters, ["TRB"], ["TRB_cdr1", "TRB_cdr2", "TRB_cdr3"])
    assert [(parts, sorted(map(tuple, rows))) for parts, rows in donors] == [
        (["TRB_cdr1", "TRB_cdr3"], [("KGHDS", "AWWF"), ("SGHDT", "ASSF")])
    ]
    filled = fill_missing(letters, ["TRB_cdr1", "TRB_cdr2", "TRB_cdr3"], donors)
    assert filled["TRB_cdr1"][1] in ("SGHDT", "KGHDS")
    assert filled["TRB_cdr2"].tolist() == [""] * 3 and filled["TRB_cdr3"].tolist() == ["ASSF", "ATSF", "AWWF"]


def test_domains_of_one_length_position_by_position():
    rows = ["EVQLVES", "EVQLWES", "EVKLVES"]
    letters = pd.DataFrame({"heavy_sequence": rows})
    names = LettersOneHot(regions=["sequence"]).fit(letters).get_feature_names_out().tolist()
    assert names == ["heavy_sequence_3=K", "heavy_sequence_3=Q", "heavy_sequence_5=V", "heavy_sequence_5=W"]


def test_chains_by_choice():
    letters = table(["ASF", "ATF"], TRA_cdr3=["AVF", "AGF"])
    assert LettersOneHot(regions=["cdr3"]).fit(letters).chains_ == ["TRB", "TRA"]
    names = LettersOneHot(chains=["TRA"], regions=["cdr3"]).fit(letters).get_feature_names_out()
    assert all(name.startswith("TRA_") for name in names)


@pytest.mark.parametrize("transformer", [LettersOneHot, PhysChem])
@pytest.mark.parametrize(
    "settings, letters, message",
    [
        ({"regions": ["cdr4"]}, table(["ASF", "AF"]), "regions 'cdr4': use some of cdr1, cdr2, cdr3, sequence"),
        ({"regions": []}, table(["ASF", "AF"]), "regions of no name"),
        ({"regions": ["cdr1"]}, table(["ASF", "AF"]), "no column TRB_cdr1"),
        ({"chains": ["TRA"], "regions": ["cdr3"]}, table(["ASF", "AF"]), "no column TRA_cdr3"),
        ({"regions": ["cdr3"]}, table(["ASF", "ASF"]), "no residue of TRB differs"),
        ({"regions": ["cdr3"]}, pd.DataFrame({"x": ["A"]}), "no chain"),
        ({}, np.zeros((2, 2)), "a table of letters was expected, not ndarray"),
    ],
    ids=["region", "no region", "no column", "no chain's column", "constant", "no chain", "no table"],
)
def test_mistakes_are_named(transformer, settings, letters, message):
    with pytest.raises(UserError, match=message):
        transformer(**settings).fit(letters)


def test_codes_have_no_genes_and_encodings_are_checked():
    with pytest.raises(UserError, match="encoding codes has no numbers for genes"):
        LettersOneHot(regions=["cdr3"], encoding="codes", genes=True).fit(table(["ASF", "AF"]))
    with pytest.raises(UserError, match="encoding 'esm'"):
        LettersOneHot(regions=["cdr3"], encoding="esm").fit(table(["ASF", "AF"]))


def test_composition_of_a_loop():
    letters = table(["KKDW", "AAAAAILVAA", ""])
    encoder = PhysChem(regions=["cdr3"], missing="mean").fit(letters)
    X = pd.DataFrame(encoder.transform(letters), columns=encoder.get_feature_names_out())
    assert X["TRB_cdr3_length"].tolist() == [4, 10, 7]
    assert X["TRB_cdr3_charge"].tolist() == [1, 0, 0.5]
    assert X["TRB_cdr3_aromatic"].tolist() == [1, 0, 0.5]
    assert X["TRB_cdr3_K"].tolist() == [2, 0, 1]
    assert X["TRB_cdr3_mean_hydropathy"][0] == pytest.approx((-3.9 * 2 - 3.5 - 0.9) / 4)
    assert X["TRB_cdr3_hydropathy_peak"][1] == pytest.approx((1.8 + 4.5 + 3.8 + 4.2 + 1.8) / 5)


def test_composition_of_a_receptor():
    letters = table(
        ["KKDW", "AAKA", "DDAA", ""], TRB_sequence=["KKK", "DDA", "KAA", "AAA"], TRA_sequence=["KA", "DD", "AA", ""]
    )
    letters["TRA_cdr3"] = ["KA", "DAA", "AAAA", "AA"]
    encoder = PhysChem(regions=["cdr3", "sequence"], missing="mean").fit(letters)
    X = pd.DataFrame(encoder.transform(letters), columns=encoder.get_feature_names_out())
    assert X["loops_length"].tolist() == [6, 7, 8, 7]  # the last lacks a loop: the mean of the others
    assert X["loops_charge"].tolist() == [2, 0, -2, 0]
    assert X["loops_charge_squared"].tolist()[:3] == [4, 0, 4]
    assert X["domains_charge"].tolist() == [4, -4, 1, pytest.approx(1 / 3)]
    assert X["domains_charge_product"].tolist()[:3] == [3, 4, 0]


# ------------------------------------------------------------------------------------------------ the network

FAST = {"regions": ["cdr3"], "channels": 16, "hidden": 16, "max_epochs": 12, "batch_size": 32, "learning_rate": 0.01}


def test_the_network_learns_a_motif():
    (X, y), (X_new, y_new) = study(400), study(200, seed=1, lengths=(7, 18))
    model = ResidueCNN(**FAST).fit(X, y)
    P = model.predict_proba(X_new)
    assert P.shape == (200, 2) and P.dtype == np.float64
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert roc_auc_score(y_new, P[:, 1]) > 0.95
    assert (model.predict(X_new) == y_new).mean() > 0.85


def test_the_network_reads_the_regions_that_it_is_given():
    X, y = study(200)
    X["TRB_cdr1"], X["TRB_sequence"] = "SGHDT", "MQQC" + X["TRB_cdr3"]
    seen = LettersOf(["cdr1", "sequence"]).fit(X).transform(X)
    assert seen.columns.tolist() == ["TRB_cdr1", "TRB_sequence"]
    model = ResidueCNN(**FAST | {"regions": None, "max_epochs": 2}).fit(seen, y)
    assert model.regions_ == ["cdr1", "sequence"]
    other = seen.assign(TRB_sequence=seen["TRB_sequence"].str.replace("W", "S"))
    assert np.abs(model.predict_proba(other) - model.predict_proba(seen)).max() > 0
    with pytest.raises(UserError, match="no column TRB_cdr2"):
        LettersOf(["cdr2"]).fit(X)


def test_without_convolutions_a_residue_counts_at_its_place():
    rng = np.random.default_rng(0)
    loops = ["".join(rng.choice(list("ADFGKS"), 8)) for _ in range(1200)]
    X = pd.DataFrame({"TRB_cdr3": loops})
    y = np.array([(loop[1] in "ADF") == (loop[6] in "ADF") for loop in loops]).astype(int)  # neither place tells alone
    plain = {"regions": ["cdr3"], "layers": 0, "hidden": 128, "input_dropout": 0.05, "max_epochs": 60, "patience": 20}
    model = ResidueCNN(**plain).fit(X[:900], y[:900])
    assert [name for name in model.weights_[0] if name.endswith("weight")] == ["2.weight", "5.weight"]
    assert model.weights_[0]["2.weight"].shape == (128, 21 * 8)
    assert roc_auc_score(y[900:], model.predict_proba(X[900:])[:, 1]) > 0.95
    np.testing.assert_array_equal(model.predict_proba(X[900:]), model.predict_proba(X[900:]))  # nothing is dropped


def test_one_seed_one_network():
    X, y = study(120)
    settings = FAST | {"max_epochs": 2}
    first, again, other = (ResidueCNN(**settings, random_state=s).fit(X, y).predict_proba(X) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0


def test_networks_are_averaged_and_hold_out_other_rows():
    X, y = study(120)
    model = ResidueCNN(**FAST | {"max_epochs": 2}, n_models=3).fit(X, y)
    held = model._held_out(np.arange(120))
    assert [rows.sum() for rows in held] == [12, 12, 12] and np.sum(held, axis=0).max() == 1
    assert len(model.weights_) == 3
    assert all(type(value) is np.ndarray for weights in model.weights_ for value in weights.values())


@pytest.mark.parametrize("groups, shares", [(1, 10), (2, 2), (5, 5), (40, 10)])
def test_groups_are_held_out_whole(groups, shares):
    model = ResidueCNN(n_models=shares)
    of = np.arange(120) % groups
    held = model._held_out(of)
    assert (np.sum(held, axis=0) == 1).all() and all(0 < rows.sum() < 120 for rows in held)
    if groups > 1:
        assert all(not set(of[rows]) & set(of[~rows]) for rows in held)


def test_unknown_labels_are_left_out_of_the_loss():
    X, y = study(300)
    Y = np.stack([y, 1 - y], axis=1).astype(np.int8)
    Y[:150, 1] = -1
    model = ResidueCNN(**FAST).fit(X, Y)
    P = model.predict_proba(X)
    assert P.shape == (300, 2)
    assert roc_auc_score(y, P[:, 0]) > 0.95 and roc_auc_score(1 - y, P[:, 1]) > 0.95
    assert model.predict(X).shape == (300, 2)
    # a class of which nothing is known disturbs nothing and is no error
    nobody = ResidueCNN(**FAST | {"max_epochs": 1}).fit(X, np.stack([y, np.full(300, -1)], axis=1))
    assert np.isfinite(nobody.predict_proba(X)).all()


def test_a_random_label_teaches_nothing():
    X, _ = study(400)
    y = np.random.default_rng(3).integers(0, 2, 400)
    P = ResidueCNN(**FAST).fit(X[:300], y[:300]).predict_proba(X[300:])
    assert abs(roc_auc_score(y[300:], P[:, 1]) - 0.5) < 0.17  # three standard errors of 100 receptors


def test_what_is_kept_can_be_saved():
    skops = pytest.importorskip("skops.io")
    X, y = study(80)
    model = ResidueCNN(**FAST | {"max_epochs": 1}).fit(X, y)
    saved = skops.dumps(model)
    trusted = skops.get_untrusted_types(data=saved)
    assert trusted == ["airrformer.classify.residues.ResidueCNN"]
    np.testing.assert_array_equal(skops.loads(saved, trusted=trusted).predict_proba(X), model.predict_proba(X))
    encoder = LettersOneHot(regions=["cdr3"], genes=True).fit(X)
    assert skops.get_untrusted_types(data=skops.dumps(encoder)) == ["airrformer.classify.residues.LettersOneHot"]


def test_parameters_as_scikit_learn_knows_them():
    model = ResidueCNN(channels=7, n_models=2)
    assert clone(model).get_params() == model.get_params()
    X, y = study(60)
    with pytest.raises(UserError, match="two labels were expected, not 1"):
        ResidueCNN(regions=["cdr3"]).fit(X, np.ones(60))
    model = ResidueCNN(**FAST | {"max_epochs": 1}).fit(X, np.where(y, "binder", "other"))
    assert set(model.predict(X)) <= {"binder", "other"} and model.predict_proba(X.iloc[:0]).shape == (0, 2)
    assert model.random_state == 0
