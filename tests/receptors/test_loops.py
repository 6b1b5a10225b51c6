import numpy as np
import pandas as pd
import pytest
from Bio.Align import substitution_matrices
from rapidfuzz.distance import Levenshtein

from airrformer.receptors.loops import LETTERS, LoopDistance, chains_of, encode, loop_blocks, receptor_letters
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


def chain(receptor, name, sequence, **values):
    return dict.fromkeys(CHAIN_COLUMNS) | {"receptor_id": receptor, "chain": name, "sequence_aa": sequence} | values


def chains_table(*rows):
    return pd.DataFrame(list(rows), columns=list(CHAIN_COLUMNS)).astype(dict.fromkeys(BOUND_COLUMNS, "Int32"))


def random_loops(n, shortest, longest, seed, letters=RESIDUES):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(letters), length)) for length in rng.integers(shortest, longest + 1, n)]


def random_letters(n, chains=("TRA", "TRB"), seed=0):
    columns = {}
    for c, name in enumerate(chains):
        for k, (kind, longest) in enumerate([("cdr1", 8), ("cdr2", 8), ("cdr3", 18)]):
            columns[f"{name}_{kind}"] = random_loops(n, 5, longest, seed=100 * seed + 10 * c + k)
        columns[f"{name}_v"] = random_loops(n, 1, 1, seed=100 * seed + 10 * c + 8)
        columns[f"{name}_j"] = random_loops(n, 1, 1, seed=100 * seed + 10 * c + 9)
        columns[f"{name}_sequence"] = [""] * n
    return pd.DataFrame(columns)


# ------------------------------------------------------------------------------------------------------------ letters


def test_letters_are_cut_by_bounds_or_from_the_junction():
    bounds = {"fwr1_start": 1, "fwr4_end": 15, "cdr1_start": 2, "cdr1_end": 4, "cdr2_start": 5, "cdr2_end": 7}
    bounds |= {"cdr3_start": 9, "cdr3_end": 12}
    table = chains_table(
        chain("b", "TRB", "MABCDEFGHIKLMNPQRST", v_call="TRBV6-2*01,TRBV6-2*02", j_call="TRBJ1-1*01", **bounds),
        chain("b", "TRA", "CAVF", junction_aa="CAVF", v_call="TRAV38-2/DV8*01"),
        chain("a", "TRA", "QQQQ"),
        chain("z", "TRA", "WWWW", junction_aa="CWWF"),
    )
    letters = receptor_letters(["a", "b", "b", "c"], table, ["TRA", "TRB"])
    assert list(letters) == [f"{name}_{kind}" for name in ("TRA", "TRB") for kind in LETTERS]
    assert chains_of(letters) == ["TRA", "TRB"] and letters.map(lambda value: type(value) is str).all(axis=None)
    assert letters.loc[1].equals(letters.loc[2])
    row = letters.loc[1].to_dict()
    assert (row["TRB_cdr1"], row["TRB_cdr2"], row["TRB_cdr3"]) == ("BC", "EF", "IKL")
    assert (row["TRB_v"], row["TRB_j"], row["TRB_sequence"]) == ("TRBV6-2", "TRBJ1-1", "ABCDEFGHIKLMNP")
    assert (row["TRA_cdr1"], row["TRA_cdr3"], row["TRA_v"], row["TRA_j"]) == ("", "AV", "TRAV38-2/DV8", "")
    # without regions the chain is kept whole, and no part of it is taken for a CDR3
    assert letters.loc[0, "TRA_sequence"] == "QQQQ" and letters.loc[0, "TRA_cdr3"] == ""
    assert (letters.loc[3] == "").all() and (letters.loc[0].filter(like="TRB") == "").all()


def test_letters_of_a_tie_and_of_a_receptor_given_twice():
    table = chains_table(
        chain("a", "TRB", "CAF", junction_aa="CAF", v_call="TRBV6-2*01,TRBV6-3*01"),
        chain("a", "TRB", "CSF", junction_aa="CSF"),
    )
    assert receptor_letters(["a"], table.iloc[:1], ["TRB"]).loc[0, "TRB_v"] == "TRBV6-2,TRBV6-3"
    assert receptor_letters(["a"], table, ["TRB"]).loc[0, "TRB_cdr3"] == "S"
    assert receptor_letters([], table, ["TRB"]).shape == (0, 6)


# ----------------------------------------------------------------------------------------------------------- distances


def tcrdist_with_a_fixed_gap(a, b, weight=3, gap=12, ntrim=3, ctrim=2):
    """Of two junctions, residue by residue, as Dash et al.'s program counts."""
    matrix = substitution_matrices.load("BLOSUM62")
    short, long = sorted((a, b), key=len)
    position = min(6, 3 + (len(short) - 5) // 2)
    pairs = [(short[i], long[i]) for i in range(ntrim, position)]
    pairs += [(short[-1 - i], long[-1 - i]) for i in range(ctrim, len(short) - position)]
    if len(short) == len(long):
        pairs = list(zip(a[ntrim:-ctrim], b[ntrim:-ctrim]))
    total = sum(0 if x == y else min(4, 4 - matrix[x][y]) for x, y in pairs)
    return weight * total + gap * (len(long) - len(short))


def test_cdr3_costs_are_those_of_tcrdist():
    loops = random_loops(60, 3, 20, seed=1)
    letters = pd.DataFrame({"TRB_cdr3": loops})
    found = LoopDistance(gaps=(4, 4, 12)).matrix(letters, letters)
    wanted = [[tcrdist_with_a_fixed_gap(f"C{a}F", f"C{b}F") for b in loops] for a in loops]
    np.testing.assert_array_equal(found, wanted)


def test_a_distance_worked_by_hand():
    one = {"TRA_cdr1": "SNHLY", "TRA_cdr2": "FYNNEI", "TRA_cdr3": "AVRGSYIPT"}
    two = {"TRA_cdr1": "SNALY", "TRA_cdr2": "FYNEI", "TRA_cdr3": "AVRDSYIPT"}
    left, right = pd.DataFrame([one]), pd.DataFrame([two])
    # H/A scores -2: 4; one gap of 4; G/D scores -1: 4, three times
    assert LoopDistance().matrix(left, right).tolist() == [[4 + 4 + 12]]
    # with the gap at the centre FYN.EI is laid on FYNNEI
    assert LoopDistance(weights=(1, 1, 0), gaps=(4, 5, 8)).matrix(left, right).tolist() == [[9]]
    # A/V at the start is trimmed
    assert LoopDistance().matrix(pd.DataFrame([one | {"TRA_cdr3": "VVRGSYIPT"}]), left).tolist() == [[0]]
    assert LoopDistance(trim=False).matrix(pd.DataFrame([one | {"TRA_cdr3": "VVRGSYIPT"}]), left).tolist() == [[12]]
    # H/H scores 8, A/A 4 and H/A -2; G/G and D/D 6
    assert LoopDistance(cost="blosum").matrix(left, right).tolist() == [[8 + 4 + 3 * 7]]


@pytest.mark.parametrize("place", ["tcrdist", "centre"])
def test_the_matrix_is_a_metric_like_thing_of_every_length(place):
    letters = pd.DataFrame({"heavy_cdr3": ["", *random_loops(40, 1, 30, 2), "A" * 59, "A" * 60, "A" * 300]})
    found = LoopDistance(place=place, trim=False).matrix(letters, letters)
    assert (found == found.T).all() and (np.diag(found)[1:] == 0).all() and (found >= 0).all()


def test_hamming_and_edit_count_differences():
    loops = random_loops(30, 7, 7, seed=3, letters="ACD")
    letters = pd.DataFrame({"TRB_cdr3": loops, "TRB_cdr1": loops[::-1]})
    options = dict(weights=(1, 0, 2), trim=False)
    hamming = [[sum(x != y for x, y in zip(a, b)) for b in loops] for a in loops]
    wanted = 2 * np.array(hamming) + np.array(hamming)[::-1, ::-1]
    assert (LoopDistance("hamming", **options).matrix(letters, letters) == wanted).all()
    edits = np.array([[Levenshtein.distance(a, b) for b in loops] for a in loops])
    assert (LoopDistance("edit", **options).matrix(letters, letters) == 2 * edits + edits[::-1, ::-1]).all()


def test_one_chain_suffices():
    letters = random_letters(25)
    alpha, beta = (LoopDistance(chains=(name,)).matrix(letters, letters) for name in ("TRA", "TRB"))
    np.testing.assert_allclose(LoopDistance().matrix(letters, letters), alpha + beta)
    least, most = np.minimum(alpha, beta), np.maximum(alpha, beta)
    for smaller in (0.6, 1.0):
        wanted = 2 * (smaller * least + (1 - smaller) * most)
        np.testing.assert_allclose(LoopDistance(smaller=smaller).matrix(letters, letters), wanted, rtol=1e-5)
    weighted = LoopDistance(chain_weights=(0.5, 2)).matrix(letters, letters)
    np.testing.assert_allclose(weighted, alpha / 2 + beta * 2, rtol=1e-5)


def test_genes_cost_when_they_differ():
    letters = random_letters(30)
    plain = LoopDistance().matrix(letters, letters)
    genes = LoopDistance(v_gene=5, j_gene=2).matrix(letters, letters)
    other = [letters[c].to_numpy()[:, None] != letters[c].to_numpy() for c in ("TRA_v", "TRB_v", "TRA_j", "TRB_j")]
    np.testing.assert_allclose(genes - plain, 5.0 * other[0] + 5 * other[1] + 2 * other[2] + 2 * other[3], atol=1e-4)
    alone = LoopDistance(weights=(0, 0, 0), v_gene=1).matrix(letters, letters)
    assert (alone == other[0].astype(int) + other[1]).all()


def test_blocks_are_the_matrix_and_metrics_share_them():
    left, right = random_letters(23, seed=1), random_letters(41, seed=2)
    left.loc[3, "TRA_cdr3"] = ""
    metrics = [LoopDistance(), LoopDistance(smaller=0.8), LoopDistance(cost="hamming", v_gene=3)]
    references = encode(right)
    fills = [metric.fill(references) for metric in metrics]
    pieces = [[], [], []]
    for rows, blocks in loop_blocks(encode(left), references, metrics, at_once=41 * 5):
        assert rows.stop - rows.start <= 5
        for piece, block, fill in zip(pieces, blocks, fills):
            piece.append(block.distances(fill))
    for metric, piece in zip(metrics, pieces):
        np.testing.assert_array_equal(np.concatenate(piece), metric.matrix(left, right))


def test_what_is_missing_is_the_same_for_everyone():
    letters, others = random_letters(80), random_letters(20, seed=5)
    lacking = others.copy()
    lacking[[c for c in others if c.startswith("TRA")]] = ""
    beta = LoopDistance(chains=("TRB",)).matrix(lacking, letters)
    found = LoopDistance().matrix(lacking, letters)
    constant = found - beta
    np.testing.assert_allclose(constant, constant[0, 0], rtol=1e-5)
    # it is what the chain costs on average
    alpha = LoopDistance(chains=("TRA",)).matrix(letters, letters)
    assert constant[0, 0] == pytest.approx(alpha[np.triu_indices(80, 1)].mean(), rel=0.01)
    # both lack it: the same again
    np.testing.assert_allclose(LoopDistance().matrix(lacking, lacking).diagonal(), 0, atol=1e-3)


def test_a_missing_part_weighs_in_a_density_what_it_does_usually():
    letters = random_letters(100)
    metric = LoopDistance(v_gene=10)
    table = metric.fill(encode(letters), bandwidth=20)["TRB"]
    beta = letters.filter(like="TRB")
    v = 10.0 * (letters["TRB_v"].to_numpy()[:, None] != letters["TRB_v"].to_numpy())
    for pattern, distances in ((0b1000, v), (0b1111, metric.matrix(beta, beta).astype(float))):
        density = [np.exp(-np.delete(row, i) / 20).mean() for i, row in enumerate(distances)]
        assert -table[pattern] / 20 == pytest.approx(np.log(density).mean())
    assert table[0] == 0


def test_a_part_that_all_lack_is_not_missed():
    letters = random_letters(80).filter(regex="cdr3")
    empty = letters.assign(**{f"{chain}_cdr{k}": "" for chain in ("TRA", "TRB") for k in (1, 2)})
    bare = LoopDistance(weights=(0, 0, 3)).fill(encode(letters))
    for chain, table in LoopDistance().fill(encode(empty)).items():
        assert table[0b111] == table[0b100] == pytest.approx(bare[chain][1]) and table[0b111] > 0


def test_a_residue_that_is_not_known_costs_what_two_do_on_average():
    letters = pd.DataFrame({"TRB_cdr3": ["AAXAA", "AAWAA", "AACAA", "AA*AA", "AAéAA"]})
    found = LoopDistance("hamming", weights=(1, 1, 1), trim=False).matrix(letters, letters)
    assert found.tolist()[0] == [1, 1, 1, 1, 1] and found[1, 2] == 1


def test_mistakes_are_named():
    letters = random_letters(3)
    for options in (dict(cost="pam"), dict(place="left"), dict(weights=(1, 2)), dict(smaller=2)):
        with pytest.raises(ValueError, match=str(next(iter(options)))):
            LoopDistance(**options)
    with pytest.raises(ValueError, match="heavy is not among those of the receptors: TRA, TRB"):
        LoopDistance(chains=("heavy",)).matrix(letters, letters)
    with pytest.raises(ValueError, match="nothing that"):
        LoopDistance(weights=(0, 0, 0)).matrix(letters, letters)
    with pytest.raises(ValueError, match="lack the column TRB_cdr1"):
        LoopDistance().matrix(letters.drop(columns="TRB_cdr1"), letters)
    assert LoopDistance(weights=[1, 1, 3]) == LoopDistance()
