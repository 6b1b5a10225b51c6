"""The labelled sets that classifiers are judged on, parsed as their configs ask; counted here with csv alone."""

import csv
import gzip
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from airrformer.config import Dataset
from airrformer.parse import parse_dataset, parse_input
from airrformer.receptors.tables import read_chains, read_receptors

DATA = os.environ.get("AIRRFORMER_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="AIRRFORMER_DATA names no folder of real receptors")
DATASETS = {
    "immrep22": {
        "sequences": "$AIRRFORMER_DATA/immrep22/train/*.tsv.gz",
        "receptor": "TCR",
        "chains": ["TRA", "TRB"],
        "columns": {
            "TRA.v_call": "TRAV", "TRA.j_call": "TRAJ", "TRA.junction_aa": "TRA_CDR3",
            "TRB.v_call": "TRBV", "TRB.j_call": "TRBJ", "TRB.junction_aa": "TRB_CDR3",
        },
        "labels": {"column": "{file}", "value": "Label"},
        "duplicates": "merge",
    },
    "trastuzumab": {
        "sequences": "$AIRRFORMER_DATA/trastuzumab_dms/mHER_H3_train80.csv.gz",
        "receptor": "antibody",
        "chains": ["heavy"],
        "columns": {"heavy.cdr3_aa": "AASeq"},
        "cdr3_anchors": "without",
        "labels": {"column": "AgClass", "conflicts": "positive"},
        "duplicates": "merge",
    },
    "spike_vs_ha": {
        "sequences": "$AIRRFORMER_DATA/spike_vs_ha_abs/spike_ha_train_val.csv.gz",
        "receptor": "antibody",
        "chains": ["heavy", "light"],
        "columns": {"receptor_id": "name"}
        | {f"{chain}.cdr{k}_aa": f"CDR{chain[0].upper()}{k}_AA" for chain in ("heavy", "light") for k in (1, 2, 3)},
        "cdr3_anchors": "without",
        "labels": {"column": "antigen"},
        "groups": {"paper": "reference", "split": "split"},
    },
    "emibetuzumab": {
        "sequences": "$AIRRFORMER_DATA/emibetuzumab/emi_binding_train80.csv.gz",
        "receptor": "antibody",
        "chains": ["heavy"],
        "columns": {"heavy.sequence_aa": "VH Sequence"},
        "labels": {"column": "ANT Binding"},
    },
    "nettcr21": {
        "sequences": [
            "$AIRRFORMER_DATA/nettcr21_cdr/*_train.filtered.csv.gz",
            "$AIRRFORMER_DATA/nettcr21_cdr/*_validation.filtered.csv.gz",
        ],
        "receptor": "TCR",
        "chains": ["TRA", "TRB"],
        "columns": {
            "TRA.v_call": "v_alpha", "TRA.j_call": "j_alpha", "TRA.junction_aa": "A3",
            "TRB.v_call": "v_beta", "TRB.j_call": "j_beta", "TRB.junction_aa": "B3",
        },
        "labels": {"column": "peptide", "value": "binder"},
        "duplicates": "merge",
    },
    "gdpa1": {
        "sequences": "$AIRRFORMER_DATA/gdpa1_developability/GDPa1_v1.2_variable_domains.csv",
        "receptor": "antibody",
        "chains": ["heavy", "light"],
        "columns": {
            "receptor_id": "antibody_id", "heavy.sequence_aa": "vh_protein_sequence",
            "light.sequence_aa": "vl_protein_sequence",
        },
        "labels": {"column": "PR_CHO"},
        "groups": {"fold": "hierarchical_cluster_IgG_isotype_stratified_fold"},
        "task": "regression",
    },
    "dash_mouse": {
        "sequences": "${AIRRFORMER_DATA}/dash2017/dash_mouse.csv",
        "receptor": "TCR",
        "chains": ["TRA", "TRB"],
        "species": "mouse",
        "columns": {
            "TRA.v_call": "v_a_gene", "TRA.j_call": "j_a_gene", "TRA.junction_aa": "cdr3_a_aa",
            "TRB.v_call": "v_b_gene", "TRB.j_call": "j_b_gene", "TRB.junction_aa": "cdr3_b_aa",
        },
        "labels": {"column": "epitope"},
        "groups": {"mouse": "subject"},
        "duplicates": "merge",
    },
}  # fmt: skip


@pytest.fixture
def parsed(tmp_path):
    """A dataset by its name, parsed: receptors, chains, summary; each record is accounted for."""

    def parse(name):
        dataset = Dataset(**DATASETS[name])
        summary = parse_dataset(dataset, tmp_path / name)
        chains = read_chains(tmp_path / name / "chains.parquet")
        receptors = read_receptors(tmp_path / name / "receptors.parquet")
        assert summary["records"] == len(chains) + sum(summary["rejected"].values()) + summary["merged"]
        assert len(chains) == len(receptors) * len(dataset.chains)
        return receptors, chains, summary

    return parse


def rows_of(path, delimiter=","):
    opened = gzip.open if path.endswith(".gz") else open
    with opened(Path(DATA) / path, "rt", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter=delimiter))


def test_immrep22_is_one_dataset_of_16_classes(parsed):
    receptors, _, summary = parsed("immrep22")
    said, times = defaultdict(set), Counter()
    for path in sorted((Path(DATA) / "immrep22" / "train").iterdir()):
        for row in rows_of(f"immrep22/train/{path.name}", "\t"):
            tcr = tuple(row[name] for name in ("TRAV", "TRAJ", "TRA_CDR3", "TRBV", "TRBJ", "TRB_CDR3"))
            said[tcr].add((path.name.partition(".")[0], row["Label"]))
            times[tcr] += 1
    assert len(said) == len(receptors) == 6392 and summary["merged"] == 2 * (11437 - 6392)
    assert summary["labels"]["conflicts"]["count"] == 0
    assert receptors.occurrences.tolist() == list(times.values())  # both in the order of first appearance
    classes = summary["labels"]["classes"]
    assert len(classes) == 16 and classes["GPRLGVRAT"] == {"positives": 40, "negatives": 204, "unknown": 6148}
    for name, found in classes.items():
        assert found["positives"] == sum((name, "1") in all_of for all_of in said.values())
        assert found["negatives"] == sum((name, "-1") in all_of for all_of in said.values())
    kept = zip(receptors.label, receptors.not_label)
    assert [set(yes) | set(no) for yes, no in kept] == [{name for name, _ in all_of} for all_of in said.values()]


def test_trastuzumab_conflicts_are_binders(parsed):
    receptors, chains, summary = parsed("trastuzumab")
    classes = defaultdict(set)
    for row in rows_of("trastuzumab_dms/mHER_H3_train80.csv.gz"):
        classes[row["AASeq"]].add(row["AgClass"])
    assert chains.cdr3_aa.tolist() == list(classes) and len(classes) == 29041
    assert summary["labels"]["conflicts"]["count"] == sum(len(found) == 2 for found in classes.values()) == 1866
    assert receptors.label.tolist() == [["1"] if "1" in found else ["0"] for found in classes.values()]


def test_six_cdrs_of_spike_and_ha(parsed):
    receptors, chains, summary = parsed("spike_vs_ha")
    rows = {row["name"]: row for row in rows_of("spike_vs_ha_abs/spike_ha_train_val.csv.gz")}
    cdrs = [f"CDR{chain}{k}_AA" for chain in "HL" for k in (1, 2, 3)]
    stops = {name for name, row in rows.items() if any("*" in row[cdr] for cdr in cdrs)}
    assert receptors.receptor_id.tolist() == [name for name in rows if name not in stops] and len(stops) == 8
    for chain, initial in (("heavy", "H"), ("light", "L")):
        own = chains[chains.chain == chain].reset_index()
        for k in (1, 2, 3):
            bounds = zip(own.sequence_aa, own[f"cdr{k}_start"], own[f"cdr{k}_end"])
            given = [rows[name][f"CDR{initial}{k}_AA"] for name in own.receptor_id]
            assert [sequence[start:end] for sequence, start, end in bounds] == given
    assert summary["labels"]["classes"]["Spike"]["positives"] == 3777
    assert receptors.split.tolist() == [rows[name]["split"] for name in receptors.receptor_id]


def test_emibetuzumab(parsed):
    receptors, chains, summary = parsed("emibetuzumab")
    assert summary["labels"]["classes"] == {"1": {"positives": 1210, "negatives": 1998, "unknown": 0}}
    assert chains.cdr3_start.notna().all() and (receptors.occurrences == 1).all()


def test_nettcr21_binders_and_true_negatives(parsed):
    _, _, summary = parsed("nettcr21")
    assert summary["labels"]["rows"] == 5435 and summary["labels"]["conflicts"]["count"] == 0
    assert summary["rejected"]["chain cannot be rebuilt"] == 21  # TRBV21-1 has no residues, TRBV3 is a family
    found = summary["labels"]["classes"]
    assert found["GILGFVFTL"]["positives"] == 359 and found["RAKFKQLL"]["positives"] == 280


def test_a_new_file_of_the_same_columns_keeps_each_row_in_its_order(tmp_path):
    rows = rows_of("nettcr21_cdr/RAKFKQLL_validation.filtered.csv.gz")
    columns = ["A3", "B3", "v_alpha", "j_alpha", "v_beta", "j_beta"]
    path = tmp_path / "test.csv"
    lines = [",".join(row[name] for name in columns) for row in rows[:20] + rows[:20]]  # no labels, and each twice
    path.write_text("\n".join([",".join(columns), *lines, ""]))
    found = parse_input(path, Dataset(**DATASETS["nettcr21"]))
    assert found.receptor_ids == [f"test.csv:{line}" for line in range(2, 42)] and len(found.rejected) == 0
    alpha = found.chains[found.chains.chain == "TRA"]
    assert alpha.junction_aa.tolist() == [row["A3"] for row in rows[:20] + rows[:20]]


def test_gdpa1_values_and_those_that_are_missing(parsed):
    receptors, _, summary = parsed("gdpa1")
    rows = rows_of("gdpa1_developability/GDPa1_v1.2_variable_domains.csv")
    given = [float(row["PR_CHO"]) if row["PR_CHO"] else None for row in rows]
    assert [None if value != value else value for value in receptors.label] == given and given.count(None) == 49
    assert summary["labels"]["unlabelled"] == 49 and set(receptors.fold) == set("01234")


def test_dash_mouse_has_receptors_of_two_epitopes(parsed):
    receptors, _, summary = parsed("dash_mouse")
    assert len(receptors) == 1745 and summary["labels"]["several_classes"] == 11
    assert summary["labels"]["duplicates"]["largest"] == receptors.occurrences.max() == 7
