"""Faults of other tools that people have reported, each with what is right here; the numbers are of a list of them."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse import parse_dataset
from airrformer.parse.dataset import parse_files
from airrformer.parse.formats import FORMATS
from airrformer.receptors.germlines import rebuild_chain
from airrformer.receptors.tables import BOUND_COLUMNS, REGIONS, read_chains, read_receptors

TRB = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
TRA = rebuild_chain("TRAV27*01", "CAGAGGGGFKTIF", "TRAJ9*01").sequence_aa


@pytest.fixture
def parsed(tmp_path):
    def parse(text, **settings):
        path = tmp_path / "in.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        dataset = Dataset(**{"sequences": str(path), "receptor": "TCR", "chains": ["TRB"], **settings})
        found = parse_files([str(path)], dataset)
        assert found.records == len(found.chains) + len(found.rejected)
        return found

    return parse


def reasons(found):
    return dict(zip(found.rejected["id"], found.rejected["reason"]))


# ------------------------------------------------------------------------------------------------------------- FASTA


def test_1_repeated_headers_stop_or_are_renamed(parsed):
    text = ">cl1\nCASSLGF\n>cl1\nCASRDTF\n>x\nCASSF\n"
    with pytest.raises(UserError, match=r"repeated ids: 'cl1' on lines 1, 3; .* repeated_ids: rename"):
        parsed(text)
    found = parsed(text, repeated_ids="rename")
    assert found.receptor_ids == ["cl1", "cl1_2", "x"]
    assert list(found.chains.sequence_id) == ["cl1", "cl1", "x"]  # what each was called
    assert any("1 id repeated" in note for note in found.notes)


def test_2_the_same_sequence_under_two_ids_is_two_rows(parsed):
    assert list(parsed(">t1\nCASSPF\n>t2\nCASSPF\n").chains.receptor_id) == ["t1", "t2"]


def test_3_the_first_word_is_the_id(parsed):
    assert parsed(">tcr9 donor=3 chain=B\nCASSF\n").receptor_ids == ["tcr9"]
    with pytest.raises(UserError, match="headers differ but their first words, which are the ids, repeat: 'PRED'"):
        parsed(">PRED sample 1\nCASSF\n>PRED sample 2\nCASRF\n")


def test_3_genes_after_the_first_word_are_read(parsed):
    # as in the FASTA files of the antibody corpus and of the paired controls
    found = parsed(f">a TRBV19*01 TRBJ2-7*01 some.tsv\n{TRB}\n")
    assert (found.chains.v_call[0], found.chains.j_call[0]) == ("TRBV19*01", "TRBJ2-7*01")
    assert found.regions_by["genes"] == 1 and found.chains.cdr3_aa[0] == "ASSIRSSYEQY"


def test_4_pipes_are_kept_or_become_columns(parsed):
    assert parsed(">sp|P9X|TRB_X\nCASSF\n").receptor_ids == ["sp|P9X|TRB_X"]
    found = parsed(">cell7|TRB|CASSF\nCASSF\n>bare\nCASSF\n", id="{cell_id}|{locus}|{junction_aa}")
    assert found.receptor_ids == ["cell7"] and "has not the form" in reasons(found)["bare"]


def test_5_slashes_stay_in_ids_and_name_no_file(tmp_path):
    path = tmp_path / "in.fasta"
    path.write_text(">TRAV14/DV4_c2\nCASSF\n>../x\nCASSF\n>a:b\nCASSF\n>/etc/passwd\nCASSF\n")
    parse_dataset(Dataset(sequences=str(path), receptor="TCR", chains=["TRB"]), tmp_path / "out" / "here")
    assert list(read_chains(tmp_path / "out/here/chains.parquet").receptor_id)[1] == "../x"
    written = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file())
    assert len(written) == 6 and all(name == "in.fasta" or name.startswith("out/here/") for name in written)


def test_6_7_10_line_ends_and_wrapping(parsed):
    plain = parsed(f">a\n{TRB}\n").chains
    for text in (f">a\r\n{TRB}\r\n", f">a\n{TRB[:60]}\n{TRB[60:]}\n", f">a\n{TRB[:9]}\r{TRB[9:]}\n"):
        pd.testing.assert_frame_equal(parsed(text).chains, plain)


def test_8_text_before_the_first_header(parsed):
    found = parsed("# exported 2024\n>a\nCASSF\n")
    assert found.receptor_ids == ["a"] and any("1 comment line skipped" in note for note in found.notes)
    with pytest.raises(UserError, match="line 1: text before the first header: 'KKKK'"):
        parsed("KKKK\n>a\nCASSF\n")


def test_9_no_header_at_all(parsed):
    with pytest.raises(UserError, match="no FASTA header"):
        parsed("CASSF\n")


def test_11_not_utf_8(parsed):
    found = parsed(">a café\nCASSF\n".encode("latin-1"))
    assert found.receptor_ids == ["a"] and any("read as Latin-1" in note for note in found.notes)


# ---------------------------------------------------------------------------------------------------------- residues


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("cassLgf", "CASSLGF"),  # 12
        ("CASSF*", "CASSF"),  # 13
        ("CAS--SF", "CASSF"),  # 14
        ("CAS..SF", "CASSF"),
        ("CASXJUF", "CASXXCF"),  # 15
        ("CAS SF", "CASSF"),
    ],
)
def test_12_to_15_what_is_mended(parsed, text, kept):
    assert list(parsed(f">a\n{text}\n").chains.sequence_aa) == [kept]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CAS*SF", "not productive: '*' at position 4"),  # 13
        ("CASS_GF", "not productive: '_' at position 5"),
        ("CASS~GF", "not productive: '~' at position 5"),
        ("CASS#GF", "not productive: '#' at position 5"),
        ("CAS1GF", "illegal character '1' at position 4"),  # 16
        ("CA<pad>F", "illegal character '<' at position 3"),  # 17
        ("CA[MASK]F", "illegal character '[' at position 3"),
        ("nan", "no sequence"),  # 18
        ("None", "no sequence"),
        ("NA", "no sequence"),
        ("CÁSSF", "illegal character 'Á' at position 2"),
    ],
)
def test_13_to_18_what_is_rejected(parsed, text, reason):
    assert reasons(parsed(f">good\nCASSF\n>bad\n{text}\n"))["bad"] == reason


def test_18_missing_values_of_a_table_are_named_by_line(parsed):
    found = parsed("sequence_id\tjunction_aa\na\tCASSF\nb\tNaN\nc\t0\n")
    assert found.rejected[["line", "id", "reason"]].to_numpy().tolist() == [
        [3, "b", "no sequence"],
        [4, "c", "illegal character '0' at position 1"],
    ]


# --------------------------------------------------------------------------------------------------- CDR3s and genes


def test_35_junctions_and_cdr3s_are_told_by_the_file_and_both_kept(parsed):
    for name, values in (("cdr3", ["ASSLG", "ASSQET"]), ("cdr3", ["CASSLGF", "CASSQETF"])):
        found = parsed(f"id\t{name}\n" + "".join(f"r{i}\t{value}\n" for i, value in enumerate(values)))
        assert list(found.chains.cdr3_aa) == ["ASSLG", "ASSQET"]
        assert list(found.chains.junction_aa) == ["CASSLGF", "CASSQETF"]


def test_35_a_mixture_is_refused_or_told_value_by_value(parsed):
    text = "id\tjunction_aa\n" + "".join(f"r{i}\t{'CASSLGF' if i % 2 else 'ASSLG'}\n" for i in range(12))
    with pytest.raises(UserError, match=r"mixes junctions with C104 .* or say cdr3_anchors: each"):
        parsed(text)
    assert set(parsed(text, cdr3_anchors="each").chains.junction_aa) == {"CASSLGF"}


def test_36_a_junction_without_its_cysteine_is_not_mended(parsed):
    rows = "".join(f"r{i}\tTRBV19\tTRBJ2-7\tCASSIRSSYEQYF\n" for i in range(9))
    found = parsed(f"id\tv_call\tj_call\tjunction_aa\n{rows}odd\tTRBV19\tTRBJ2-7\tVVSSLGF\n")
    odd = found.chains.iloc[-1]
    assert odd.junction_aa == "VVSSLGF" and "starts with V, not C104" in odd.note


def test_37_genes_without_an_allele_are_not_lost(parsed):
    found = parsed("id\tv_call\tj_call\tjunction_aa\na\tTRBV19\tTRBJ2-7\tCASSF\nb\tTRBV19*01\tTRBJ2-7*01\tCASSF\n")
    assert list(found.chains.v_call) == ["TRBV19", "TRBV19*01"] and len(set(found.chains.sequence_aa)) == 1
    assert "gene completed with an allele that has residues: 1 record" in found.notes
    first = parsed("id\tv_call\tj_call\tjunction_aa\na\tTRBV19\tTRBJ2-7\tCASSF\n", alleles="first")
    assert list(first.chains.v_call) == ["TRBV19*01"]
    assert first.genes[["given", "kept"]].to_numpy().tolist() == [["TRBJ2-7", "TRBJ2-7*01"], ["TRBV19", "TRBV19*01"]]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("TCRBV19-01*01", "TRBV19*01"),  # 38
        ("TRAV29DV5", "TRAV29/DV5"),  # 39
        ("TRAV29-DV5", "TRAV29/DV5"),
        ("TRAV29/DV5*01", "TRAV29/DV5*01"),
        ("TCRAV7S2", None),  # 40
        ("Va7.2", None),
        ("TRBV16*01,TRBV16*02", "TRBV16"),  # 41
        ("TRBV6-2*01,TRBV6-3*01", "TRBV6-2*01,TRBV6-3*01"),
    ],
)
def test_38_to_41_spellings_ties_and_old_names(parsed, given, kept):
    locus = "TRA" if "A" in given.upper()[:4] else "TRB"
    found = parsed(f"id\tlocus\tv_call\tjunction_aa\na\t{locus}\t{given}\tCASSF\n", chains=[locus], rebuild="never")
    assert found.chains.v_call[0] == kept or (kept is None and pd.isna(found.chains.v_call[0]))
    changed = dict(zip(found.genes["given"], found.genes["kept"]))
    assert changed == ({} if given == kept else {given: kept or ""})


def test_42_a_gene_of_another_species_names_it(parsed):
    found = parsed(
        "id\tv_call\tj_call\tjunction_aa\na\tTRBV13-2\tTRBJ2-7\tCASSF\nb\tTRBV19\tTRBJ2-7\tCASSF\n", species="human"
    )
    assert "mouse" in reasons(found)["a"] and "TRBV13-2" in reasons(found)["a"]


# --------------------------------------------------------------------------------------------------- tables and cells


@pytest.mark.parametrize("word", ["T", "TRUE", "true", "1", "True", "yes"])
def test_44_productive_in_many_spellings(parsed, word):
    assert parsed(f"id\tproductive\tjunction_aa\na\t{word}\tCASSF\n").chains.productive[0]


@pytest.mark.parametrize("word", ["F", "FALSE", "false", "0", "False", "no"])
def test_44_not_productive_in_many_spellings(parsed, word):
    found = parsed(f"id\tproductive\tjunction_aa\na\t{word}\tCASSF\nb\tT\tCASSF\n")
    assert reasons(found) == {"a": "not productive"}


def test_44_empty_is_unknown(parsed):
    text = "id\tproductive\tjunction_aa\na\t\tCASSF\nb\tT\tCASSF\n"
    assert pd.isna(parsed(text).chains.productive[0])
    assert reasons(parsed(text, unknown_productive="reject")) == {"a": "not known to be productive"}


def contigs(*rows, missing=""):
    header = "barcode,is_cell,contig_id,high_confidence,chain,v_gene,j_gene,productive,cdr3,reads,umis"
    lines = [",".join(missing if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join([header, *lines, ""])


@pytest.mark.parametrize("missing", ["None", ""])
def test_45_missing_values_of_10x(parsed, missing):
    text = contigs(
        ("c1", "True", "c1_1", "True", "TRB", "TRBV19", "TRBJ2-7", "True", "CASSIRSSYEQYF", 10, 3),
        ("c2", "True", "c2_1", "True", "TRB", "TRBV19", None, None, None, 10, 3),
        missing=missing,
    )
    found = parsed(text)
    assert found.receptor_ids == ["c1"] and reasons(found) == {"c2_1": "no sequence"}
    assert found.formats.popitem()[1] == "10x contig annotations"


def test_46_cells_with_more_than_two_chains(parsed):
    rows = [
        ("c1", "True", "b", "True", "TRB", "TRBV19", "TRBJ2-7", "True", "CASSIRSSYEQYF", 10, 3),
        ("c1", "True", "a1", "True", "TRA", "TRAV27", "TRAJ9", "True", "CAGAGGGGFKTIF", 10, 3),
        ("c1", "True", "a2", "True", "TRA", "TRAV27", "TRAJ9", "True", "CAGAGGGGFKTLF", 10, 5),
        ("c1", "True", "k", "True", "IGK", "IGKV1-5", "IGKJ1", "True", "CQQYNSYPLTF", 10, 9),
        ("c2", "True", "b2", "True", "TRB", "TRBV19", "TRBJ2-7", "True", "CASSIRSSYEQYF", 90, 30),
        ("c2", "True", "a3", "True", "TRA", "TRAV27", "TRAJ9", "True", "CAGAGGGGFKTIF", 90, 40),
        ("c2", "True", "a4", "True", "TRA", "TRAV27", "TRAJ9", "True", "CAGAGGGGFKTLF", 10, 1),
        ("c3", "True", "m", "True", "Multi", None, "TRAJ9", "True", "CAGAGGGGFKTIF", 10, 1),
        ("c4", "False", "x", "True", "TRB", "TRBV19", "TRBJ2-7", "True", "CASSIRSSYEQYF", 10, 3),
        ("c5", "True", "y", "False", "TRB", "TRBV19", "TRBJ2-7", "True", "CASSIRSSYEQYF", 10, 3),
    ]
    found = parsed(contigs(*rows), chains=["TRA", "TRB"])
    assert list(found.chains.sequence_id) == ["b", "a2", "b2", "a3"]
    assert dict(zip(found.receptor_ids, found.status)) == {"c1": "extra VJ", "c2": "single pair"}
    assert reasons(found) == {
        "a1": "second TRA chain of the receptor",
        "k": "locus IGK is not among the chains asked for (TRA, TRB)",
        "a4": "second TRA chain of the receptor, ambient",
        "m": "locus Multi is not known",
        "x": "not a cell",
        "y": "not of high confidence",
    }
    dropped = parsed(contigs(*rows), chains=["TRA", "TRB"], several_chains="drop")
    assert dropped.receptor_ids == ["c2"]
    assert parsed(contigs(*rows), chains=["TRA", "TRB"], min_umis=4).receptor_ids == ["c2"]


def test_47_ids_that_do_not_match_the_metadata(tmp_path):
    contig = ("AAAC-1", "True", "x", "True", "TRB", "TRBV19", "TRBJ2-7", "True", "CASSIRSSYEQYF", 10, 3)
    (tmp_path / "c.csv").write_text(contigs(contig))
    (tmp_path / "l.tsv").write_text("receptor_id\tlabel\ns1_AAAC\tx\n")
    dataset = Dataset(
        sequences=str(tmp_path / "c.csv"), receptor="TCR", chains=["TRB"], labels={"path": str(tmp_path / "l.tsv")}
    )
    with pytest.raises(UserError, match=r"1 of 1 rows match no sequence .* ids such as s1_AAAC, the sequences AAAC-1"):
        parse_dataset(dataset, tmp_path / "out")


VDJDB = "complex.id\tGene\tCDR3\tV\tJ\tSpecies\tMHC A\tEpitope\tMeta\n"


def test_48_vdjdb_pairs_by_complex_id(parsed):
    rows = [
        '7\tTRA\tCAGAGGGGFKTIF\tTRAV27*01\tTRAJ9*01\tHomoSapiens\tx\tGIL\t{"a": ""}',
        '7\tTRB\tCASSIRSSYEQYF\tTRBV19*01\tTRBJ2-7*01\tHomoSapiens\tx\tGIL\t{"a": ""}',
        "0\tTRB\tCASSIRSSYEQYF\tTRBV19*01\tTRBJ2-7*01\tHomoSapiens\tx\tGIL\t{}",
        "0\tTRB\tCASSIRSAYEQYF\tTRBV19*01\tTRBJ2-7*01\tHomoSapiens\tx\tNLV\t{}",
        "9\tTRA\tCAGAGGGGFKTIF\t\t\tHomoSapiens\tx\tGIL\t{}",
        "9\tTRB\tCASSIRSSYEQYF\tTRBV19*01\tTRBJ2-7*01\tHomoSapiens\tx\tGIL\t{}",
    ]
    found = parsed(VDJDB + "\n".join(rows) + "\n", chains=["TRA", "TRB"])
    assert found.formats.popitem()[1] == "VDJdb" and found.receptor_ids == ["7"]
    assert [reason.partition(":")[0] for reason in found.rejected["reason"]] == [
        "receptor lacks chain TRA",
        "receptor lacks chain TRA",
        "chain cannot be rebuilt",
        "receptor lacks chain TRA",
    ]
    alone = parsed(VDJDB + "\n".join(rows) + "\n", chains=["TRB"])
    assert alone.receptor_ids == ["7", "in.txt:4", "in.txt:5", "9"]


def test_49_airr_files_short_of_columns(parsed):
    found = parsed("sequence_id\tv_call\tjunction_aa\na\tTRBV19\tCASSF\nb\tTRBV19\tCASSF\tx\tmore\n")
    assert found.receptor_ids == ["a"] and reasons(found) == {"b": "row has 5 cells, the header 3"}
    with pytest.raises(UserError, match=r"no column sequence_aa, .* there is sequence_id, v_call"):
        parsed("sequence_id\tv_call\na\tTRBV19\n")


def test_50_a_chain_in_the_wrong_column(parsed):
    text = f"clone_id\tTRA_aa\tTRB_aa\n1\t{TRB}\t{TRA}\n2\t{TRA}\t{TRB}\n"
    found = parsed(text, chains=["TRA", "TRB"])
    assert found.chains.note[0] == "given as TRA, but looks like TRB"
    corrected = parsed(text, chains=["TRA", "TRB"], locus_conflict="correct")
    assert list(corrected.chains.locus) == ["TRB", "TRA", "TRA", "TRB"]
    refused = parsed(text, chains=["TRA", "TRB"], locus_conflict="reject")
    assert refused.receptor_ids == ["2"]


def test_51_what_cannot_be_numbered_is_kept_with_its_reason(parsed):
    long = rebuild_chain("TRBV19*01", f"CASS{'GAVLK' * 7}YEQYF", "TRBJ2-7*01").sequence_aa
    constant = TRB + "EDLNKVFPPEVAVFEPSEAEISHTQKATLVCLATGFFPDHVELSWWVNGKEVHSG"
    found = parsed(f">none\n{'GAVLK' * 30}\n>long\n{long}\n>constant\n{constant}\n")
    chains = found.chains.set_index("receptor_id")
    assert list(chains.numbered) == [False, True, True] and "no V domain found" in chains.note["none"]
    assert chains.cdr3_aa["long"] == f"ASS{'GAVLK' * 7}YEQY" and chains.cdr3_aa["constant"] == "ASSIRSSYEQY"
    for row in chains[chains.numbered].itertuples():
        parts = [row.sequence_aa[getattr(row, f"{r}_start") : getattr(row, f"{r}_end")] for r in REGIONS]
        assert "".join(parts) == row.sequence_aa[row.fwr1_start : row.fwr4_end]
    assert chains.loc["none", list(BOUND_COLUMNS)].isna().all()


@pytest.mark.parametrize(("choice", "kept"), [("keep", f"MSNQVLCCVVLCLLGANTV{TRB}EDLNKVFPPEVAVF"), ("cut", TRB)])
def test_leader_and_constant_region(parsed, choice, kept):
    found = parsed(f">a\nMSNQVLCCVVLCLLGANTV{TRB}EDLNKVFPPEVAVF\n", leader_and_constant=choice)
    assert found.chains.sequence_aa[0] == kept and found.chains.cdr3_aa[0] == "ASSIRSSYEQY"
    row = found.chains.iloc[0]
    assert row.sequence_aa[row.cdr3_start : row.cdr3_end] == "ASSIRSSYEQY"
    assert "leader before the V domain: 1 record" in found.notes
    assert "constant region after the V domain: 1 record" in found.notes


def test_antibodies_are_not_put_together_from_germline_residues(parsed):
    text = "id\tv_call\tj_call\tjunction_aa\na\tIGHV3-23\tIGHJ4\tCARDYW\n"
    assert list(parsed(text, receptor="antibody", chains=["heavy"]).chains.sequence_aa) == ["CARDYW"]
    always = parsed(text, receptor="antibody", chains=["heavy"], rebuild="always")
    assert always.chains.sequence_aa[0].startswith("EVQLLESGGGLVQPGG") and always.chains.cdr3_aa[0] == "ARDY"


def test_labels_may_stand_in_the_table_itself(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("CDR3b,epitope,donor\nCASSLGF,GIL,d1\nCASSF,NLV,d2\nCASSQF,,d2\n")
    dataset = Dataset(
        sequences=str(path), receptor="TCR", chains=["TRB"], labels={"column": "epitope"}, groups={"donor": "donor"}
    )
    parse_dataset(dataset, tmp_path / "out")
    receptors = read_receptors(tmp_path / "out" / "receptors.parquet")
    assert list(receptors.label) == [["GIL"], ["NLV"], []] and list(receptors.donor) == ["d1", "d2", "d2"]
    missing = dataset.model_copy(update={"labels": dataset.labels.model_copy(update={"column": "peptide"})})
    with pytest.raises(UserError, match="no column 'peptide' with values"):
        parse_dataset(missing, tmp_path / "out")


# --------------------------------------------------------------------------------------------- files as they are met


def test_a_fragment_is_no_cdr3_where_junctions_are_given(parsed):
    # reads that begin within FWR3, as BD Rhapsody's and many AIRR tables have them
    fragment = TRB[80:]
    text = f"sequence_id\tjunction_aa\tsequence_aa\na\tCASSIRSSYEQYF\t{fragment}\nb\tCASSLGF\t{fragment}\n"
    found = parsed(text).chains
    assert list(found.cdr3_aa) == ["ASSIRSSYEQY", "ASSLG"] and list(found.junction_aa) == ["CASSIRSSYEQYF", "CASSLGF"]
    assert fragment[found.cdr3_start[0] : found.cdr3_end[0]] == "ASSIRSSYEQY"
    assert not found.numbered[1] and "without its junction" in found.note[1]


def test_a_row_of_several_chains_is_a_receptor_whatever_its_chains_are_called(parsed):
    heavy = rebuild_chain("IGHV3-23*01", "CARDYYGSSYFDYW", "IGHJ4*02").sequence_aa
    light = rebuild_chain("IGKV1-39*01", "CQQSYSTPLTF", "IGKJ4*01").sequence_aa
    text = "sequence_id_heavy,sequence_alignment_aa_heavy,sequence_id_light,sequence_alignment_aa_light\n"
    text += f"h1,{heavy},l1,{light}\nh2,{heavy},l2,{light}\n"
    found = parsed(text, receptor="antibody", chains=["heavy", "light"])
    assert found.receptor_ids == ["in.txt:2", "in.txt:3"] and len(found.chains) == 4
    assert list(found.chains.sequence_id) == ["h1", "l1", "h2", "l2"]
    assert list(found.chains.locus) == ["IGH", "IGK", "IGH", "IGK"]  # told by the chain: the column says light


def test_yes_and_no_are_no_light_chains(parsed):
    text = "name,site,light_chain\n" + "".join(f"ab{i},V3,{'yes' if i % 3 else 'no'}\n" for i in range(9))
    with pytest.raises(UserError, match=r"no column of residues is found \('light_chain' has no, yes\)"):
        parsed(text, receptor="antibody", chains=["light"])


def test_rows_that_lack_columns_at_their_end_are_read(parsed):
    text = "sequence_id\tjunction_aa\tv_call\tj_call\tclone_id\tnote\na\tCASSIRSSYEQYF\tTRBV19\tTRBJ2-7\nb\tCASSF\n"
    found = parsed(text)
    assert found.receptor_ids == ["a"] and reasons(found) == {"b": "row has 2 cells, the header 6"}
    assert any("1 rows are shorter than the header" in note for note in found.notes)


def test_ids_that_repeat_name_no_receptor(parsed):
    found = parsed("sequence_id\tjunction_aa\nx\tCASSLGF\nx\tCASSQETF\n")
    assert found.receptor_ids == ["in.txt:2", "in.txt:3"] and list(found.chains.sequence_id) == ["x", "x"]


def test_each_column_of_a_row_has_a_convention_of_its_own(parsed):
    rows = "".join(f"AGAGGGG{a}KTI,CASS{a}RSSYEQYF\n" for a in "GAVLIPFMW")
    found = parsed(f"CDR3a,CDR3b\n{rows}", chains=["TRA", "TRB"])
    assert list(found.chains.junction_aa[:2]) == ["CAGAGGGGGKTIF", "CASSGRSSYEQYF"]


def test_genes_of_another_locus_are_noted(parsed):
    text = "sequence_id\tlocus\tv_call\tj_call\tjunction_aa\na\tTRB\tTRAV27\tTRAJ9\tCAGAGGGGFKTIF\n"
    assert parsed(text).chains.note[0].startswith("given as TRB, but has a gene of TRA")


def test_a_chain_without_its_j_gene_ends_its_cdr3_as_given(parsed):
    # as in published tables of antibodies: the sequence stops before W118
    heavy = rebuild_chain("IGHV3-23*01", "CARDYYGSSYFDYW", "IGHJ4*02")
    short = heavy.sequence_aa[: heavy.bounds["cdr3"][1]]
    text = f"id,sequence_aa,cdr3_aa\na,{short},ARDYYGSSYFDY\nb,{heavy.sequence_aa},ARDYYGSSYFDY\n"
    found = parsed(text, receptor="antibody", chains=["heavy"]).chains
    assert list(found.cdr3_aa) == ["ARDYYGSSYFDY", "ARDYYGSSYFDY"]
    assert "has no F118 or W118 after the CDR3" in found.note[0] and pd.isna(found.fwr4_start[0])
    lone = parsed(f">a\n{short}\n", receptor="antibody", chains=["heavy"]).chains
    assert pd.isna(lone.cdr3_aa[0]) and pd.isna(lone.junction_aa[0]) and "no F118 or W118" in lone.note[0]
    assert lone.numbered[0] and lone.fwr3_end[0] == short.rindex("ARDYYG")


def test_a_mutated_f118_is_one(parsed):
    # the light chain of VRC26.14, whose F118 is an isoleucine
    chain = rebuild_chain("IGLV1-51*01", "CGTWDNSLNSSPLI", "IGLJ1*01").sequence_aa
    found = parsed(f">a\n{chain}\n", receptor="antibody", chains=["light"]).chains
    assert found.cdr3_aa[0] == "GTWDNSLNSSPL" and "ends with I, not F/W118" in found.note[0]


def test_a_stop_within_a_junction_is_not_productive(parsed):
    found = parsed("id\tjunction_aa\na\tCASSQSY*\nb\tCASSF*\n")
    assert reasons(found) == {"a": "not productive: a stop in the junction"} and list(found.chains.junction_aa) == [
        "CASSF"
    ]


def test_constant_genes_are_kept_also_without_their_number(parsed):
    found = parsed("id\tlocus\tc_call\tjunction_aa\na\tIGH\tIGHG\tCARDYW\n", receptor="antibody", chains=["heavy"])
    assert found.chains.c_call[0] == "IGHG" and "IGHG" not in (found.chains.note[0] or "")


def test_whole_chains_and_lone_cdr3s_together_are_worth_a_word(parsed):
    found = parsed(f">a\n{TRB}\n>b\nCASSLGF\n>c\nCASSF\n")
    assert any("2 chains of 3 are CDR3s alone, the others whole" in note for note in found.notes)


NT = "TGTGCCAGTAGTATAAGGAGCAGCTACGAGCAGTACTTC"  # CASSIRSSYEQYF


def test_nucleotides_in_a_column_of_cdr3s(parsed):
    header = "sequence_id,v_call,j_call,junction_aa\n"
    one = parsed(header + f"a,TRBV19,TRBJ2-7,CASSIRSSYEQYF\nb,TRBV19,TRBJ2-7,{NT}\n")
    assert reasons(one) == {"b": "nucleotides among residues"}
    assert reasons(parsed(f">a\nCASSF\n>b\n{NT}\n")) == {"b": "nucleotides among residues"}
    whole = parsed(header + "".join(f"r{i},TRBV19,TRBJ2-7,{NT}\n" for i in range(3)))  # 60 letters and more in all
    assert set(whole.chains.junction_aa) == {"CASSIRSSYEQYF"}
    # AIRR's cdr3 is nucleotides, other tables write residues there
    for cdr3 in ("CASSIRSSYEQYF", NT):
        text = "cell_id,v_call,j_call,cdr3\n" + "".join(f"c{i},TRBV19,TRBJ2-7,{cdr3}\n" for i in range(3))
        assert set(parsed(text).chains.junction_aa) == {"CASSIRSSYEQYF"}
    fasta = parsed("".join(f">r{i}\n{NT}\n" for i in range(3)))
    assert set(fasta.chains.cdr3_aa) == {"ASSIRSSYEQY"} and set(fasta.chains.junction_aa) == {"CASSIRSSYEQYF"}


def test_a_whole_chain_in_a_column_of_cdr3s_is_not_doubled(parsed):
    found = parsed(f"id,v_call,j_call,cdr3_aa\na,TRBV19,TRBJ2-7,{TRB}\nb,TRBV19,TRBJ2-7,CASSF\n")
    assert reasons(found) == {"a": "junction of more than 80 residues; is it a whole chain?"}


def test_an_epitope_under_sequence_is_no_chain(parsed):
    found = parsed("id,cdr3,v_gene,j_gene,sequence\na,CASSIRSSYEQYF,TRBV19*01,TRBJ2-7*01,GILGFVFTL\n")
    assert list(found.chains.sequence_aa) == [TRB]
    wide = (
        "va,ja,cdr3_alpha,vb,jb,cdr3_beta,sequence\nTRAV27,TRAJ9,CAGAGGGGFKTIF,TRBV19,TRBJ2-7,CASSIRSSYEQYF,GILGFVFTL\n"
    )
    assert list(parsed(wide, chains=["TRA", "TRB"]).chains.sequence_aa) == [TRA, TRB]


def test_a_paired_clonotype_of_immunarch_stays_whole(parsed):
    header = "Clones\tCDR3.aa\tV.name\tJ.name\tchain\tBarcode\n"
    row = "2\tCAGAGGGGFKTIF;CASSIRSSYEQYF\tTRAV27;TRBV19\tTRAJ9;TRBJ2-7\tTRA;TRB\tcell1;cell2\n"
    found = parsed(header + row, chains=["TRA", "TRB"])
    assert found.receptor_ids == ["in.txt:2"] and list(found.chains.locus) == ["TRA", "TRB"]


@pytest.mark.parametrize("end", [100, 80])
def test_cutting_leader_and_constant_region_cuts_no_chain_that_ends_early(parsed, end):
    text = f"sequence_id\tjunction_aa\tsequence_aa\na\tCASSIRSSYEQYF\t{TRB[:end] if end == 100 else TRB[end:]}\n"
    found = parsed(text, leader_and_constant="cut").chains
    assert found.sequence_aa[0] == (TRB[:end] if end == 100 else TRB[end:]) and "residues after" not in found.note[0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("TRBV12-3*01/TRBV12-4*01", "TRBV12-3*01,TRBV12-4*01"),
        ("TRBV6-2*01 & TRBV6-3*01", "TRBV6-2*01,TRBV6-3*01"),
        ("TRBV6-2*01 TRBV6-3*01", None),
        ("TRBJ2-7*01", None),
        ("TRBV19*01|TRBJ2-7*01", None),
    ],
)
def test_a_call_is_never_the_first_of_several_by_accident(parsed, given, kept):
    found = parsed(f"id\tlocus\tv_call\tjunction_aa\na\tTRB\t{given}\tCASSF\n", rebuild="never").chains
    assert found.v_call[0] == kept or (kept is None and pd.isna(found.v_call[0]))


@pytest.mark.parametrize(
    ("header", "v", "j"),
    [
        ("a x|TRBV19*01|TRBJ2-7*01", "TRBV19*01", "TRBJ2-7*01"),
        ("a v=TRBV19*01,j=TRBJ2-7*01", "TRBV19*01", "TRBJ2-7*01"),
        ("a TRBV6-2*01,TRBV6-3*01 TRBJ2-7", "TRBV6-2*01,TRBV6-3*01", "TRBJ2-7"),
        ("a anti-TRBV9 antibody", None, None),
    ],
)
def test_genes_of_a_header_end_where_they_end(parsed, header, v, j):
    row = parsed(f">{header}\n{TRB}\n").chains.iloc[0]
    assert [row.v_call, row.j_call] == [v, j] or (v is None and pd.isna(row.v_call) and pd.isna(row.j_call))


def test_one_clone_over_and_over_is_a_table_too(parsed):
    assert len(parsed("cdr3\n" + "CASSLGYEQYF\n" * 6).chains) == 6


def test_names_for_repeated_ids_are_free(parsed):
    found = parsed(">a\nCASSF\n>a\nCASSLF\n>a_2\nCASSQF\n>a\nCASSRF\n", repeated_ids="rename")
    assert len(set(found.receptor_ids)) == 4 and list(found.chains.sequence_id) == ["a", "a", "a_2", "a"]


def test_regions_are_counted_of_the_chains_that_are_kept(parsed):
    rows = [
        ("c1", "True", f"b{i}", "True", "TRB", "TRBV19", "TRBJ2-7", "True", f"CASS{a}RSSYEQYF", 10, i)
        for i, a in enumerate("GAV")
    ]
    assert parsed(contigs(*rows)).regions_by["genes"] == 1


def test_alpha_given_as_delta_and_genes_of_two_loci_are_noted(parsed):
    header = "id\tlocus\tv_call\tj_call\tjunction_aa\n"
    delta = parsed(header + "a\tTRD\tTRAV1-2*01\tTRAJ33*01\tCAVRDSNYQLIW\n", chains=["TRD"])
    assert delta.chains.note[0].startswith("given as TRD, but has a gene of TRA")
    assert len(parsed(header + "a\tTRD\tTRAV29/DV5\tTRDJ1\tCAASTDKLIF\n", chains=["TRD"]).chains) == 1
    mixed = parsed(header + "a\tTRB\tTRAV1-2*01\tTRBJ2-7*01\tCASSIRSSYEQYF\n")
    assert "but has a gene of TRA" in mixed.chains.note[0]


def test_the_header_again_is_no_chain(parsed):
    found = parsed("id,cdr3\na,CASSF\nid,cdr3\nb,CASSLF\n")
    assert found.receptor_ids == ["a", "b"] and list(found.rejected["reason"]) == ["the header again"]


def test_a_comma_in_a_number_shifts_no_id(parsed):
    with pytest.raises(
        UserError, match="line 2: rows have one cell more than the header; is there a comma in a number"
    ):
        parsed("receptor_id,freq,junction_aa\na,1,5,CASSF\nb,2,5,CASSLF\n")


def test_a_column_map_goes_on_top_of_the_usual_names(parsed):
    text = "id,v_gene,j_gene,mycdr\na,TRBV19*01,TRBJ2-7*01,CASSIRSSYEQYF\n"
    found = parsed(text, columns={"junction_aa": "mycdr"})
    assert found.receptor_ids == ["a"] and list(found.chains.sequence_aa) == [TRB]


def test_two_files_of_one_name_make_no_pair(tmp_path):
    for name, row in (("x", "TRA,TRAV27,TRAJ9,CAGAGGGGFKTIF"), ("y", "TRB,TRBV19,TRBJ2-7,CASSIRSSYEQYF")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "clones.csv").write_text(f"locus,v_call,j_call,junction_aa\n{row}\n")
    files = [str(tmp_path / name / "clones.csv") for name in "xy"]
    dataset = Dataset(sequences=files, receptor="TCR", chains=["TRA", "TRB"], missing_chain="zero")
    assert parse_files(files, dataset).receptor_ids == [f"{file}:2" for file in files]


def test_one_receptor_in_two_files_is_worth_a_word(tmp_path):
    for name, sequence in (("a", TRA), ("b", TRB)):
        (tmp_path / name).write_text(f">x\n{sequence}\n")
    files = [str(tmp_path / name) for name in "ab"]
    found = parse_files(files, Dataset(sequences=files, receptor="TCR", chains=["TRA", "TRB"]))
    assert any("1 receptor with chains of several files" in note for note in found.notes)


def test_the_input_is_not_written_over(tmp_path):
    path = tmp_path / "rejected.tsv"
    path.write_text("id\tcdr3\na\tCASSF\n")
    with pytest.raises(UserError, match="would be written over the input"):
        parse_dataset(Dataset(sequences=str(path), receptor="TCR", chains=["TRB"]), tmp_path)
    assert path.read_text().startswith("id\tcdr3") and len(list(tmp_path.iterdir())) == 1


def test_labels_may_be_marks(tmp_path):
    (tmp_path / "t.csv").write_text("id,cdr3,binds\na,CASSF,+\nb,CASSLF,-\nc,CASSQF,NA\n")
    dataset = Dataset(sequences=str(tmp_path / "t.csv"), receptor="TCR", chains=["TRB"], labels={"column": "binds"})
    assert parse_dataset(dataset, tmp_path / "out")["classes"] == {"+": 1, "-": 1}


@pytest.mark.parametrize(
    "word", ["not productive", "out-of-frame", "False (stop)", "pseudo", "unproductive (see comment)"]
)
def test_44_words_that_say_no(parsed, word):
    found = parsed(f"id\tproductive\tjunction_aa\na\t{word}\tCASSF\nb\tT\tCASSF\n")
    assert reasons(found) == {"a": "not productive"}
    maybe = parsed("id\tproductive\tjunction_aa\na\tmaybe\tCASSF\n")
    assert "productive is 'maybe', which is taken as not known: 1 record" in maybe.notes


def test_umis_that_are_no_number_pass_no_threshold(parsed):
    text = "cell_id\tlocus\tjunction_aa\tumi_count\na\tTRB\tCASSF\tfive\nb\tTRB\tCASSF\t5\n"
    assert reasons(parsed(text, min_umis=3)) == {"a": "UMIs are no number"} and len(parsed(text).chains) == 2


def test_a_file_of_one_line_without_an_end(parsed):
    assert parsed("CASSIRSSYEQYF\tTRBV19\tTRBJ2-7").chains.v_call[0] == "TRBV19"


def test_mudata_is_told_by_its_first_bytes():
    path = str(Path(__file__).parent / "data" / "airr.h5mu")
    found = parse_files([path], Dataset(sequences=path, receptor="TCR", chains=["TRA", "TRB"], missing_chain="zero"))
    assert found.formats == {path: "AnnData"} and len(found.chains)


# ------------------------------------------------------------------------------------------------- the command itself


def test_where_nothing_says_which_chain_it_is_one_asks(tmp_path):
    (tmp_path / "a.csv").write_text("AASeq,Count\nWGGDGFYAMD,3\nWCLFGFYVFN,2\nFGGNGMYALN,1\n")
    found = run(tmp_path / "a.csv", "--describe")
    assert found.returncode == 2 and "nothing says which chains these are; say it: --chains TRB" in found.stderr
    assert run(tmp_path / "a.csv", "--describe", "--chains", "heavy").returncode == 0


def test_chains_of_both_kinds_that_are_in_no_pair_are_all_kept(tmp_path):
    (tmp_path / "a.fasta").write_text(f">a\n{TRB}\n>b\n{TRA}\n>c\n{'GAVLK' * 20}\n")
    found = run(tmp_path / "a.fasta", "--output", tmp_path / "out")
    assert found.returncode == 0 and "3 records: 2 receptors with 2 chains, 1 rejected" in found.stderr
    assert "chain cannot be told" in found.stderr  # what says nothing is taken for nothing
    described = run(tmp_path / "a.fasta", "--describe")
    assert "--chains TRA,TRB --missing-chain zero" in described.stdout
    assert "3 records: 2 receptors with 2 chains, 1 would be rejected" in described.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "chains=TRA"], "chains has a flag of its own"),
        (["--columns", "junction_aa=x,junction_aa=y"], "junction_aa is given twice"),
        (["--chains", "beta"], "chains.0: input should be 'TRA'"),
        (["--set", "species=mouse,speciess=x"], "speciess"),
    ],
)
def test_mistakes_at_the_command_line_are_one_sentence(tmp_path, arguments, words):
    (tmp_path / "a.fasta").write_text(">a\nCASSF\n")
    found = run(tmp_path / "a.fasta", "--output", tmp_path / "out", *arguments)
    assert found.returncode == 2 and words in found.stderr and "Traceback" not in found.stderr
    assert "the config" not in found.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "words"), [("none.csv", "there is no such file"), (".", "a folder")])
def test_a_file_that_is_not_there_is_one_sentence(tmp_path, name, words):
    found = run(name, "--describe", cwd=tmp_path)
    assert found.returncode == 2 and words in found.stderr and found.stderr.count("\n") == 1


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "airrformer", "parse", *map(str, arguments)], capture_output=True, text=True, **options
    )


def test_describe_writes_nothing_and_says_what_it_is(tmp_path):
    path = tmp_path / "cells.dat"
    path.write_text(
        contigs(
            ("c1", "True", "b", "True", "TRB", "TRBV19", "TRBJ2-7", "True", "CASSIRSSYEQYF", 10, 3),
            ("c1", "True", "a", "True", "TRA", "TRAV27", "TRAJ9", "True", "CAGAGGGGFKTIF", 10, 3),
            ("c2", "True", "d", "True", "TRB", "TRBV19", "TRBJ2-7", "False", "CAS*F", 10, 3),
        )
    )
    found = run(path, "--describe", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "10x contig annotations" in found.stdout and "junction_aa <- cdr3" in found.stdout
    assert "Read with --receptor TCR --chains TRA,TRB" in found.stdout
    assert "3 records: 1 receptor with 2 chains, 1 would be rejected" in found.stdout
    assert "1 not productive; the first: line 4, 'd'" in found.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["cells.dat"]


def test_standard_input_is_read_and_strict_is_an_error(tmp_path):
    text = ">a\nCASSF\n>b\nCAS*F\n"
    found = run("-", "--chains", "TRB", "--output", tmp_path / "out", input=text)
    assert found.returncode == 0 and "2 records: 1 receptor with 1 chain, 1 rejected" in found.stderr
    assert "1 not productive" in found.stderr
    assert pd.read_csv(tmp_path / "out" / "rejected.tsv", sep="\t").to_numpy().tolist() == [
        ["stdin", 3, "b", "not productive: '*' at position 4", "CAS*F"]
    ]
    strict = run("-", "--chains", "TRB", "--output", tmp_path / "again", "--strict", input=text)
    assert strict.returncode == 2 and "stdin: line 3: 'b': not productive" in strict.stderr
    assert "Traceback" not in strict.stderr and not (tmp_path / "again").exists()


def test_every_format_is_documented():
    text = (Path(__file__).parents[2] / "config" / "README.md").read_text()
    assert [format.name for format in FORMATS if format.name not in text] == []
