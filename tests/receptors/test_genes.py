import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airrformer.receptors.genes import GeneCall, genes_of, species_name, standardise

MOUSE = "musmusculus"


@pytest.mark.parametrize(
    ("spelling", "symbol"),
    [
        # IMGT, as people write it
        ("TRBV19", "TRBV19"),
        ("TRBV19*01", "TRBV19*01"),
        (" trbv19*1 ", "TRBV19*01"),
        ("TRBV 19", "TRBV19"),
        ("TRBV19:01", "TRBV19*01"),
        ("TRAJ4-01", "TRAJ4"),
        ("AJ33", "TRAJ33"),
        ("KV1-5", "IGKV1-5"),
        ("IGHV1-f", "IGHV1-69-2"),
        ("IGHD1/OR15-1A*01", "IGHD1/OR15-1a*01"),
        ("TRBV20OR9-2", "TRBV20/OR9-2"),
        ("IGHG1", "IGHG1"),
        ("TRBC1", "TRBC1"),
        # genes of both alpha and delta chains
        ("TRAV29DV5", "TRAV29/DV5"),
        ("TRAV29-DV5", "TRAV29/DV5"),
        ("TRAV29/DV5*01", "TRAV29/DV5*01"),
        ("TRAV23/DV6", "TRAV23/DV6"),
        ("TRAV14", "TRAV14/DV4"),
        ("TRAV14/4", "TRAV14/DV4"),
        ("TRDV4", "TRAV14/DV4"),
        # immunoSEQ
        ("TCRBV19-01*01", "TRBV19*01"),
        ("TCRBV05-04", "TRBV5-4"),
        ("TCRBV13-01", "TRBV13"),
        ("TRBJ02-01", "TRBJ2-1"),
        ("TCRBJ2S7", "TRBJ2-7"),
        ("TCRBD01-01*01", "TRBD1*01"),
        ("TCRAV14-01", "TRAV14/DV4"),
        ("TCRAV38-02", "TRAV38-2/DV8"),
        ("TCRAV01-01*02", "TRAV1-1*02"),
        ("TCRGV09-01", "TRGV9"),
        ("TCRBV09", "TRBV9"),
        ("TCRBV20-or09_02", "TRBV20/OR9-2"),
        ("TCRBVA-or09_02", "TRBVA/OR9-2"),
        ("IGHV03-23*01", "IGHV3-23*01"),
        # MiXCR, IMGT
        ("TRBV12-3*00(1234.5)", "TRBV12-3"),
        ("TRBV12-3*01(1234)", "TRBV12-3*01"),
        ("Homsap TRBV19*01 F", "TRBV19*01"),
        ("Homsap TRBV6-2*01 (F)", "TRBV6-2*01"),
        ("Homsap TRBV20-1*01 F (see comment)", "TRBV20-1*01"),
        # several alleles of one gene
        ("TRBV16*01,TRBV16*03", "TRBV16"),
        ("TRBV19, TRBV19*01", "TRBV19"),
        ("Homsap IGHV3-23*01 F, or Homsap IGHV3-23*04 F", "IGHV3-23"),
        # ties
        ("TRBV6-2*01,TRBV6-3*01", "TRBV6-2*01,TRBV6-3*01"),
        ("TRBV6-2*01,TRBV6-3*01,TRBV6-3*02", "TRBV6-2*01,TRBV6-3"),
        ("TCRBJ02-01,TCRBJ02-05", "TRBJ2-1,TRBJ2-5"),
        ("TCRBV12-03/12-04", "TRBV12-3,TRBV12-4"),
        ("TCRBV12-03/12-04,TCRBV12-04", "TRBV12-3,TRBV12-4"),
        ("TCRBV03-01/03-02*01", "TRBV3-1*01"),
        ("TRBV6-2/TRBV6-3", "TRBV6-2,TRBV6-3"),
        ("TRBV6-2|TRBV6-3", "TRBV6-2,TRBV6-3"),
        ("TCRBV20-01,TCRBV20-or09_02", "TRBV20-1"),
        ("IGHV1-69*01 or IGHV1-69D*01", "IGHV1-69*01,IGHV1-69D*01"),
        ("Homsap IGHV3-23*01 F, or Homsap IGHV3-23D*01 F", "IGHV3-23*01,IGHV3-23D*01"),
        ("TRBV12-3*00(1234.5),TRBV12-4*00(1234.5)", "TRBV12-3,TRBV12-4"),
    ],
)
def test_spellings_become_one_symbol(spelling, symbol):
    call = standardise(spelling)
    assert call.symbol == symbol
    tie = "," in symbol
    assert (" is a tie" in (call.note or "")) == tie
    assert (call.why is None) == (spelling == symbol and not tie) or call.symbol == spelling


@pytest.mark.parametrize(("kind", "species"), [("TR", "homosapiens"), ("TR", MOUSE), ("IG", "homosapiens")])
def test_every_gene_keeps_its_name_in_every_spelling(kind, species):
    imgt = {"homosapiens": "Homsap", MOUSE: "Musmus"}[species]
    for gene, alleles in genes_of(kind, species).items():
        spellings = [gene, gene.lower(), f"{gene}*00(123.4)"]
        if "/DV" in gene:
            spellings += [gene.replace("/", ""), gene.replace("/", "-")]
        number = re.fullmatch(r"TR([ABGD][VJ])(\d+)-(\d+)(/DV\d+)?", gene)
        if number and gene not in ("TRAV11-1", "TRAV14-1"):  # pseudogenes whose immunoSEQ name is that of another gene
            spellings.append(f"TCR{number[1]}{int(number[2]):02}-{int(number[3]):02}")
        for spelling in spellings:
            assert standardise(spelling, None, species).symbol == gene, spelling
        for allele in alleles:
            for spelling in (f"{gene}*{allele}", f"{imgt} {gene}*{allele} F"):
                assert standardise(spelling, None, species).symbol == f"{gene}*{allele}", spelling


@pytest.mark.parametrize("word", ["unresolved", "no data", "X", "None", "NA", "", " ", "None,None"])
def test_words_for_no_gene_are_no_gene(word):
    assert standardise(word) == GeneCall(None, None, "no gene is given")


@pytest.mark.parametrize(
    ("symbol", "receptor", "species", "words"),
    [
        # old names, most of which read like modern names of other genes
        ("TCRAV7S2", None, "homosapiens", "old (Arden) nomenclature"),
        ("AV7S2", None, "homosapiens", "old (Arden) nomenclature"),
        ("AV7S2", None, MOUSE, "old (Arden) nomenclature"),
        ("TRBV7S2", None, "homosapiens", "old (Arden) nomenclature"),
        ("TCRAV8S1", None, "homosapiens", "old (Arden) nomenclature"),
        ("BV17S1", None, "homosapiens", "old (Arden) nomenclature"),
        ("TCRBV22S1A2N1T", None, MOUSE, "old (Arden) nomenclature"),
        ("Va7.2", "TCR", "homosapiens", "old (Arden) nomenclature"),
        ("Vb8.1", None, MOUSE, "old (Arden) nomenclature"),
        ("Vβ17", None, "homosapiens", "old (Arden) nomenclature"),
        ("V alpha 24", None, "homosapiens", "old (Arden) nomenclature"),
        ("TCRBV17", None, "homosapiens", "old nomenclature"),
        ("BV17", None, "homosapiens", "old nomenclature"),
        # families
        ("TCRBV06", None, "homosapiens", "a family of 9 genes, TRBV6-1 to TRBV6-9"),
        ("TRBV6", None, "homosapiens", "a family of 9 genes"),
        ("TRAV38", None, "homosapiens", "a family of 2 genes, TRAV38-1 to TRAV38-2/DV8"),
        ("TCRBV20-X", None, "homosapiens", "a family"),
        ("IGHV3", None, "homosapiens", "a family of"),
        # other species, other receptors
        ("TRBV13-2*01", None, "homosapiens", "no human gene but one of mouse"),
        ("TRBV13-1*01", None, "homosapiens", "no human gene but one of mouse"),
        ("TRBV31", None, "homosapiens", "no human gene but one of mouse"),
        ("TRAV6D-6*02", "TCR", "homosapiens", "no human gene but one of mouse"),
        ("TRBV6-1", None, MOUSE, "no mouse gene but one of human"),
        ("TRBV20-1*01", None, MOUSE, "no mouse gene but one of human"),
        ("Musmus TRBV19*01 F", None, "homosapiens", "given as one of mouse, not human"),
        ("Macmul TRBV19*01 F", None, "homosapiens", "given as one of Macmul, not human"),
        ("IGHV1-69", "TCR", "homosapiens", "antibody gene"),
        ("IGHV1-72", "TCR", MOUSE, "antibody gene"),
        ("TRBV19", "antibody", "homosapiens", "TCR gene"),
        # no names of genes, though tidytcells has them as aliases or reads their beginning
        ("V2", None, "homosapiens", "not known"),
        ("J1", "antibody", "homosapiens", "not known"),
        ("TRBV6-2+TRBV6-3", None, "homosapiens", "not known"),
        ("TRAV1-69-2", None, "homosapiens", "not known"),
        ("TRBV19_foo", None, "homosapiens", "not known"),
        ("less than 6 nucleotides are aligned", None, "homosapiens", "not known"),
        # one name of a tie that is not known makes the others uncertain
        ("TRBV6-2,TRBV99", None, "homosapiens", "gene TRBV99 is not known"),
    ],
)
def test_names_that_are_no_gene_say_why(symbol, receptor, species, words):
    call = standardise(symbol, receptor, species)
    assert call.symbol is None
    assert words in call.note and call.why == call.note
    shown = symbol.split("*")[0].split(",")[-1].removeprefix("Musmus ").removeprefix("Macmul ")
    assert call.note.startswith(f"gene {shown}")


@pytest.mark.parametrize(
    "text",
    # the last two have so many numbers that tidytcells, which tries each with and without a "-1", would not end
    ["A" * 3000, "a" + " " * 100_000 + "b", "TRBV12-3/" * 200, "TRBV1" + "A1" * 40, "TRBV1S1" + "A1" * 40],
    ids=["letters", "spaces", "slashes", "numbers", "old"],
)
def test_a_text_of_any_length_is_answered_at_once(text):
    begun = time.process_time()
    call = standardise(text)
    assert call.symbol is None and "not known" in call.note
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("old", "symbol"),
    [("TCRBV17S1A1T", "TRBV19"), ("BV17S1A1T", "TRBV19"), ("TCRBV6S4A1", "TRBV7-9"), ("TCRBV19S1P", "TRBV23-1")],
)
def test_full_old_names_are_found_in_a_table(old, symbol):
    assert standardise(old).symbol == symbol


@pytest.mark.parametrize(
    ("symbol", "species", "kept", "note"),
    [
        ("TRBV1", "homosapiens", "TRBV1", "gene TRBV1 is a pseudogene, not functional"),
        ("TRAJ2", "homosapiens", "TRAJ2", "gene TRAJ2 is an ORF, not functional"),
        ("TRAV19*02", "homosapiens", "TRAV19*02", "gene TRAV19*02 is a pseudogene, not functional"),
        ("TRAV11N*01", MOUSE, "TRAV11N*01", "gene TRAV11N*01 is a pseudogene, not functional"),
        ("TRAV19", "homosapiens", "TRAV19", None),  # another allele is functional
        ("TRBV19*99", "homosapiens", "TRBV19", "allele TRBV19*99 is not known; kept as TRBV19"),
        (
            "IGHV1-2*02_G35A",
            "homosapiens",
            "IGHV1-2",
            "allele IGHV1-2*02_G35A is not known; kept as IGHV1-2",
        ),
        (
            "TRBV20",
            "homosapiens",
            "TRBV20-1",
            "gene TRBV20 taken as TRBV20-1; there is a mouse gene of that name",
        ),
        (
            "TRBV12-3*00(1234.5),TRBV12-4*00(1200)",
            "homosapiens",
            "TRBV12-3",
            "gene TRBV12-3 has the highest score, above TRBV12-4",
        ),
        (
            "IGHV1-72*00(12)",
            MOUSE,
            "IGHV1-72",
            "gene IGHV1-72 was not checked: no antibody genes of mouse are known",
        ),
        ("TRBV9-9*07", "rhesus", "TRBV9-9*07", "gene TRBV9-9 was not checked: no genes of rhesus are known"),
    ],
)
def test_what_is_kept_with_a_note(symbol, species, kept, note):
    call = standardise(symbol, None, species)
    assert (call.symbol, call.note) == (kept, note)


def test_ties_of_a_species_without_known_genes_are_kept():
    call = standardise("Macmul TRBV6-1*01 F, or Macmul TRBV6-2*01 F", "TCR", "macacamulatta")
    assert call.symbol == "TRBV6-1*01,TRBV6-2*01" and "not checked" in call.note


@pytest.mark.parametrize(
    ("symbol", "alleles", "kept"),
    [
        ("TRBV19*02", "keep", "TRBV19*02"),
        ("TRBV19*02", "gene", "TRBV19"),
        ("TRBV19*02", "first", "TRBV19*02"),
        ("TRBV19", "first", "TRBV19*01"),
        ("IGHV2-70D", "first", "IGHV2-70D*04"),  # its list of alleles begins with 04
        ("TRBV6-2*01,TRBV6-3*01", "gene", "TRBV6-2,TRBV6-3"),
        ("TRBV12-3,TRBV12-4*01", "first", "TRBV12-3*01,TRBV12-4*01"),
    ],
)
def test_alleles_are_kept_cut_or_completed(symbol, alleles, kept):
    call = standardise(symbol, None, "homosapiens", alleles)
    assert call.symbol == kept
    assert ("the allele policy" in (call.why or "")) == (kept != symbol)


def test_unknown_allele_policy():
    with pytest.raises(ValueError, match="alleles is keep, gene or first, not 'best'"):
        standardise("TRBV19", alleles="best")


@pytest.mark.parametrize(
    ("symbol", "why"),
    [
        ("TRBV19*01", None),
        ("TRBV1", None),  # its note changes nothing
        ("trbv19", "spelling"),
        ("TCRBV05-04", "spelling"),
        ("TRAV29DV5", "TRAV29DV5 is named TRAV29/DV5 by IMGT"),
        ("TRBV16*01,TRBV16*03", "several alleles of one gene"),
        ("TRBV19*99", "allele TRBV19*99 is not known; kept as TRBV19"),
        ("TRBV6-2/TRBV6-3", "gene TRBV6-2 or TRBV6-3 is a tie"),
    ],
)
def test_any_change_has_its_reason(symbol, why):
    assert standardise(symbol).why == why


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("human", "homosapiens"),
        ("Homo sapiens", "homosapiens"),
        ("Homo sapiens (human)", "homosapiens"),
        ("HomoSapiens", "homosapiens"),
        ("homosapiens", "homosapiens"),
        ("H. sapiens", "homosapiens"),
        ("NCBITAXON:9606", "homosapiens"),
        ("mouse", MOUSE),
        ("MusMusculus", MOUSE),
        ("Mus musculus domesticus", MOUSE),
        ("mouse_C57BL/6", MOUSE),
        ("HIS-Mouse", None),
        ("human/mouse", None),
        ("rhesus", None),
        ("Macaca mulatta", None),
        ("rat", None),
        ("", None),
    ],
)
def test_species_by_any_of_their_names(text, key):
    assert species_name(text) == key


_PIECES = [
    *("TCR", "TR", "IG", "A", "B", "H", "V", "J", "S", "C", "0", "1", "2", "12", "00", "X", "F", "or", "DV", "OR"),
    *("-", "/", "*", ",", ";", "|", ".", "(", ")", ":", "_", " ", "\t", "Homsap", "V1-2*01", "β", "é", "١", "²"),
]


@given(
    st.lists(st.sampled_from(_PIECES), max_size=12).map("".join) | st.text(max_size=30),
    st.sampled_from(["homosapiens", MOUSE]),
)
@example("*01", "homosapiens")
@example(",", "homosapiens")
@example("(1)", "homosapiens")
@example("TRBV19*²", "homosapiens")
def test_any_text_has_an_answer_that_stands(text, species):
    call = standardise(text, None, species)
    assert call.symbol is not None or call.why
    if call.symbol:
        assert standardise(call.symbol, None, species).symbol == call.symbol
