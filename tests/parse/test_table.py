import pytest

from airrformer.errors import UserError
from airrformer.parse.files import Source
from airrformer.parse.table import read_table


@pytest.fixture
def rows_of(tmp_path):
    def read(text):
        path = tmp_path / "t.tsv"
        path.write_text(text, newline="")
        return [(line, values) for line, values, _ in read_table(Source(path)).dicts()]

    return read


@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_separators_are_found(rows_of, mark):
    text = f"sequence_id{mark}junction_aa\na{mark}CASSF\n"
    assert rows_of(text) == [(2, {"sequence_id": "a", "junction_aa": "CASSF"})]


def test_missing_values_are_left_out_and_never_residues(rows_of):
    for missing in ("", " ", "None", "nan", "NaN", "NA", "null", "<NA>", "ND", "unresolved", "no data", ".", "-"):
        assert rows_of(f"sequence_id\tjunction_aa\na\t{missing}\n") == [(2, {"sequence_id": "a"})]


def test_quoted_cells_comments_and_blank_lines_keep_line_numbers(rows_of):
    text = '# made today\nid,note\n\na,"two\nlines"\nb,"x,y"\n'
    assert rows_of(text) == [(4, {"id": "a", "note": "two\nlines"}), (6, {"id": "b", "note": "x,y"})]


def test_a_quotation_mark_in_a_tsv_is_a_character(rows_of):
    # MiXCR writes base qualities, VDJdb JSON; pandas puts quotes around lists of genes
    text = 'id\tquality\tmeta\tv\na\t"FF\t{"x": 1}\t"TRBV1,TRBV2"\nb\t\t\t\n'
    assert rows_of(text) == [
        (2, {"id": "a", "quality": '"FF', "meta": '{"x": 1}', "v": "TRBV1,TRBV2"}),
        (3, {"id": "b"}),
    ]


def test_ragged_rows_are_named_not_shifted(rows_of):
    assert rows_of("a\tb\n4\t5\n1\t2\t3\n1\n") == [(2, {"a": "4", "b": "5"}), (3, None), (4, None)]


def test_a_separator_at_the_end_of_a_line_makes_no_cell(rows_of):
    assert rows_of("a\tb\n1\t2\t\n") == [(2, {"a": "1", "b": "2"})]


def test_row_names_without_a_header_shift_nothing(rows_of):
    # as R's write.table does
    assert rows_of("a\tb\nr1\t1\t2\nr2\t3\t4\n") == [(2, {"a": "1", "b": "2"}), (3, {"a": "3", "b": "4"})]


def test_two_header_lines_of_iedb_are_one(rows_of):
    text = "Receptor,Chain 1,Chain 1\nIEDB IRI,Type,CDR3 Curated\nx,beta,CASSF\n"
    assert rows_of(text) == [
        (3, {"Receptor - IEDB IRI": "x", "Chain 1 - Type": "beta", "Chain 1 - CDR3 Curated": "CASSF"})
    ]


def test_a_header_after_a_mark_is_no_comment(rows_of):
    assert rows_of("#count\tfreq\n3\t0.1\n") == [(2, {"count": "3", "freq": "0.1"})]


def test_json_before_the_header_is_metadata(tmp_path):
    path = tmp_path / "unit.csv"
    path.write_text('"{""Run"": ""1"", ""Species"": ""mouse_C57BL/6""}"\nv_call,j_call\nA,B\n')
    table = read_table(Source(path))
    assert table.metadata == {"Run": "1", "Species": "mouse_C57BL/6"} and list(table.rows) == [(3, ["A", "B"])]


def test_repeated_column(rows_of):
    with pytest.raises(UserError, match="'a' occurs twice"):
        rows_of("a,a\n1,2\n")


@pytest.mark.parametrize("text", ['id,seq\n"a,CASSF\nb,CASSF\n', 'id,seq\n"a,CASSF\n"b,CASSF\n'])
def test_a_quotation_mark_without_its_partner_swallows_no_rows(rows_of, text):
    with pytest.raises(UserError, match="line 2: not a valid table"):
        rows_of(text)


@pytest.mark.parametrize("text", ["#,\n", ",\n", "# only\n# comments\n", '""\n', "\n\n,,,\n"])
def test_a_file_without_a_header_is_one_sentence(rows_of, text):
    with pytest.raises(UserError, match="no header is found"):
        rows_of(text)


def test_what_only_looks_like_metadata_is_a_row(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text('"{}"\tx\nCASSLF\tTRBV19\n')
    assert read_table(Source(path)).header == ["{}", "x"]


def test_a_tab_within_quotes_is_no_separator(rows_of):
    assert rows_of('a\tb\n"x\ty"\t"z"\n') == [(2, {"a": "x\ty", "b": "z"})]


def test_names_of_columns_are_on_one_line(rows_of):
    assert rows_of('a,"f\nB"\n1,2\n') == [(3, {"a": "1", "f B": "2"})]
