import numpy as np
import pandas as pd
import pytest
from rapidfuzz.distance import Levenshtein

from airrformer.receptors import distances
from airrformer.receptors.distances import (
    cdr3_or_chain,
    chain_strings,
    edit_distances,
    identity_pairs,
    linked,
    linked_pieces,
    nearest,
    neighbour_pairs,
    unique,
    v_domain_or_chain,
)
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS


def random_items(n, chains, seed, letters="ACD", longest=6):
    rng = np.random.default_rng(seed)
    items = {
        tuple("".join(rng.choice(list(letters), rng.integers(0, longest))) for _ in range(chains)) for _ in range(n)
    }
    return sorted(items)


def naive_pairs(items, distance):
    return [
        (i, j)
        for i in range(len(items))
        for j in range(i + 1, len(items))
        if sum(Levenshtein.distance(a, b) for a, b in zip(items[i], items[j])) <= distance
    ]


@pytest.mark.parametrize("chains", [1, 2])
@pytest.mark.parametrize("distance", [0, 1, 2, 3])
def test_neighbours_are_those_of_a_double_loop(chains, distance, monkeypatch):
    monkeypatch.setattr(distances, "BLOCK", 7)  # several blocks
    items = random_items(60, chains, seed=distance)
    rows, columns = neighbour_pairs(items, distance)
    assert list(zip(rows.tolist(), columns.tolist())) == naive_pairs(items, distance)


@pytest.mark.parametrize("chains", [1, 2])
@pytest.mark.parametrize("distance", [1, 2])
def test_shorter_strings_find_all_neighbours(chains, distance, monkeypatch):
    monkeypatch.setattr(distances, "SHORTENED_COST", 0)
    monkeypatch.setattr(distances, "MEETING_COST", 0)
    monkeypatch.setattr(distances, "_close_by_block", None)  # no other way
    monkeypatch.setattr(distances, "CANDIDATES", 500)
    rng = np.random.default_rng(3)
    letters = np.array(list("ACDEFGHIKL"))

    def edited(string):
        at = rng.integers(0, len(string))
        return string[:at] + str(rng.choice(["", "W", "WW"])) + string[at + rng.integers(0, 2) :]

    items = [tuple("".join(rng.choice(letters, rng.integers(8, 12))) for _ in range(chains)) for _ in range(1500)]
    items = sorted({*items, *(tuple(map(edited, item)) for item in items[:300])})
    some = set(range(0, len(items), 20))
    rows, columns = neighbour_pairs(items, distance)
    assert len(rows) > 30
    assert [(i, j) for i, j in zip(rows.tolist(), columns.tolist()) if i in some] == [
        (i, j)
        for i in sorted(some)
        for j in range(i + 1, len(items))
        if sum(Levenshtein.distance(a, b) for a, b in zip(items[i], items[j])) <= distance
    ]


def test_the_nearest_of_many(monkeypatch):
    monkeypatch.setattr(distances, "CANDIDATES", 100)
    letters = dict(letters="ACDEF", longest=9)
    queries = [q for (q,) in random_items(200, 1, 1, **letters)] + ["", "ACD", "ACD"]
    references = [r for (r,) in random_items(300, 1, 2, **letters)]
    for most in (0, 1, 2):
        expected = [min(min(Levenshtein.distance(q, r) for r in references), most + 1) for q in queries]
        assert nearest(queries, iter(references), most).tolist() == expected
    assert nearest([], ["A"]).shape == (0,) and nearest(["A"], []).tolist() == [3]
    with pytest.raises(ValueError, match="0, 1 or 2"):
        nearest(["A"], ["A"], 3)


def test_links_of_several_pieces_join():
    pieces = [(np.array([0]), np.array([1])), (np.array([3]), np.array([4])), (np.array([1]), np.array([3]))]
    labels = linked_pieces(5, pieces)
    assert labels[0] == labels[1] == labels[3] == labels[4] != labels[2]


def test_an_edit_does_not_cross_chains():
    # one letter moved from the one chain to the other is two edits
    assert neighbour_pairs([("AB", "C"), ("A", "BC"), ("ABC", "")], 1)[0].size == 0


def test_a_large_set_needs_no_square_table():
    items = random_items(20_000, 1, seed=1, letters="ACDEFGHIKL", longest=14)
    rows, columns = neighbour_pairs(items, 1)
    assert len(items) > 15_000 and len(rows) > 0
    for i, j in list(zip(rows, columns))[:200]:
        assert Levenshtein.distance(items[i][0], items[j][0]) == 1


def test_edit_distances_sum_over_chains():
    found = edit_distances([("CASSF", "CAVF")], [("CASSF", "CAVF"), ("CASTF", "CAF"), ("CSF", "CAVF")])
    assert found.tolist() == [[0, 2, 2]]
    assert edit_distances([], [("A",)]).shape == (0, 1)
    assert (edit_distances([("AAAA",)], [("CCCC",), ("AAAC",)], cutoff=1) <= 1).tolist() == [[False, True]]


def test_identity_at_the_border_counts():
    ten = "ACDEFGHIKL"
    rows, columns = identity_pairs([ten, "ACDEFGHIWW", "ACDEFGHWWW"], 0.8)
    assert list(zip(rows.tolist(), columns.tolist())) == [(0, 1), (1, 2)]
    # the longer of two decides: 2 edits are 20 % of 10 but more of 9
    assert identity_pairs([ten, "ACDEFGHI"], 0.8)[0].size == 1
    assert identity_pairs(["ACDEFGHIK", "ACDEFGHWW"], 0.8)[0].size == 0


def test_linked_is_single_linkage():
    labels = linked(5, (np.array([0, 1]), np.array([1, 4])))
    assert labels[0] == labels[1] == labels[4] and len(set(labels)) == 3


def test_unique():
    items, inverse = unique(["b", "a", "b"])
    assert items == ["b", "a"] and inverse.tolist() == [0, 1, 0]


def chain(receptor, name, sequence, junction=None, **bounds):
    row = dict.fromkeys(CHAIN_COLUMNS) | {"receptor_id": receptor, "chain": name, "sequence_aa": sequence}
    return row | {"junction_aa": junction} | bounds


def test_strings_by_bounds_then_junction_then_whole():
    rows = [
        chain("r", "TRB", "QQCASSFGG", "CAWWF", cdr3_start=3, cdr3_end=6, fwr1_start=1, fwr4_end=8),
        chain("r", "TRA", "WWCAVFWW", "CAVF"),
        chain("s", "TRB", "CASTF"),
    ]
    table = pd.DataFrame(rows).astype({column: "Int32" for column in BOUND_COLUMNS})
    assert chain_strings(["s", "r"], table, ["TRA", "TRB"], cdr3_or_chain) == [("", "CASTF"), ("AV", "ASS")]
    assert chain_strings(["r"], table, ["TRB", "TRA"], v_domain_or_chain) == [("QCASSFG", "WWCAVFWW")]
