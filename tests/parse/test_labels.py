import math

import pytest

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse import parse_dataset
from airrformer.receptors.tables import read_receptors

IDS = [f"r{i}" for i in range(20)]


def parse(tmp_path, labels: str, ids=IDS, groups=None, task="classification", **settings):
    sequences, table = tmp_path / "s.fasta", tmp_path / "l.tsv"
    sequences.write_text("".join(f">{name}\nCASS{'A' * (i + 1)}F\n" for i, name in enumerate(ids)))
    table.write_text(labels.replace(" ", "\t"))
    dataset = Dataset(
        sequences=str(sequences),
        receptor="TCR",
        chains=["TRB"],
        labels={"path": str(table), **settings},
        groups=groups or {},
        task=task,
    )
    summary = parse_dataset(dataset, tmp_path / "out")
    return read_receptors(tmp_path / "out" / "receptors.parquet").set_index("receptor_id"), summary


def test_labels_groups_and_receptors_without_a_row(tmp_path):
    text = "receptor_id label donor\nr0 A d1\nr0 B d1\nr0 A d1\nr1 B\td2\nr2 NA d2\n"
    receptors, summary = parse(tmp_path, text, groups={"donor": "donor"})
    assert list(receptors.index) == IDS
    assert receptors.label["r0"] == ["A", "B"] and receptors.label["r1"] == ["B"] and receptors.label["r2"] == []
    assert receptors.donor["r2"] == "d2" and receptors.donor.isna()["r3"]
    assert summary["classes"] == {"A": 1, "B": 2}
    assert summary["notes"][-1] == "18 of 20 receptors have no label; they are kept unlabelled"


def test_classes_filter_and_order(tmp_path):
    receptors, summary = parse(tmp_path, "receptor_id label\nr0 A\nr1 B\nr2 C\n", classes=["C", "A"])
    assert receptors.label["r1"] == [] and list(summary["classes"].items()) == [("C", 1), ("A", 1)]
    with pytest.raises(UserError, match="no row has 'Aa' in column 'label'; did you mean 'A'"):
        parse(tmp_path, "receptor_id label\nr0 A\n", classes=["Aa"])


def test_ids_that_match_nothing(tmp_path):
    rows = "".join(f"r{i} A\n" for i in range(19))
    _, summary = parse(tmp_path, f"receptor_id label\n{rows}ghost A\n")
    found = summary["labels"]
    assert [found[name] for name in ("rows", "matched", "unmatched", "examples")] == [20, 19, 1, ["ghost"]]
    assert any("1 of 20 rows match no sequence, such as ghost" in note for note in summary["notes"])
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError) as error:
        parse(other, "receptor_id label\ns_r0 A\ns_r1 A\ns_r2 A\ns_r3 B\n")
    message = str(error.value)
    assert "4 of 4 rows match no sequence" in message and "s_r0, s_r1, s_r2" in message and "r0, r1, r2" in message
    assert "l.tsv" in message and "s.fasta" in message and "\n" not in message
    assert not (other / "out").exists()


def test_labels_of_rejected_receptors_are_no_mismatch(tmp_path):
    sequences, table = tmp_path / "s.fasta", tmp_path / "l.tsv"
    sequences.write_text(">a\nCASSF\n>b\nCAS*F\n")
    table.write_text("receptor_id\tlabel\na\tA\nb\tA\n")
    settings = Dataset(sequences=str(sequences), receptor="TCR", chains=["TRB"], labels={"path": str(table)})
    assert parse_dataset(settings, tmp_path / "out")["labels"]["unmatched"] == 0


def test_regression(tmp_path):
    receptors, _ = parse(tmp_path, "receptor_id y\nr0 1.5\nr1 2\nr1 4\nr2 NA\n", column="y", task="regression")
    assert receptors.label["r0"] == 1.5 and receptors.label["r1"] == 3.0 and math.isnan(receptors.label["r2"])
    point = "write numbers with a decimal point and nothing else between the digits, such as 1234.5"
    for bad, do in (
        ("high", "write one number, or leave the cell"),
        ("inf", "write"),
        ("<5", "write one number,"),
        ("1,5", point),
        ("1,234.5", point),
    ):
        said = rf"line 2: y of 'r0' is '{bad}', not a number \(task: regression\); {do}"
        with pytest.raises(UserError, match=said):
            parse(tmp_path, f"receptor_id y\nr0 {bad}\n", column="y", task="regression")


@pytest.mark.parametrize(
    ("labels", "settings", "words"),
    [
        ("receptor_id epitop\nr0 A\n", {"column": "epitope"}, "no column 'epitope'; did you mean 'epitop'"),
        ("name label\nr0 A\n", {}, "no column 'receptor_id'"),
        ("receptor_id label g\nr0 A 1\nr0 B 2\n", {"groups": {"d": "g"}}, "line 3: receptor 'r0' is in two groups"),
        ("receptor_id label\nr0 A x\n", {}, "line 2: the row has 3 cells, the header 2"),
        ("receptor_id label\nNone A\n", {}, "line 2: no receptor_id"),
        ("", {}, "is empty"),
    ],
)  # fmt: skip
def test_mistaken_label_tables(tmp_path, labels, settings, words):
    with pytest.raises(UserError, match=words):
        parse(tmp_path, labels, **settings)
