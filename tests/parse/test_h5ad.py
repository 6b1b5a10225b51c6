"""The fixtures are made by real scirpy and anndata: tests/parse/data/make_h5ad.py."""

import shutil
import sys
from pathlib import Path

import pytest

from airrformer.errors import UserError
from airrformer.parse.h5ad import read_h5ad

h5py = pytest.importorskip("h5py")
pytest.importorskip("awkward")
DATA = Path(__file__).parent / "data"

# (row, cell, locus, v_call, j_call, junction_aa, duplicate_count); within a cell the order is scirpy's own.
CHAINS = {
    (1, "AAAC-1", "TRA", "TRAV12-2", "TRAJ21", "CAVNFNKFYF", "4"),
    (1, "AAAC-1", "TRB", "TRBV19", "TRBJ2-7", "CASSIRSSYEQYF", "11"),
    (2, "CCCA-1", "TRB", "TRBV7-9", "TRBJ1-2", "CASSLGQGYTF", "3"),
    (2, "CCCA-1", "TRA", "TRAV29/DV5", "TRAJ33", "CAASDSNYQLIW", "2"),
    (2, "CCCA-1", "TRA", "TRAV8-3", "TRAJ6", "CAVGAGGSYIPTF", "6"),
    (2, "CCCA-1", "TRA", "TRAV1-2", "TRAJ33", "CAVMDSNYQLIW", "1"),
    (4, "TTTG-1", "TRB", "TRBV20-1", "TRBJ2-4", "CSADTRGKNIQYF", "12"),
}
NAMES = ("cell_id", "locus", "v_call", "j_call", "junction_aa", "duplicate_count")


def read(name):
    return list(read_h5ad(str(DATA / name)))


@pytest.mark.parametrize("name", ["airr.h5ad", "airr.h5mu", "wide.h5ad", "oldest.h5ad"])
def test_every_layout_gives_the_chains_that_were_written(name):
    rows = read(name)
    chains = [(row, *(fields[n] for n in NAMES)) for row, fields in rows if "locus" in fields]
    # The layout before 0.5 had no place for a third chain of a locus.
    third = {chain for chain in CHAINS if chain[5] == "CAVMDSNYQLIW"} if name == "oldest.h5ad" else set()
    assert sorted(chains) == sorted(CHAINS - third)
    assert [row for row, _ in rows] == sorted(row for row, _ in rows)
    assert [(row, fields) for row, fields in rows if "locus" not in fields] == [(3, {"cell_id": "GGGT-1"})]


def test_all_fields_of_a_chain_and_the_columns_of_its_cell():
    (first,) = [fields for row, fields in read("airr.h5ad") if row == 1 and fields["locus"] == "TRB"]
    assert first == {
        "cell_id": "AAAC-1",
        "locus": "TRB",
        "v_call": "TRBV19",
        "j_call": "TRBJ2-7",
        "c_call": "TRBC2",
        "junction_aa": "CASSIRSSYEQYF",
        "junction": "TGTGCCAGTAGTATTCGCTCCTCCTACGAGCAGTACTTC",
        "duplicate_count": "11",
        "consensus_count": "840",
        "productive": "True",
        "donor": "d1",
        "n_counts": "1200",
        "is_cell": "True",
    }


def test_missing_values_are_left_out():
    (last,) = [fields for row, fields in read("airr.h5ad") if row == 4]
    assert "junction" not in last
    assert "donor" not in last


def test_the_common_obs_of_a_mudata_file():
    assert {fields["batch"] for row, fields in read("airr.h5mu") if row == 1} == {"b1"}


def test_every_encoding_of_a_column():
    rows = dict(read("encodings.h5ad"))
    assert rows[1] == {
        "cell_id": "AAAC-1",
        "junction_aa": "CASSIRSSYEQYF",
        "v_call": "TRBV19",
        "donor": "d1",
        "n_counts": "1200",
        "is_cell": "True",
        "text": "a",
        "number": "1",
        "nullable_number": "1",
        "nullable_boolean": "True",
        "nullable_text": "a",
        "number_category": "7",
    }
    assert rows[2] == {
        "cell_id": "CCCA-1",
        "junction_aa": "CASSF",
        "donor": "d2",
        "n_counts": "900",
        "is_cell": "True",
        "number": "2",
        "number_category": "7",
    }
    assert rows[4]["n_counts"] == "2100.5"
    assert rows[4]["text"] == "b"


def test_blocks_of_cells_are_read_in_order(monkeypatch):
    whole = read("wide.h5ad"), read("airr.h5ad")
    monkeypatch.setattr("airrformer.parse.h5ad.BLOCK", 3)
    assert (read("wide.h5ad"), read("airr.h5ad")) == whole


def changed(tmp_path, name, change):
    path = tmp_path / name
    shutil.copy(DATA / name, path)
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def test_prefixed_columns_are_a_slot_of_their_own(tmp_path):
    def rename(file):
        obs = file["obs"]
        obs.move("IR_VDJ_1_junction_aa", "TCR_IR_VDJ_1_junction_aa")
        obs.move("IR_VDJ_1_v_call", "VDJ_2_v_call")

    rows = [fields for row, fields in read_h5ad(str(changed(tmp_path, "encodings.h5ad", rename))) if row == 1]
    assert [fields.get("junction_aa") for fields in rows] == ["CASSIRSSYEQYF", None]
    assert [fields.get("v_call") for fields in rows] == [None, "TRBV19"]


def test_a_field_without_a_name_is_read_over(tmp_path):
    def unname(file):
        attributes = file["obsm"]["airr"].attrs
        attributes["form"] = attributes["form"].replace('"c_call"', '""')

    rows = list(read_h5ad(str(changed(tmp_path, "airr.h5ad", unname))))
    assert rows == [(row, {k: v for k, v in fields.items() if k != "c_call"}) for row, fields in read("airr.h5ad")]


def repeat_a_name(file):
    obs = file["obs"]
    obs[obs.attrs["_index"]][2] = "AAAC-1"


def remove_obs(file):
    del file["obs"]


def break_extra_chains(file):
    file["obs"]["__categories"]["extra_chains"][0] = "[{"  # the category of the first cell


def before_07(file):
    del file["obs"].attrs["_index"]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("airr.h5ad", repeat_a_name, r"2 cells have the name 'AAAC-1' \(rows 1 and 3 of obs\).*obs_names_make_unique"),
        ("airr.h5ad", remove_obs, "no AnnData file: it has no obs; there is .*obsm"),
        ("wide.h5ad", break_extra_chains, "row 1 of obs: extra_chains is no JSON"),
        ("airr.h5ad", before_07, "written by anndata before 0.7"),
    ],
)
def test_what_is_no_readable_file_is_named(tmp_path, name, change, words):
    path = changed(tmp_path, name, change)
    with pytest.raises(UserError, match=rf"{name}: {words}"):
        list(read_h5ad(str(path)))


def test_a_file_without_receptors():
    with pytest.raises(UserError, match="no receptors in this AnnData file"):
        read("no_receptors.h5ad")


@pytest.mark.parametrize("size", [0, 100, 12_000])
def test_a_damaged_file(tmp_path, size):
    path = tmp_path / "cut.h5ad"
    path.write_bytes((DATA / "airr.h5ad").read_bytes()[:size])
    with pytest.raises(UserError, match="is empty" if not size else "damaged"):
        list(read_h5ad(str(path)))


def test_a_missing_file():
    with pytest.raises(UserError, match="there is none"):
        read("nowhere.h5ad")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "awkward", None)
    with pytest.raises(UserError, match=r"need the package awkward.*airrformer\[h5ad\]"):
        read("airr.h5ad")
