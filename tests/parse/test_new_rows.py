"""New files for a trained model: each row one receptor, in order, none lost and none merged."""

import pytest

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse import parse_input
from airrformer.receptors.germlines import rebuild_chain

TRB = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
PAIRED = {"TRA.junction_aa": "A3", "TRB.junction_aa": "B3"}


@pytest.fixture
def read(tmp_path):
    def read(text, chains=("TRA", "TRB"), columns=PAIRED, **settings):
        path = tmp_path / "new.csv"
        path.write_text(text)
        trained_on = [str(tmp_path / folder / "new.csv") for folder in "ab"]  # two files of that name
        labels = {"column": "{file}", "value": "Label"}
        dataset = Dataset(
            sequences=trained_on, receptor="TCR", chains=list(chains), columns=columns, labels=labels,
            groups={"paper": "reference"}, duplicates="merge", **settings,
        )  # fmt: skip
        found = parse_input(path, dataset)
        assert found.records == found.table.num_rows + len(found.rejected) and found.merged == 0
        return found

    return read


def test_rows_without_an_id_are_named_by_the_file_and_the_line(read):
    found = read("A3,B3\nCAVF,CASSIRF\nCAVF,CASSIRF\n,CASSF\nCAMF,CASSLGF\n")
    assert found.receptor_ids == ["new.csv:2", "new.csv:3", "new.csv:5"]  # the same chains twice are two
    assert found.rejected[["line", "reason"]].values.tolist() == [[4, "receptor lacks chain TRA"]]


def test_an_id_that_is_there_again_is_another_receptor(read):
    text = "tcr,A3,B3\nx,CAVF,CASSIRF\ny,CAVF,CASSLGF\nx,CAMF,CASSIRF\nx_2,CAGF,CASSF\nx,CAGF,CASSPF\n"
    found = read(text, columns={"receptor_id": "tcr", **PAIRED})
    assert found.receptor_ids == ["x", "y", "x_2", "x_2_2", "x_3"]
    assert found.chains.junction_aa.tolist()[::2] == ["CAVF", "CAVF", "CAMF", "CAGF", "CAGF"]
    assert any("3 rows repeat an id; each is a receptor, named id_2, id_3, ..." in note for note in found.notes)


def test_one_chain_a_row(read):
    text = "receptor_id,locus,junction_aa\nx,TRA,CAVF\nx,TRB,CASSIRF\nx,TRB,CASSLGF\n"
    found = read(text, ("TRB",), None)
    assert found.receptor_ids == ["x", "x_2"]
    assert found.rejected["reason"].tolist() == ["locus TRA is not among the chains asked for (TRB)"]


def test_chains_of_a_cell_are_still_one_receptor(read):
    text = "cell_id,locus,junction_aa,umi_count\nx,TRB,CASSIRF,2\nx,TRB,CASSLGF,9\nx,TRA,CAVF,4\n"
    found = read(text, columns=None)
    assert found.receptor_ids == ["x"] and found.chains.junction_aa.tolist() == ["CASSLGF", "CAVF"]


def test_a_names_column_that_repeats_keeps_the_rule_of_parse(read):
    found = read(
        "sequence_id,junction_aa\n" + "".join(f"s{i},CASS{'A' * (i + 1)}F\n" for i in range(3)), ("TRB",), None
    )
    assert found.receptor_ids == ["s0", "s1", "s2"]
    found = read("sequence_id,junction_aa\ns,CASSIRF\ns,CASSIRF\n", ("TRB",), None)
    assert found.receptor_ids == ["new.csv:2", "new.csv:3"]


@pytest.mark.parametrize("among", [0, 12])
def test_anchors_are_told_row_by_row(read, among):
    others = "".join(f"o{i},CASS{'A' * (i + 1)}F\n" for i in range(among))
    found = read("receptor_id,cdr3_aa\nx,ASSIRSSYEQY\ny,CASSIRSSYEQYF\n" + others, ("TRB",), None)
    rows = found.chains.set_index("receptor_id")
    inside = [rows.sequence_aa[i][rows.cdr3_start[i] : rows.cdr3_end[i]] for i in "xy"]
    assert inside == ["ASSIRSSYEQY"] * 2
    found = read("receptor_id,sequence_aa\nx,ASSIRSSYEQY\ny,CASSIRSSYEQYF\n" + others, ("TRB",), None)
    rows = found.chains.set_index("receptor_id")
    inside = [rows.sequence_aa[i][rows.cdr3_start[i] : rows.cdr3_end[i]] for i in "xy"]
    assert inside == ["ASSIRSSYEQY"] * 2


def test_a_new_file_is_not_told_how_a_model_should_have_read(read):
    text = f"receptor_id,sequence_aa\nx,{TRB}\ny,CASSIRSSYEQYF\n"
    assert not [note for note in read(text, ("TRB",), None).notes if "length tells" in note]
    with pytest.raises(UserError, match="no receptor is left of 1 record") as error:
        read("receptor_id,v_call,j_call,junction_aa\nx,TRBV19*01,TRBJ9-9*01,CASSF\n", ("TRB",), None)
    assert "rebuild: never" not in str(error.value)
