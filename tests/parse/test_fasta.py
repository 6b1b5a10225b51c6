import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airrformer.errors import UserError
from airrformer.parse.fasta import HeaderTemplate, check_unique, read_fasta
from airrformer.parse.files import Text, kind_of, read_text


def records_of(text: str):
    return [(r.header, r.sequence) for r in read_fasta(Text("a.fasta", text))]


def read(tmp_path, data: bytes, name="a.fasta"):
    path = tmp_path / name
    path.write_bytes(data)
    source = read_text(path)
    return source, read_fasta(source)


words = st.text("ACDEFGHIKLMNPQRSTVWY", min_size=1, max_size=200)
headers = st.text("abcXYZ019|/:.=*_- ", min_size=1, max_size=30).map(str.strip).filter(bool)


@given(
    st.lists(st.tuples(headers, words), min_size=1, max_size=8),
    st.integers(1, 90),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.booleans(),
)
def test_what_is_written_is_read_back(tmp_path_factory, records, width, line_end, zipped, mark):
    lines = []
    for header, sequence in records:
        lines += [f">{header}", *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    data = (b"\xef\xbb\xbf" if mark else b"") + (line_end.join(lines) + line_end).encode()
    path = tmp_path_factory.mktemp("fasta") / "file.txt"  # neither ending tells what is in it
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert [(r.header, r.sequence) for r in read_fasta(read_text(path))] == records


def test_windows_and_unix_line_ends_give_the_same(tmp_path):
    unix, records = read(tmp_path, b">a\nCASSF\n>b\nCASS\n")
    windows, same = read(tmp_path, b">a\r\nCASSF\r\n>b\r\nCASS\r\n")
    assert records == same and unix.text == windows.text


def test_stray_carriage_return_within_a_record(tmp_path):
    assert [r.sequence for r in read(tmp_path, b">a\nCASS\rLGF\n")[1]] == ["CASSLGF"]


def test_wrapped_lines_and_blanks_are_joined():
    assert records_of(">a\n" + "C" * 60 + "\n" + "S" * 12 + "\n\n>b\nCA SS\tF\n") == [
        ("a", "C" * 60 + "S" * 12),
        ("b", "CASSF"),
    ]


def test_comments_are_skipped_with_a_note():
    source = Text("a.fasta", "# exported 2024\n;old\n>a\nCASSF\n")
    assert [r.line for r in read_fasta(source)] == [3]
    assert source.notes == ["a.fasta: 2 comment lines skipped"]


def test_other_text_before_the_first_header_names_the_line():
    with pytest.raises(UserError, match=r"a.fasta: line 2: text before the first header: 'KKKK'"):
        records_of("\nKKKK\n>a\nCASSF\n")


def test_no_header_at_all_is_one_sentence():
    with pytest.raises(UserError, match=r"a.fasta: no FASTA header .* 'CASSF'"):
        kind_of(Text("a.fasta", "CASSF\n"))


def test_latin_1_is_read_with_a_note(tmp_path):
    source, records = read(tmp_path, ">a café\nCASSF\n".encode("latin-1"))
    assert records[0].header == "a café"
    assert "byte 6 is not UTF-8" in source.notes[0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(b">a\nCASSF\n" * 99, mtime=0)[:-9], "damaged"),
        (b"PK\x03\x04\0\0", "no text file"),
    ],
)
def test_files_that_are_no_text(tmp_path, data, words):
    with pytest.raises(UserError, match=words) as error:
        read(tmp_path, data)
    assert "a.fasta" in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_text(tmp_path / "none.fasta")


def test_repeated_ids_name_ids_and_lines():
    source = Text("a.fasta", ">cl1\nCASSLGF\n>cl1\nCASRDTF\n")
    with pytest.raises(UserError, match="repeated ids: 'cl1' on lines 1, 3"):
        check_unique(source, read_fasta(source), whole_header=False)


def test_colliding_first_words_say_exactly_that():
    source = Text("a.fasta", ">PRED sample 1\nCASSLGF\n>PRED sample 2\nCASRDTF\n")
    with pytest.raises(UserError, match="headers differ but their first words"):
        check_unique(source, read_fasta(source), whole_header=False)


@pytest.mark.parametrize(
    ("template", "header", "fields"),
    [
        ("{receptor_id}|{locus}", "cell7|TRB", {"receptor_id": "cell7", "locus": "TRB"}),
        ("{receptor_id}|{locus}", "cell7|TRB donor=3", {"receptor_id": "cell7", "locus": "TRB"}),
        ("{receptor_id}|{v_call}", "c|TRAV14/DV4*01", {"receptor_id": "c", "v_call": "TRAV14/DV4*01"}),
        ("{receptor_id}|{locus}|{v_call}", "c|TRA|", {"receptor_id": "c", "locus": "TRA", "v_call": ""}),
        ("{_source}:{receptor_id} {locus}", "x:c TRB", {"receptor_id": "c", "locus": "TRB"}),
        ("{receptor_id}", "cell7 donor=3", {"receptor_id": "cell7"}),
        ("{receptor_id}|{locus}", "cell 7|TRB", {"receptor_id": "cell 7", "locus": "TRB"}),
        ("{receptor_id}|{locus}", "cell7", None),
        ("{receptor_id}|{locus}", "cell7|TRB|more", None),
        ("{receptor_id}|{locus}", "|TRB", None),
    ],
)  # fmt: skip
def test_header_templates(template, header, fields):
    assert HeaderTemplate(template).fields_of(header) == fields


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{receptor}|{locus}", "did you mean 'receptor_id'"),
        ("{locus}", "{receptor_id} is missing"),
        ("{receptor_id}{locus}", "a mark between"),
        ("{receptor_id}|{receptor_id}", "occurs twice"),
    ],
)
def test_mistaken_templates(template, words):
    with pytest.raises(UserError, match=words):
        HeaderTemplate(template)
