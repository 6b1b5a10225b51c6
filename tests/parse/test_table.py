import pytest

from airrformer.errors import UserError
from airrformer.parse.files import Text, kind_of
from airrformer.parse.table import read_table


def rows_of(text, columns=None):
    return [(row.line, row.values) for row in read_table(Text("t.tsv", text), columns).rows]


@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_separators_are_found(mark):
    text = f"sequence_id{mark}junction_aa\na{mark}CASSF\n"
    assert kind_of(Text("t", text)) == "table"
    assert rows_of(text) == [(2, {"sequence_id": "a", "junction_aa": "CASSF"})]


def test_missing_values_are_left_out_and_never_residues():
    for missing in ("", " ", "None", "nan", "NaN", "NA", "null", "<NA>"):
        assert rows_of(f"sequence_id\tjunction_aa\na\t{missing}\n") == [(2, {"sequence_id": "a"})]


def test_quoted_cells_comments_and_blank_lines_keep_line_numbers():
    text = '# made today\nid,note\n\na,"two\nlines"\nb,"x,y"\n'
    assert rows_of(text) == [(4, {"id": "a", "note": "two\nlines"}), (6, {"id": "b", "note": "x,y"})]


def test_ragged_rows_are_named_not_shifted():
    assert rows_of("a\tb\n1\t2\t3\n1\n4\t5\n") == [(2, None), (3, None), (4, {"a": "4", "b": "5"})]


def test_columns_are_renamed():
    assert rows_of("TCR,cdr\nx,CASSF\n", {"receptor_id": "TCR", "junction_aa": "cdr"}) == [
        (2, {"TCR": "x", "cdr": "CASSF", "receptor_id": "x", "junction_aa": "CASSF"})
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"receptor_id": "TRC"}, "no column 'TRC'.*did you mean 'TCR'"),
        ({"junction": "cdr"}, "unknown name 'junction'.*'junction_aa'"),
    ],
)
def test_mistaken_column_maps(columns, words):
    with pytest.raises(UserError, match=words):
        rows_of("TCR,cdr\nx,CASSF\n", columns)


def test_repeated_column():
    with pytest.raises(UserError, match="'a' occurs twice"):
        rows_of("a,a\n1,2\n")


@pytest.mark.parametrize("text", ['id,seq\n"a,CASSF\nb,CASSF\n', 'id,seq\n"a,CASSF\n"b,CASSF\n'])
def test_a_quotation_mark_without_its_partner_swallows_no_rows(text):
    with pytest.raises(UserError, match="line 2: not a valid table"):
        rows_of(text)
