"""Chains of which the CDRs are known and nothing else, and CDR3s that the user says have no anchors."""

import pandas as pd
import pytest

from airrformer.config import Dataset
from airrformer.parse.dataset import parse_files
from airrformer.receptors.germlines import rebuild_chain

# K77 (Spike/HA): CDRs of IMGT
HEAVY, LIGHT = ("GYTLTELS", "FDPEDAET", "ATLAYCTNGV"), ("QGISSY", "AAS", "QQLNSYPRFT")
HEADER = "name,h1,h2,h3,l1,l2,l3\n"
COLUMNS = {"receptor_id": "name"} | {f"heavy.cdr{k}_aa": f"h{k}" for k in (1, 2, 3)}
COLUMNS |= {f"light.cdr{k}_aa": f"l{k}" for k in (1, 2, 3)}


@pytest.fixture
def parsed(tmp_path):
    def parse(text, **settings):
        path = tmp_path / "in.csv"
        path.write_text(text)
        given = {"receptor": "antibody", "chains": ["heavy", "light"], "columns": COLUMNS, "cdr3_anchors": "without"}
        return parse_files([str(path)], Dataset(**{"sequences": str(path), **given, **settings}))

    return parse


def row(name, heavy=HEAVY, light=LIGHT):
    return ",".join([name, *heavy, *light]) + "\n"


def regions(chain):
    bounds = ((chain[f"cdr{k}_start"], chain[f"cdr{k}_end"]) for k in (1, 2, 3))
    return tuple(chain["sequence_aa"][start:end] for start, end in bounds)


def test_six_cdrs_are_two_chains_whose_slices_are_the_cdrs(parsed):
    found = parsed(HEADER + row("a") + row("b", (" gytltels ", "FDPE-DAET", "CATLAYF")))
    chains = found.chains
    assert [regions(chain) for _, chain in chains.iterrows()] == [HEAVY, LIGHT, (*HEAVY[:2], "CATLAYF"), LIGHT]
    assert chains.sequence_aa[0] == "".join(HEAVY) and chains.cdr3_aa[0] == HEAVY[2]
    assert chains.chain.tolist() == ["heavy", "light"] * 2 and not chains.numbered.any()
    assert chains.note[0] == "known by its CDRs only"
    frame = [f"fwr{k}_{end}" for k in (1, 2, 3, 4) for end in ("start", "end")]
    assert chains[frame].isna().all(axis=None)
    assert found.regions_by["cdrs_only"] == 4
    assert "known by its CDRs only: 4 records" in found.notes and "gaps taken out: 1 record" in found.notes


def test_cdrs_are_laid_into_the_nearest_germline_frameworks(parsed):
    # IGHV1-24 has GYTLTELS and FDPEDGET
    found = parsed(HEADER + row("a", ("GYTLTDLS", *HEAVY[1:])), rebuild="always")
    heavy, light = (chain for _, chain in found.chains.iterrows())
    assert regions(heavy) == ("GYTLTDLS", *HEAVY[1:]) and regions(light) == LIGHT
    v = "QVQLVQSGAEVKKPGASVKVSCKVSGYTLTDLSMHWVRQAPGKGLEWMGGFDPEDAETIYAQKFQGRVTMTEDTSTDTAYMELSSLRSEDTAVYYC"
    assert heavy.sequence_aa == f"{v}ATLAYCTNGVWGQGTLVTVSS"
    assert heavy.note == (
        "framework of IGHV1-24*01, the V gene with the nearest CDR1 and CDR2 (2 edits away); the junction ends like no "
        "J gene or like several, IGHJ1*01 is taken"
    )
    # IGKV1-8 and IGKV1-9 have these CDRs; the CDR3 ends like IGKJ3
    v = "AIRMTQSPSSFSASTGDRVTITCRASQGISSYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISCLQSEDFATYYC"
    assert light.sequence_aa == f"{v}QQLNSYPRFTFGPGTKVDIK" and pd.isna(light.v_call)
    assert light.note == "framework of IGKV1-8*01, the V gene with the nearest CDR1 and CDR2 (0 edits away)"
    assert found.regions_by["genes"] == 2 and found.chains.numbered.all()
    assert "chain rebuilt from its CDRs and the nearest germline frameworks: 2 records" in found.notes


def test_genes_that_are_given_are_taken(parsed):
    columns = COLUMNS | {"heavy.v_call": "v", "light.j_call": "j"}
    text = HEADER.strip() + ",v,j\n" + row("a").strip() + ",IGHV1-2*02,IGKJ1*01\n"
    found = parsed(text, rebuild="always", columns=columns)
    heavy, light = (chain for _, chain in found.chains.iterrows())
    assert heavy.note.startswith("framework of IGHV1-2*02") and regions(heavy) == HEAVY
    assert light.sequence_aa.endswith("QQLNSYPRFTFGQGTKVEIK")  # IGKJ1, whatever the junction ends like


def test_what_is_like_no_germline_is_not_laid_into_one(parsed):
    strange, hidden = ("WWWWWWWW", "CCCCCCCC", HEAVY[2]), ("XXXXXELS", "XXXXXXXX", HEAVY[2])
    some = ("GYTLTEXX", "FDPEDAET", "GGGGGG")  # two unknown residues cost nothing; the CDR3 ends like no J gene
    found = parsed(HEADER + row("a", strange) + row("b", hidden) + row("c", some), rebuild="always")
    assert found.receptor_ids == ["a", "b", "c"] and found.rejected.empty  # what is known of them is kept
    heavy = found.chains[found.chains.chain == "heavy"].set_index("receptor_id")
    assert regions(heavy.loc["a"]) == strange and heavy.sequence_aa["a"] == "".join(strange)
    assert "not laid into germline frameworks: no V gene is like its CDR1 and CDR2; the nearest, " in heavy.note["a"]
    assert "germline frameworks: most residues of its CDR1 and CDR2 are unknown" in heavy.note["b"]
    assert "CDRs not laid into germline frameworks, which are unlike them: 2 records" in found.notes
    note = heavy.note["c"]
    assert "framework of IGHV1-24*01, the V gene with the nearest CDR1 and CDR2 (1 edits away)" in note
    assert "the junction ends like no J gene or like several, IGHJ1*01 is taken" in note


def test_what_cannot_be_residues_is_rejected_with_its_reason(parsed):
    text = HEADER + row("ok") + row("stop", ("IH*LR", *HEAVY[1:])) + row("gap", light=("QGISSY", "", "QQL"))
    text += row("x", ("GXTLTELS", *HEAVY[1:])) + row("digit", light=("QGISSY", "A1S", "QQL"))
    found = parsed(text)
    assert found.receptor_ids == ["ok", "x"]
    assert regions(found.chains.iloc[2]) == ("GXTLTELS", *HEAVY[1:]) and "unknown residues X: 1" in found.chains.note[2]
    rejected = found.rejected[["line", "id", "reason", "value"]].to_records(index=False).tolist()
    assert rejected == [
        (3, "stop", "not productive: '*' at position 3", "IH*LR"),
        (3, "stop", "receptor lacks chain heavy", "light"),
        (4, "gap", "no cdr2_aa, and the chain is known by its CDRs only", ""),
        (4, "gap", "receptor lacks chain light", "heavy"),
        (6, "digit", "illegal character '1' at position 2", "A1S"),
        (6, "digit", "receptor lacks chain light", "heavy"),
    ]


def test_asn_ala_asn_is_a_cdr2_and_no_missing_value(parsed):
    some = (row(name, light=("QGISSY", cdr2, "QQL")) for name, cdr2 in (("a", "NAN"), ("b", "NaN"), ("c", "AAS")))
    found = parsed(HEADER + "".join(some))
    assert found.receptor_ids == ["a", "c"] and regions(found.chains.iloc[1])[1] == "NAN"


def test_a_tcr_is_rebuilt_where_its_genes_are_there(parsed):
    text = "id,v,j,c1,c2,c3\na,TRBV19*01,TRBJ2-7*01,LNHDA,SQIVND,ASSIRSSYEQY\n"
    columns = {"receptor_id": "id", "cdr1_aa": "c1", "cdr2_aa": "c2", "cdr3_aa": "c3"}
    tcr = {"receptor": "TCR", "chains": ["TRB"]}
    with_genes = columns | {"v_call": "v", "j_call": "j"}
    whole = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
    assert parsed(text, columns=with_genes, **tcr).chains.sequence_aa[0] == whole
    for settings in ({"columns": columns}, {"columns": with_genes, "rebuild": "never"}):
        chain = parsed(text, **tcr, **settings).chains.iloc[0]
        assert regions(chain) == ("LNHDA", "SQIVND", "ASSIRSSYEQY") and chain.junction_aa == "CASSIRSSYEQYF"


def test_airr_names_are_known(parsed):
    text = "sequence_id\tv_call\tj_call\tcdr1\tcdr1_aa\tcdr2_aa\tcdr3_aa\n"
    text += "a\tIGHV1-24*01\tIGHJ6*03\tGGATACACC\tGYTLTELS\tFDPEDAET\tATLAYW\n"
    found = parsed(text, columns=None, chains=["heavy"], cdr3_anchors="auto")
    assert regions(found.chains.iloc[0]) == ("GYTLTELS", "FDPEDAET", "ATLAYW")


def test_cdr3_alone_is_as_ever(parsed):
    found = parsed("name,h3\na,ATLAYCTNGV\n", columns={"receptor_id": "name", "heavy.cdr3_aa": "h3"}, chains=["heavy"])
    chain = found.chains.iloc[0]
    assert chain.sequence_aa == "CATLAYCTNGVW" and chain.numbered and pd.isna(chain.cdr1_start)


def test_cdr3s_said_to_be_without_anchors_have_none(parsed):
    text = "AASeq\nWCLFGFYVFN\nCGGNGMYALF\n"  # the second begins with C and ends with F
    settings = {"columns": {"heavy.cdr3_aa": "AASeq"}, "chains": ["heavy"]}
    found = parsed(text, **settings)
    assert found.chains.cdr3_aa.tolist() == ["WCLFGFYVFN", "CGGNGMYALF"]
    assert found.receptor_ids == ["in.csv:2", "in.csv:3"]
