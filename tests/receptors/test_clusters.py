import numpy as np
import pandas as pd

from airrformer.config import ClusterSettings
from airrformer.receptors.clusters import similarity_clusters
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS


def tables(receptors: dict[str, dict[str, str]]):
    """Receptors from {id: {chain: CDR3 or sequence}}; the string is the whole chain and its CDR3."""
    rows = [
        dict.fromkeys(CHAIN_COLUMNS)
        | {"receptor_id": receptor, "chain": name, "sequence_aa": string, "cdr3_start": 0, "cdr3_end": len(string)}
        for receptor, chains in receptors.items()
        for name, string in chains.items()
    ]
    chains = pd.DataFrame(rows).astype({column: "Int32" for column in BOUND_COLUMNS})
    return pd.DataFrame({"receptor_id": list(receptors)}), chains


def partition(receptors, labels):
    return {frozenset(receptors["receptor_id"][labels == label]) for label in set(labels)}


def clusters(strings, kind="TCR", **settings):
    receptors, chains = tables(strings)
    return partition(receptors, similarity_clusters(receptors, chains, kind, ClusterSettings(**settings)))


def test_single_linkage_goes_through_the_one_between():
    strings = {"a": {"TRB": "ASSAAF"}, "b": {"TRB": "ASSACF"}, "c": {"TRB": "ASSCCF"}, "d": {"TRB": "WWWWWW"}}
    assert clusters(strings) == {frozenset("abc"), frozenset("d")}
    assert clusters(strings, tcr_cdr3_distance=0) == {frozenset(x) for x in "abcd"}


def test_distances_are_summed_over_the_chains():
    strings = {
        "a": {"TRA": "AVF", "TRB": "ASSF"},
        "b": {"TRA": "AVW", "TRB": "ASTF"},
        "c": {"TRA": "AVF", "TRB": "ASTF"},
    }
    assert clusters(strings) == {frozenset("abc")}  # a and b through c
    del strings["c"]
    assert clusters(strings) == {frozenset("a"), frozenset("b")}
    assert clusters(strings, tcr_cdr3_distance=2) == {frozenset("ab")}


def test_antibodies_by_the_heavy_chain():
    heavy = "QVQLVQSGAEVKKPGASVKV"
    strings = {
        "a": {"light": "DIQMTQ", "heavy": heavy},
        "b": {"light": "WWWWWW", "heavy": "W" * 4 + heavy[4:]},
        "c": {"light": "DIQMTQ", "heavy": "W" * 5 + heavy[5:-1] + "C"},
    }
    assert clusters(strings, "antibody") == {frozenset("abc")}
    del strings["b"]
    assert clusters(strings, "antibody") == {frozenset("a"), frozenset("c")}
    assert clusters(strings, "antibody", antibody_identity=0.7) == {frozenset("ac")}


def test_the_order_of_the_rows_changes_no_cluster():
    rng = np.random.default_rng(0)
    strings = {f"r{i}": {"TRB": "AS" + "".join(rng.choice(list("ACD"), 4)) + "F"} for i in range(60)}
    shuffled = dict(sorted(strings.items(), key=lambda item: item[1]["TRB"][::-1]))
    assert list(strings) != list(shuffled) and clusters(strings) == clusters(shuffled)


def test_chains_of_other_receptors_do_not_matter():
    receptors, chains = tables({"a": {"TRB": "ASSAAF"}, "b": {"TRB": "ASSACF"}, "c": {"TRB": "ASSCCF"}})
    labels = similarity_clusters(receptors[receptors["receptor_id"] != "b"], chains, "TCR", ClusterSettings())
    assert labels[0] != labels[1]


def with_loops(strings: dict[str, tuple[str, str, str]]):
    """Receptors of one TRB chain with these CDR1, CDR2 and CDR3; a loop may be missing."""
    rows = []
    for receptor, loops in strings.items():
        chain, row = "", dict.fromkeys(CHAIN_COLUMNS) | {"receptor_id": receptor, "chain": "TRB"}
        for name, loop in zip(("cdr1", "cdr2", "cdr3"), loops):
            chain += "QQ"
            row |= {f"{name}_start": len(chain), f"{name}_end": len(chain) + len(loop)} if loop else {}
            chain += loop
        rows.append(row | {"sequence_aa": chain})
    chains = pd.DataFrame(rows).astype({column: "Int32" for column in BOUND_COLUMNS})
    return pd.DataFrame({"receptor_id": list(strings)}), chains


def by_loops(strings, most):
    receptors, chains = with_loops(strings)
    settings = ClusterSettings(metric="tcrdist", tcrdist=most)
    return partition(receptors, similarity_clusters(receptors, chains, "TCR", settings))


def test_tcrdist_counts_all_three_loops():
    # S for T costs 4 - 1 = 3 in BLOSUM62's terms: once in a CDR1 or CDR2, thrice within a CDR3
    strings = {
        "a": ("MNHEY", "SVGAGI", "ASSIRSSYEQY"),
        "b": ("MNHEY", "TVGAGI", "ASSIRSSYEQY"),  # 3 from a
        "c": ("MNHEY", "SVGAGI", "ASSIRTSYEQY"),  # 9 from a, 12 from b
        "d": ("WWWWW", "WWWWWW", "ASSWWWWWWQY"),
    }
    assert by_loops(strings, 2) == {frozenset(x) for x in "abcd"}
    assert by_loops(strings, 3) == {frozenset("ab"), *(frozenset(x) for x in "cd")}
    assert by_loops(strings, 9) == {frozenset("abc"), frozenset("d")}


def test_tcrdist_a_missing_loop_makes_no_one_alike():
    rng = np.random.default_rng(0)
    strings = {f"r{i}": tuple("".join(rng.choice(list("ACDEFGHIKL"), 8)) for _ in range(3)) for i in range(30)}
    strings |= {"x": ("", "", "ASSIRSSYEQY"), "y": ("", "", "ASSIRSSYEQY"), "z": ("", "", "ASSIRSAYEQY")}
    found = by_loops(strings, 24)
    # x and y are the same chain; that z is near in its CDR3 is no news of its other loops
    assert frozenset("xy") in found and frozenset("z") in found
    shuffled = dict(sorted(strings.items(), key=lambda item: item[1][2][::-1]))
    assert by_loops(shuffled, 24) == found


def test_the_metric_of_the_config_decides():
    heavy = "QVQLVQSGAEVKKPGASVKV"
    strings = {"a": {"heavy": heavy}, "b": {"heavy": "WW" + heavy[2:]}}
    assert clusters(strings, "antibody") == {frozenset("ab")} == clusters(strings, "TCR", metric="identity")
    assert len(clusters(strings, "TCR")) == 2 == len(clusters(strings, "antibody", metric="cdr3"))
