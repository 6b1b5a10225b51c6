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
