"""Labels that say no, contradictions, receptors with the same chains: found, counted, and done with as asked."""

import itertools

import pytest

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse import parse_dataset
from airrformer.receptors.tables import read_chains, read_receptors, write_receptors

# r0 and r3 have the same chain
CDR3S = {"r0": "CASSIRF", "r1": "CASSLGF", "r2": "CASSPGF", "r3": "CASSIRF", "r4": "CASRDTF"}


@pytest.fixture
def parse(tmp_path):
    """Five receptors and a table of labels (cells parted by blanks), parsed: receptors by id, summary."""
    sequences, table, number = tmp_path / "s.csv", tmp_path / "l.tsv", itertools.count()
    sequences.write_text("receptor_id,junction_aa\n" + "".join(f"{i},{cdr3}\n" for i, cdr3 in CDR3S.items()))

    def parse(text, value="value", groups=None, task="classification", duplicates="keep", **labels):
        table.write_text(text.replace(" ", "\t"))
        dataset = Dataset(
            sequences=str(sequences),
            receptor="TCR",
            chains=["TRB"],
            labels={"path": str(table), "column": "class", "value": value, **labels},
            groups=groups or {},
            task=task,
            duplicates=duplicates,
        )
        out = tmp_path / f"out{next(number)}"
        summary = parse_dataset(dataset, out)
        chains = read_chains(out / "chains.parquet")
        assert summary["records"] == 5 == len(chains) + sum(summary["rejected"].values()) + summary["merged"]
        receptors = read_receptors(out / "receptors.parquet").set_index("receptor_id")
        assert list(chains.receptor_id) == list(receptors.index)
        return receptors, summary

    return parse


def test_a_long_table_says_yes_and_no_and_the_rest_is_unknown(parse):
    rows = "r0 A 1\nr0 B -1\nr1 A false\nr1 B Yes\nr2 A non-binder\nr3 B 0.0\nr4 A NA\n"
    receptors, summary = parse("receptor_id class value\n" + rows)
    assert receptors.label.tolist() == [["A"], ["B"], [], [], []]
    assert receptors.not_label.tolist() == [["B"], ["A"], ["A"], ["B"], []]
    assert summary["labels"]["classes"] == {
        "A": {"positives": 1, "negatives": 2, "unknown": 2},
        "B": {"positives": 1, "negatives": 2, "unknown": 2},
    }
    assert summary["labels"]["unlabelled"] == 1  # r4: its row says nothing
    assert summary["classes"] == {"A": 1, "B": 1}


def test_only_the_classes_asked_for(parse):
    receptors, summary = parse("receptor_id class value\nr0 A 1\nr0 B 0\nr1 B maybe\n", classes=["A"])
    assert receptors.not_label.tolist() == [[]] * 5 and list(summary["labels"]["classes"]) == ["A"]


def test_a_value_that_is_neither_yes_nor_no(parse):
    with pytest.raises(UserError, match=r"l.tsv: line 3: value of 'r1' for class 'B' is 'maybe', neither yes nor no; "):
        parse("receptor_id class value\nr0 A 1\nr1 B maybe\n")
    with pytest.raises(UserError, match="no column 'value'; did you mean 'values'"):
        parse("receptor_id class values\nr0 A 1\n")


BOTH = "receptor_id class value\nr0 A 1\nr1 A 1\nr1 A 0\nr2 A 0\nr3 A 0\n"


@pytest.mark.parametrize(
    ("policy", "label", "not_label", "words"),
    [
        ("drop", [], [], "unknown for that class"),
        ("positive", ["A"], [], "taken as of the class"),
        ("negative", [], ["A"], "taken as not of the class"),
    ],
)
def test_a_receptor_said_to_be_of_a_class_and_not_of_it(parse, policy, label, not_label, words):
    receptors, summary = parse(BOTH, conflicts=policy)
    assert receptors.label["r1"] == label and receptors.not_label["r1"] == not_label
    found = summary["labels"]["conflicts"]
    assert (found["policy"], found["count"], found["same_chains"]) == (policy, 1, 1)
    assert found["examples"] == ["'r1' (class 'A': yes on line 3, no on line 4)"]
    assert any(words in note and "1 conflict," in note for note in summary["notes"])
    # r0 and r3 have the same chain and opposite labels, and are kept apart
    assert receptors.label["r0"] == ["A"] and receptors.not_label["r3"] == ["A"]
    assert any("between receptors with the same chains and genes, such as 'r0'" in note for note in summary["notes"])


def test_conflicts_may_stop(parse):
    with pytest.raises(
        UserError, match=r"line 4: 'r1' is said not to be of class 'A', but .*line 3 says that it is; 2 "
    ):
        parse(BOTH, conflicts="error")
    with pytest.raises(UserError, match=r"line 3: 'r0' is said .*another receptor with the same chains\); 1 such"):
        parse("receptor_id class value\nr0 A 1\nr3 A 0\n", conflicts="error")


@pytest.mark.parametrize(("policy", "label"), [("drop", []), ("positive", ["1"]), ("negative", ["0"])])
def test_a_binary_column_is_a_conflict_too(parse, policy, label):
    receptors, summary = parse("receptor_id class\nr0 1\nr1 1\nr1 0\nr2 0\n", value=None, conflicts=policy)
    assert receptors.label.tolist() == [["1"], label, ["0"], [], []] and receptors.not_label.tolist() == [[]] * 5
    assert summary["labels"]["conflicts"]["count"] == 1
    positives, negatives = 1 + (label == ["1"]), 1 + (label == ["0"])
    assert summary["labels"]["classes"] == {
        "1": {"positives": positives, "negatives": negatives, "unknown": 5 - positives - negatives}
    }


def test_a_word_and_zero_are_binary_and_several_classes_are_not(parse):
    receptors, summary = parse("receptor_id class\nr0 HER2\nr0 0\nr1 0\n", value=None)
    assert receptors.label.tolist()[:2] == [[], ["0"]] and summary["labels"]["conflicts"]["count"] == 1
    receptors, summary = parse("receptor_id class\nr0 A\nr0 B\nr1 B\n", value=None)
    assert receptors.label.tolist()[:2] == [["A", "B"], ["B"]]
    assert summary["labels"]["conflicts"]["count"] == 0 and summary["labels"]["several_classes"] == 1
    assert "1 receptor of several classes" in summary["notes"]


# ------------------------------------------------------------------------------------- receptors with the same chains


def test_the_same_chains_become_one_with_the_labels_of_all(parse):
    text = "receptor_id class value donor\nr0 A 1 d1\nr3 B 1 d2\nr3 C 0 d2\nr1 A 0 d1\n"
    receptors, summary = parse(text, duplicates="merge", groups={"donor": "donor"})
    assert list(receptors.index) == ["r0", "r1", "r2", "r4"]
    assert receptors.label["r0"] == ["A", "B"] and receptors.not_label["r0"] == ["C"]
    assert receptors.donor["r0"] == "d1" and receptors.occurrences.tolist() == [3, 1, 1, 1]
    assert summary["merged"] == 1 and summary["labels"]["receptors"] == 4
    assert summary["labels"]["duplicates"] == {"policy": "merge", "receptors": 2, "groups": 1, "largest": 2}
    assert any("of several groups of 'donor', such as 'r0' of 'd1' and 'd2': the first" in n for n in summary["notes"])
    assert any("1 receptor of 5 with the chains and genes of an earlier one" in n for n in summary["notes"])


def test_opposite_labels_of_the_same_chains_are_a_conflict_of_the_one(parse):
    receptors, summary = parse(BOTH, duplicates="merge", conflicts="positive")
    assert receptors.label["r0"] == ["A"] and receptors.not_label["r0"] == []
    assert summary["labels"]["conflicts"]["count"] == 2 and summary["labels"]["conflicts"]["same_chains"] == 0


def test_a_receptor_that_occurs_often_is_counted_also_where_each_is_kept(parse):
    receptors, summary = parse("receptor_id class\nr0 A\nr0 B\nr3 A\nr1 A\n", value=None)
    assert receptors.occurrences.tolist() == [3, 1, 1, 3, 1]
    assert any("2 receptors in 1 group of the same chains and genes, the largest of 2" in n for n in summary["notes"])


def test_genes_tell_receptors_apart(tmp_path):
    path = tmp_path / "s.csv"
    rows = ["a,TRBV19,TRBJ2-7,CASSIRSSYEQYF", "b,TRBV19,TRBJ2-7,CASSIRSSYEQYF", "c,TRBV19*01,TRBJ2-7,CASSIRSSYEQYF"]
    path.write_text("receptor_id,v_call,j_call,junction_aa\n" + "\n".join([*rows, rows[0], ""]))
    dataset = Dataset(sequences=str(path), receptor="TCR", chains=["TRB"], duplicates="merge")
    summary = parse_dataset(dataset, tmp_path / "out")
    receptors = read_receptors(tmp_path / "out" / "receptors.parquet").set_index("receptor_id")
    # the last row repeats the receptor a; it is rejected as its chain again, and counted
    assert receptors.occurrences.to_dict() == {"a": 3, "c": 1}
    assert (summary["records"], summary["chains"], summary["merged"]) == (4, 2, 1)
    assert summary["rejected"] == {"TRB chain of the receptor again": 1}


def test_a_receptor_that_lacks_a_chain_is_not_the_same_as_one_that_has_it(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("id,alpha,beta\na,CAVF,CASSIRF\nb,,CASSIRF\nc,,CASSIRF\nd,CAVF,\n")
    dataset = Dataset(
        sequences=str(path),
        receptor="TCR",
        chains=["TRA", "TRB"],
        columns={"receptor_id": "id", "TRA.junction_aa": "alpha", "TRB.junction_aa": "beta"},
        missing_chain="zero",
        duplicates="merge",
    )
    parse_dataset(dataset, tmp_path / "out")
    receptors = read_receptors(tmp_path / "out" / "receptors.parquet").set_index("receptor_id")
    assert receptors.occurrences.to_dict() == {"a": 1, "b": 2, "d": 1}


def test_regression_takes_the_mean_and_says_how_far_the_values_lie_apart(parse):
    text = "receptor_id class\nr0 1\nr3 4\nr1 2.5\nr2 NA\n"
    receptors, summary = parse(text, value=None, task="regression", duplicates="merge")
    assert receptors.label["r0"] == 2.5 and receptors.label["r1"] == 2.5 and receptors.label.isna().sum() == 2
    assert receptors.not_label.tolist() == [[]] * 4
    assert summary["labels"]["several_values"] == {"receptors": 1, "median_spread": 3.0, "largest_spread": 3.0}
    assert summary["labels"]["unlabelled"] == 2 and "classes" not in summary["labels"]
    assert any("1 receptor with several values: the mean is taken; " in note for note in summary["notes"])
    assert any("2 of 4 receptors have no value" in note for note in summary["notes"])


# ------------------------------------------------------------------------------------------------- classes by file


@pytest.mark.parametrize("kind", ["table", "FASTA"])
def test_the_class_is_the_name_of_the_file(tmp_path, kind):
    for name, rows in (("GILG.v2", [("a", "CASSIRF", 1), ("b", "CASSLGF", -1)]), ("NLVP", [("c", "CASSPGF", 1)])):
        if kind == "table":
            text = "receptor_id,junction_aa,Label\n" + "".join(f"{i},{cdr3},{yes}\n" for i, cdr3, yes in rows)
        else:
            text = "".join(f">{i}\n{cdr3}\n" for i, cdr3, _ in rows)
        (tmp_path / f"{name}.txt").write_text(text)
    labels = {"column": "{file}"} | ({"value": "Label"} if kind == "table" else {})
    dataset = Dataset(sequences=f"{tmp_path}/*.txt", receptor="TCR", chains=["TRB"], labels=labels)
    parse_dataset(dataset, tmp_path / "out")
    receptors = read_receptors(tmp_path / "out" / "receptors.parquet").set_index("receptor_id")
    assert receptors.label["a"] == ["GILG"] and receptors.label["c"] == ["NLVP"]
    assert receptors.label["b"] == ([] if kind == "table" else ["GILG"])
    assert receptors.not_label["b"] == (["GILG"] if kind == "table" else [])


# ------------------------------------------------------------------------------------------------------------- tables


def test_a_table_of_an_earlier_version_says_so(parse, tmp_path):
    receptors, _ = parse("receptor_id class value\nr0 A 1\n")
    write_receptors(receptors.reset_index().drop(columns="occurrences"), tmp_path / "old.parquet")
    with pytest.raises(UserError, match=r"old.parquet: has no column occurrences: .* run `airrformer parse` again"):
        read_receptors(tmp_path / "old.parquet")
