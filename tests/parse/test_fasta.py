import bz2
import gzip
import os
import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.fasta import HeaderTemplate, SeenIds, first_word, read_fasta, read_fastq
from airrformer.parse.files import Source
from airrformer.parse.records import read_records


@pytest.fixture
def read(tmp_path):
    """Records of bytes as a file; its source tells the notes."""

    def of(data: bytes | str, name="a.fasta"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        source = Source(path)
        return source, list(read_fasta(source))

    return of


@pytest.fixture
def records_of(read):
    return lambda text: [(r.header, r.sequence) for r in read(text)[1]]


words = st.text("ACDEFGHIKLMNPQRSTVWY", min_size=1, max_size=200)
headers = st.text("abcXYZ019|/:.=*_- ", min_size=1, max_size=30).map(str.strip).filter(bool)


@given(
    st.lists(st.tuples(headers, words), min_size=1, max_size=8),
    st.integers(1, 90),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([bytes, gzip.compress, bz2.compress, lambda data: pa.compress(data, "zstd", asbytes=True)]),
    st.booleans(),
)
def test_what_is_written_is_read_back(tmp_path_factory, records, width, line_end, compress, mark):
    lines = []
    for header, sequence in records:
        lines += [f">{header}", *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    data = (b"\xef\xbb\xbf" if mark else b"") + (line_end.join(lines) + line_end).encode()
    path = tmp_path_factory.mktemp("fasta") / "file.txt"  # no ending tells what is in it
    path.write_bytes(compress(data))
    assert [(r.header, r.sequence) for r in read_fasta(Source(path))] == records


def test_windows_and_unix_line_ends_give_the_same(read):
    _, records = read(b">a\nCASSF\n>b\nCASS\n")
    assert records == read(b">a\r\nCASSF\r\n>b\r\nCASS\r\n")[1]


def test_stray_carriage_return_within_a_record(records_of):
    assert records_of(b">a\nCASS\rLGF\n") == [("a", "CASSLGF")]


def test_wrapped_lines_and_blanks_are_joined(records_of):
    assert records_of(">a\n" + "C" * 60 + "\n" + "S" * 12 + "\n\n>b\nCA SS\tF\n") == [
        ("a", "C" * 60 + "S" * 12),
        ("b", "CASSF"),
    ]


def test_comments_are_skipped_with_a_note(read):
    source, records = read("# exported 2024\n;old\n>a\nCASSF\n")
    assert [r.line for r in records] == [3]
    assert source.notes[0].endswith("a.fasta: 2 comment lines skipped")


def test_other_text_before_the_first_header_names_the_line(read):
    with pytest.raises(UserError, match=r"a.fasta: line 2: text before the first header: 'KKKK'"):
        read("\nKKKK\n>a\nCASSF\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CASSF\n", r"a.fasta: no FASTA header .* 'CASSF'"),
        ("CASSF\nCASSLF\n", r"a.fasta: no FASTA header .* 'CASSF'"),
        ("#>a\n#CASSF\n", "a.fasta: no record is found; the file has nothing but comments"),
        ("KKKK\n>a\nCASSF\n", "line 1: text before the first header: 'KKKK'"),
        ('[{"barcode": "a", "cdr3": "CASSF"}]\n', "JSON is not read"),
    ],
)
def test_what_is_no_fasta_is_one_sentence(tmp_path, text, words):
    path = tmp_path / "a.fasta"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        list(read_records(str(path), Dataset(sequences=str(path), receptor="TCR", chains=["TRB"])).records)


def test_latin_1_is_read_with_a_note(read):
    source, records = read(">a café\nCASSF\n>b é\nCASSF\n".encode("latin-1"))
    assert [r.header for r in records] == ["a café", "b é"]
    assert source.notes[0].endswith("a.fasta: 2 lines are not UTF-8 and read as Latin-1")
    source, records = read(">a café\nCASSF\n".encode("utf-16"))
    assert records[0].header == "a café" and not source.notes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(b">a\nCASSF\n" * 99, mtime=0)[:-9], "damaged"),
        (bz2.compress(b">a\nCASSF\n" * 99)[:-9], "damaged"),
        (pa.compress(b">a\nCASSF\n" * 99, "zstd", asbytes=True)[:-9], "damaged"),
        (gzip.compress(gzip.compress(b">a\nCASSF\n", mtime=0), mtime=0), "decompress it once"),
        (b"PK\x03\x04\0\0", "no text file but a zip archive or an Excel workbook"),
        (b">a\0\nCASSF\n", "no text file"),
    ],
)
def test_files_that_are_no_text(read, data, words):
    with pytest.raises(UserError, match=words) as error:
        read(data)
    assert "a.fasta" in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        Source(tmp_path / "none.fasta")


def test_a_pipe_is_read_twice(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(">a\nCASSF\n"))
    writer.start()
    assert list(Source(pipe).lines()) == list(Source(pipe).lines()) == [">a", "CASSF"]
    writer.join()


def test_files_that_were_put_together(read, records_of):
    assert records_of(b">a\nCASSF\n\xef\xbb\xbf>b\nCASSLF\n") == [("a", "CASSF"), ("b", "CASSLF")]
    with pytest.raises(UserError, match="line 2: '>' within a line of letters; are two files put together"):
        read(">a\nCASSF>b\nCASSLF\n")


def test_a_genome_is_refused(read):
    with pytest.raises(UserError, match="line 1: 'chr1' has more than 50,000 letters"):
        read(">chr1 x\n" + "ACGT\n" * 25_001)


def test_fastq(read, tmp_path):
    path = tmp_path / "reads.fq"
    path.write_text("@r1 x\nACGT\n+\n@@@@\n@r2\nAC\nGT\n+r2\nII\nII\n")
    assert [tuple(r) for r in read_fastq(Source(path))] == [(1, "r1 x", "ACGT"), (5, "r2", "ACGT")]
    path.write_text("@r1\nACGT\n+\nII\n")
    with pytest.raises(UserError, match=r"reads\.fq: line 4: not a valid FASTQ file"):
        list(read_fastq(Source(path)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (">cl1\nCASSLGF\n>cl1\nCASRDTF\n", "repeated ids: 'cl1' on lines 1, 3; give every record"),
        (
            ">PRED sample 1\nCASSLGF\n>PRED sample 2\nCASRDTF\n",
            "headers differ but their first words, which are the ids, repeat: 'PRED' on lines 1, 3",
        ),
        (">PRED x\nCASSLGF\n>PRED x\nCASRDTF\n", "repeated ids: 'PRED'"),
    ],
)
def test_repeated_ids_name_ids_and_lines(read, text, words):
    seen = SeenIds("a.fasta")
    for line, header, _ in read(text)[1]:
        seen.add(first_word(header), line, header)
    with pytest.raises(UserError, match=words):
        seen.check(whole_header=False)


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
