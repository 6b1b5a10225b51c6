"""Whole files through the stage: what comes out, what is left out and what is said."""

import gzip
import json

import pandas as pd
import pytest

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse import parse_dataset, parse_input
from airrformer.receptors.germlines import rebuild_chain
from airrformer.receptors.tables import CHAIN_COLUMNS, REGIONS, read_chains, read_receptors
from airrformer.versions import STAGE_VERSIONS

TRB = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
TRB2 = rebuild_chain("TRBV27*01", "CASSLRGIYEQYF", "TRBJ2-7*01").sequence_aa
TRA = rebuild_chain("TRAV27*01", "CAGAGGGGFKTIF", "TRAJ9*01").sequence_aa
# 10E8
HEAVY = (
    "GAGGTGCAGCTGGTGGAGTCTGGGGGAGGCTTGGTGAAGCCTGGAGGATCCCTTAGACTCTCATGTTCAGCCTCTGGTTTCGACTTCGATAACGCCTGGATGACTTGGGTCCGCCAGCCTCCAGG"
    "GAAGGGCCTCGAATGGGTTGGTCGTATTACGGGTCCAGGTGAAGGTTGGTCAGTGGACTATGCTGCACCCGTGGAAGGCAGATTTACCATCTCGAGACTCAATTCAATAAATTTCTTATATTTGG"
    "AGATGAACAATTTAAGAATGGAAGACTCAGGCCTTTACTTCTGTGCCCGCACGGGAAAATATTATGATTTTTGGAGTGGCTATCCGCCGGGAGAAGAATACTTCCAAGACTGGGGCCGGGGCACC"
    "CTGGTCACCGTCTCCTCA"
)
LIGHT = (
    "TCCTATGAGCTGACTCAGGAGACTGGTGTCTCTGTGGCCCTGGGACGGACAGTCACAATCACGTGCCGGGGAGACAGCCTCAGAAGTCATTATGCAAGTTGGTACCAAAAGAAGCCAGGACAGGC"
    "CCCTATACTTCTCTTCTATGGTAAAAATAATCGTCCTTCAGGGGTCCCAGACCGATTCTCTGGCTCCGCCTCAGGAAACAGAGCTTCCTTGACCATCTCTGGGGCTCAGGCGGAAGACGACGCGG"
    "AATATTATTGTAGTTCTCGGGACAAGAGTGGCAGCCGTCTGTCGGTCTTCGGCGGGGGGACCAAACTGACCGTCCTCA"
)


def dataset(path, **settings):
    return Dataset(**{"sequences": str(path), "receptor": "TCR", "chains": ["TRB"], **settings})


def parse(tmp_path, text, **settings):
    """Parse ``text`` as one unlabelled file: chains, rejected, summary."""
    path = tmp_path / "in.txt"
    path.write_text(text)
    out = tmp_path / "out"
    summary = parse_dataset(dataset(path, **settings), out)
    rejected = pd.read_csv(out / "rejected.tsv", sep="\t", keep_default_na=False, dtype={"id": str, "value": str})
    chains = read_chains(out / "chains.parquet")
    assert summary["records"] == len(chains) + len(rejected) + summary["merged"]
    return chains, rejected, summary


def cdr3s(chains):
    return [
        row.sequence_aa[row.cdr3_start : row.cdr3_end] if not pd.isna(row.cdr3_start) else None
        for row in chains.itertuples()
    ]


# ------------------------------------------------------------------------------------------------------------- FASTA


def test_plain_fasta_of_one_chain(tmp_path):
    chains, rejected, summary = parse(tmp_path, f">b donor=3\n{TRB.lower()}\n>a|x/..\n{TRB}\n>c\n{TRB2}*\n")
    assert list(chains.columns) == list(CHAIN_COLUMNS)
    assert list(chains.receptor_id) == ["b", "a|x/..", "c"]  # same residues under two ids: both kept
    assert list(chains.sequence_aa) == [TRB, TRB, TRB2]
    assert list(chains.locus) == ["TRB"] * 3 and list(chains.chain) == ["TRB"] * 3 and chains.numbered.all()
    assert cdr3s(chains) == ["ASSIRSSYEQY", "ASSIRSSYEQY", "ASSLRGIYEQY"]
    assert list(chains.junction_aa) == ["CASSIRSSYEQYF", "CASSIRSSYEQYF", "CASSLRGIYEQYF"]
    assert len(rejected) == 0 and "lower-case letters: 1 record" in summary["notes"]
    receptors = read_receptors(tmp_path / "out" / "receptors.parquet")
    assert list(receptors.receptor_id) == ["b", "a|x/..", "c"] and list(receptors.label) == [[], [], []]


def test_records_that_cannot_be_used_are_listed(tmp_path):
    text = f">ok\n{TRB}\n>stop\nCAS*SF\n>digit\nCAS1GF\n>none\n\n>word\nNone\n>\nCASSF\n>tag\nCA<pad>F\n"
    chains, rejected, summary = parse(tmp_path, text)
    assert list(chains.receptor_id) == ["ok"]
    assert list(rejected.line) == [3, 5, 7, 9, 11, 13]
    assert list(rejected.reason) == [
        "not productive: '*' at position 4",
        "illegal character '1' at position 4",
        "no sequence",
        "no sequence",
        "header without an id",
        "illegal character '<' at position 3",
    ]
    assert summary["rejected"]["no sequence"] == 2


def test_bare_junctions_are_the_datasets_one_chain(tmp_path):
    chains, _, summary = parse(tmp_path, ">a\nCASSLGF\n>b\nVVSSLGF\n>c\nCASSF\n")
    assert cdr3s(chains) == ["ASSLG", "VSSLG", "ASS"]
    assert list(chains.junction_aa) == ["CASSLGF", "VVSSLGF", "CASSF"] and list(chains.locus) == ["TRB"] * 3
    assert "junction starts with V, not C104" in chains.note[1]
    assert pd.isna(chains.fwr3_start[0]) and pd.isna(chains.fwr4_start[0])
    assert summary["numbered"]["by"]["cdr3_only"] == 3


def test_bare_cdr3s_without_anchors(tmp_path):
    chains, _, _ = parse(tmp_path, ">a\nASSLG\n>b\nASSQET\n")
    assert cdr3s(chains) == ["ASSLG", "ASSQET"] and chains.junction_aa.isna().all()


def test_template_and_headers_that_do_not_fit(tmp_path):
    text = f">a|TRB|TRBV19*01|CASSIRSSYEQYF|TRBJ2-7*01\n{TRB}\n>b\n{TRB}\n>c|XYZ|||\n{TRB}\n>d|TRA|||\n{TRA}\n"
    chains, rejected, _ = parse(tmp_path, text, id="{receptor_id}|{locus}|{v_call}|{junction_aa}|{j_call}")
    assert list(chains.receptor_id) == ["a"] and chains.v_call[0] == "TRBV19*01" and chains.j_call[0] == "TRBJ2-7*01"
    assert list(rejected.reason) == [
        "header has not the form {receptor_id}|{locus}|{v_call}|{junction_aa}|{j_call}",
        "locus XYZ is not known",
        "locus TRA is not among the chains asked for (TRB)",
    ]


def test_no_header_fits_the_template(tmp_path):
    path = tmp_path / "new.fasta"
    path.write_text(f">x some words\n{TRB}\n")
    settings = dataset(path, id="{receptor_id}|{locus}")
    with pytest.raises(UserError, match=r"line 1: no header has the form .* the first is 'x some words'"):
        parse_dataset(settings, tmp_path / "out")
    parsed = parse_input(path, settings)  # a new file for a trained model is read all the same
    assert parsed.receptor_ids == ["x"] and "first word" in parsed.notes[0]


def test_a_new_table_may_have_airr_names(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("sequence_id,junction_aa\nx,CASSLGF\n")
    settings = dataset(path, columns={"receptor_id": "clone", "junction_aa": "CDR3b"})
    with pytest.raises(UserError, match="no column 'clone'"):
        parse_dataset(settings, tmp_path / "out")
    parsed = parse_input(path, settings)
    assert parsed.receptor_ids == ["x"] and "read as table" in parsed.notes[0]


def test_a_tcr_chain_among_others_is_told_by_numbering(tmp_path):
    chains, rejected, _ = parse(tmp_path, f">a\n{TRA}\n>b\n{TRB}\n")
    assert list(chains.receptor_id) == ["b"]
    assert list(rejected.reason) == ["locus TRA is not among the chains asked for (TRB)"]


def test_a_mislabelled_chain_is_noted(tmp_path):
    chains, _, summary = parse(
        tmp_path, f">a|TRA\n{TRB}\n>a|TRB\n{TRB2}\n", id="{receptor_id}|{locus}", chains=["TRA", "TRB"]
    )
    assert "given as TRA, but looks like TRB" in chains.note[0]
    assert "locus differs from what the chain or its genes say: 1 record" in summary["notes"]


def test_what_has_no_domain_stays_without_regions(tmp_path):
    chains, _, _ = parse(tmp_path, f">a\n{'GAVLK' * 20}\n>b\n{TRB}\n")
    assert list(chains.numbered) == [False, True] and "no V domain found" in chains.note[0]
    assert chains[[f"{region}_start" for region in REGIONS]].iloc[0].isna().all()


# ------------------------------------------------------------------------------------------- nucleotides and pairing


def test_paired_nucleotides(tmp_path):
    text = f">mab|IGH\n{HEAVY}\n>mab|IGL\n{LIGHT}\n>lone|IGH\nG{HEAVY}\n>mab|IGH\n{HEAVY}A\n"
    with pytest.raises(UserError, match=r"repeated ids: 'mab\|IGH' on lines 1, 7"):
        parse(tmp_path, text, receptor="antibody", chains=["heavy", "light"], id="{receptor_id}|{locus}")
    text = text.replace(">mab|IGH\n" + HEAVY + "A", ">mab|H\n" + HEAVY)
    chains, rejected, summary = parse(
        tmp_path, text, receptor="antibody", chains=["heavy", "light"], id="{receptor_id}|{locus}"
    )
    assert list(chains.chain) == ["heavy", "light"] and list(chains.locus) == ["IGH", "IGL"]
    assert cdr3s(chains) == ["ARTGKYYDFWSGYPPGEEYFQD", "SSRDKSGSRLSV"]
    assert list(rejected.reason) == ["receptor lacks chain light", "heavy chain of the receptor again"]
    assert rejected.value[1] == "the first: line 1"
    assert summary["molecule"] == "nucleotide"
    assert (
        "translated in frame 1: 3 records" in summary["notes"] and "translated in frame 2: 1 record" in summary["notes"]
    )


def test_two_files_pair_by_name_and_numbering(tmp_path):
    heavy, light = tmp_path / "hc.fasta", tmp_path / "lc.fasta.gz"
    heavy.write_text(f">mab\n{HEAVY}\n")
    light.write_bytes(gzip.compress(f">mab\n{LIGHT}\n".encode()))
    settings = Dataset(sequences=[str(heavy), str(light)], receptor="antibody", chains=["heavy", "light"])
    summary = parse_dataset(settings, tmp_path / "out")
    assert summary["receptors"] == 1 and summary["chains"] == 2


def test_missing_chain_zero_keeps_the_receptor(tmp_path):
    settings = {"receptor": "antibody", "chains": ["heavy", "light"], "missing_chain": "zero"}
    chains, rejected, _ = parse(tmp_path, f">mab\n{HEAVY}\n", **settings)
    assert list(chains.chain) == ["heavy"] and len(rejected) == 0


def test_nucleotides_where_residues_were_declared(tmp_path):
    with pytest.raises(UserError, match=r"residues were declared .*, but all 392 letters are nucleotides"):
        parse(tmp_path, f">a\n{HEAVY[:392]}\n", molecule="protein")
    with pytest.raises(UserError, match=r"nucleotides were declared .*, but 'a' holds"):
        parse(tmp_path, f">a\n{TRB}\n", molecule="nucleotide")
    assert not (tmp_path / "out").exists()


def test_few_letters_stay_residues_with_a_warning(tmp_path):
    chains, _, summary = parse(tmp_path, ">a\nCATTGAGAT\n")
    assert list(chains.sequence_aa) == ["CATTGAGAT"] and "too few to tell" in summary["notes"][0]
    chains, _, _ = parse(tmp_path, ">a\nTGTGCCAGC\n", molecule="nucleotide")
    assert list(chains.sequence_aa) == ["CAS"]


def test_one_nucleotide_record_among_residues_is_rejected(tmp_path):
    _, rejected, _ = parse(tmp_path, f">a\n{TRB}\n>b\n{HEAVY}\n")
    assert list(rejected.reason) == ["nucleotides among residues"]


# ------------------------------------------------------------------------------------------------------------ tables


def test_airr_table_without_residues_is_rebuilt(tmp_path):
    text = (
        "sequence_id\tv_call\tj_call\tjunction_aa\tproductive\n"
        "a\tTCRBV19-01*01\tTRBJ2-7*01\tCASSIRSSYEQYF\tT\n"
        "b\tTRBV19\tTRBJ2-7\tcassirssyeqyf\t\n"
        "c\tTRBV12-1\tTRBJ2-7\tCASSF\tTRUE\n"
        "d\tTRBV19\t\tCASSF\t1\n"
        "e\tTRBV7-9\tTRBJ2-7\tNone\ttrue\n"
        "f\tTRBV19\tTRBJ2-7\tCASSF\tfalse\n"
        "g\tTRBV6-2,TRBV6-5\tTRBJ2-7\tCASSF\ttrue\n"
        "h\tTRBV19\tTRBJ2-7\tCASSF\ttrue\textra\n"
    )
    chains, rejected, summary = parse(tmp_path, text)
    assert list(chains.receptor_id) == ["a", "b"] and list(chains.sequence_aa) == [TRB, TRB]
    assert list(chains.v_call) == ["TRBV19*01", "TRBV19"]
    assert chains.productive[0] and pd.isna(chains.productive[1])
    assert "gene completed with an allele that has residues: 1 record" in summary["notes"]
    assert list(rejected.reason) == [
        "chain cannot be rebuilt: V gene TRBV12-1 has no complete germline residues",
        "chain cannot be rebuilt: no J gene given, and the junction ends like none or like several",
        "no sequence",
        "not productive",
        "chain cannot be rebuilt: V gene TRBV6-2 or TRBV6-5 is a tie",
        "row has 6 cells, the header 5",
    ]
    assert list(rejected.line) == [4, 5, 6, 7, 8, 9]


def test_table_of_junctions_only_with_a_column_map(tmp_path):
    text = "clone,CDR3b,x\n1,CASSLGF,0\n2,,0\n3,CASSQETF,0\n"
    chains, rejected, _ = parse(tmp_path, text, columns={"receptor_id": "clone", "junction_aa": "CDR3b"})
    assert list(chains.receptor_id) == ["1", "3"] and cdr3s(chains) == ["ASSLG", "ASSQET"]
    assert list(rejected.id) == ["2"] and list(rejected.line) == [3]


def test_mouse_genes_are_not_read_as_human_ones(tmp_path):
    # TRBV13-1 of mouse would pass as TRBV13 of human; TRBV13-2 is in mouse only
    text = "sequence_id,v_call,j_call,junction_aa\na,TRBV13-1*01,TRBJ2-7*01,CASSDGF\nb,TRBV13-2*01,TRBJ2-7*01,CASSDGF\n"
    chains, _, summary = parse(tmp_path, text)
    assert list(chains.v_call) == ["TRBV13-1*01", "TRBV13-2*01"]
    assert chains.sequence_aa[0].startswith("EAAVTQSPRNKVTVTGGNVTLSCRQTNSHNYMYWYRQDTGHGLRLIHYSYGAGNL")
    assert any(note.endswith("the genes are read as those of mouse") for note in summary["notes"])


def test_rows_without_an_id_are_named_by_file_and_line(tmp_path):
    chains, _, summary = parse(tmp_path, "junction_aa,v\nCASSLGF,x\nCASSLGF,y\n")
    assert list(chains.receptor_id) == ["in.txt:2", "in.txt:3"]
    assert "each row is a receptor" in summary["notes"][0]


def test_cdr3_aa_gets_its_anchors_from_the_genes(tmp_path):
    text = "sequence_id,v_call,j_call,cdr3_aa\na,TRBV19*01,TRBJ2-7*01,ASSIRSSYEQY\n"
    chains, _, _ = parse(tmp_path, text)
    assert list(chains.sequence_aa) == [TRB] and list(chains.junction_aa) == ["CASSIRSSYEQYF"]
    # many programs write junctions under that name
    chains, _, summary = parse(tmp_path, text.replace("ASSIRSSYEQY", "CASSIRSSYEQYF"))
    assert list(chains.sequence_aa) == [TRB]
    assert any("taken as junctions" in note for note in summary["notes"])


def test_a_column_that_mixes_junctions_and_cdr3s_is_an_error(tmp_path):
    rows = "".join(f"{i},{'CASSLGF' if i % 2 else 'ASSLG'}\n" for i in range(12))
    with pytest.raises(UserError, match=r"junction_aa mixes junctions with C104 \(CASSLGF, line 3\)"):
        parse(tmp_path, "sequence_id,junction_aa\n" + rows)


def test_table_with_residues_and_genes(tmp_path):
    leader = "MSNQVLCCVVLCLLGANTV"
    text = f"cell_id,locus,sequence_aa,v_call,j_call,junction_aa\nc1,TRB,{leader}{TRB},TRBV19,TRBJ2-7,CASSIRSSYEQYF\n"
    chains, _, summary = parse(tmp_path, text)
    assert chains.fwr1_start[0] == len(leader) and cdr3s(chains) == ["ASSIRSSYEQY"]
    assert summary["numbered"]["by"]["genes"] == 1


def test_chains_of_a_cell(tmp_path):
    rows = [
        ("c1", "TRA", TRA),
        ("c1", "TRB", TRB),
        ("c1", "TRA", TRA[1:]),
        ("c1", "IGK", TRB),
        ("c2", "TRB", TRB),
        ("c3", "Multi", TRB),
    ]
    text = "cell_id,locus,sequence_aa\n" + "".join(",".join(row) + "\n" for row in rows)
    chains, rejected, _ = parse(tmp_path, text, chains=["TRA", "TRB"])
    assert list(chains.receptor_id) == ["c1", "c1"] and list(chains.sequence_aa) == [TRA, TRB]
    assert list(rejected.reason) == [
        "second TRA chain of the receptor",
        "locus IGK is not among the chains asked for (TRA, TRB)",
        "receptor lacks chain TRA",
        "locus Multi is not known",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "sequence_id\tv_call\na\tTRBV19\n",
            "no column sequence_aa, sequence, junction_aa or cdr3_aa, or another name",
        ),
        ("sequence_id\tjunction_aa\n", "a header and no rows"),
        (">a\nCAS*F\n>b\n\n", r"no receptor is left of 2 records: not productive: .* \(1\); no sequence \(1\)"),
        ("CASSF\n", "no FASTA header"),
    ],
)
def test_files_of_which_nothing_is_left(tmp_path, text, words):
    with pytest.raises(UserError, match=words):
        parse(tmp_path, text)
    assert not (tmp_path / "out").exists()


def test_strict_stops_at_what_would_be_left_out(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(f">a\n{TRB}\n>b\nCAS-SF\n")
    with pytest.raises(UserError, match=r"line 3: 'b': strict: gaps taken out \(1 of 2 records"):
        parse_dataset(dataset(path), tmp_path / "out", strict=True)


def test_output_does_not_depend_on_line_ends_or_workers(tmp_path):
    written = []
    for name, end, workers in (("unix", "\n", 1), ("windows", "\r\n", 2)):
        path = tmp_path / "in.fasta"
        path.write_bytes(end.join([">a", TRB, ">b", TRB2, ">c", "CAS*F", ""]).encode())
        parse_dataset(dataset(path), tmp_path / name, workers)
        files = sorted(file for file in (tmp_path / name).iterdir())
        assert [file.name for file in files] == [
            "chains.parquet",
            "genes.tsv",
            "parse.json",
            "receptors.parquet",
            "rejected.tsv",
        ]
        written.append([file.read_bytes() for file in files])
    assert written[0] == written[1]
    assert json.loads(written[0][2])["version"] == STAGE_VERSIONS["parse"]
