"""Alphabets: text and ids both ways, learned merges equal the library's, and one core that fits them all."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airrformer.core import alphabet, weights
from airrformer.core.alphabet import Alphabet, learn_merges, load, shipped
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.errors import UserError
from airrformer.parse.sequences import read_sequences

DATA = Path(__file__).parents[2] / "data"
OVERLAPPING = dataclasses.replace(load("nucleotide_3mers"), name="overlapping_3mers", overlapping=True)
ALL = {name: load(name) for name in shipped()} | {"overlapping_3mers": OVERLAPPING}


def smiles(pieces):
    """Any pieces side by side; aromatic atoms of two letters in brackets, as they must be: P and te are no Pt and e."""
    return "".join(f"[{piece}]" if len(piece) == 2 and piece.islower() else piece for piece in pieces)


LETTERS = {  # what a text of each may hold
    "residues": st.text(alphabet.RESIDUES),
    "receptor_merges": st.text(alphabet.RESIDUES),
    "nucleotide_3mers": st.text("ACGTN"),
    "overlapping_3mers": st.text("ACGTN"),
    "smiles": st.lists(st.sampled_from(load("smiles").pieces)).map(smiles),
}
DRUGS = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "chloroquine": "CCN(CC)CCCC(C)Nc1ccnc2cc(Cl)ccc12",
    "bromhexine": "CN(Cc1cc(Br)cc(Br)c1N)C1CCCCC1",
    "salt": "[Na+].[Cl-]",
    "ebselen": "O=c1c2ccccc2[se]n1-c1ccccc1",
    "Ala-Ser": "C[C@H](N)C(=O)N[C@@H](CO)C(=O)O",
    "a glycine ring of twelve": "C%12NC(=O)CNC(=O)C%12",
}


@pytest.fixture(scope="module")
def chains() -> list[str]:
    """The distinct chains of the demo data as residues, the antibodies translated."""
    return sorted({s for file in ("sars2_tcr", "bnab") for s in read_sequences(DATA / f"{file}.fasta.gz").sequences})


# ------------------------------------------------------------------------------------------------- both ways


@pytest.mark.parametrize("name", ALL)
def test_text_comes_back(name):
    ours = ALL[name]

    @settings(deadline=None)
    @given(LETTERS[name])
    def comes_back(text):
        ids = ours.encode(text)
        assert (ids[0], ids[-1]) == (ours.start, ours.end)
        assert not {ours.start, ours.end, ours.pad, ours.unknown, ours.mask} & set(ids[1:-1])
        assert ours.decode(ids) == text == ours.decode([*ids, ours.pad, ours.pad])

    comes_back()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("special", ["<cls>", "<pad>", "<eos>", "<unk>", "<mask>"])
def test_no_special_token_can_be_written_as_text(name, special):
    with pytest.raises(ValueError, match=r"'<' at position 0 is no "):
        ALL[name].encode(special)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("residues", "CAJSS", "'J' at position 2 is no residue (one of ABCDEFGHIKLMNOPQRSTUVWXYZ)"),
        ("residues", "CA-SS", "'-' at position 2 is no residue (one of ABCDEFGHIKLMNOPQRSTUVWXYZ)"),
        ("receptor_merges", "CASSJ", "'J' at position 4 is no residue (one of ABCDEFGHIKLMNOPQRSTUVWXYZ)"),
        ("nucleotide_3mers", "TGTGUC", "'U' at position 4 is no nucleotide (one of ACGNT)"),
        ("overlapping_3mers", "TGTGUC", "'U' at position 4 is no nucleotide (one of ACGNT)"),
        ("smiles", "CClZC", "'Z' at position 3 is no SMILES character (one of"),
        ("smiles", "C C\n", "' ' at position 1 is no SMILES character (one of"),
    ],
)
def test_a_letter_that_is_none_is_named_with_its_place(name, text, message):
    with pytest.raises(ValueError) as error:
        ALL[name].encode(text)
    assert str(error.value).startswith(message)


def test_decode_writes_masks_and_refuses_what_is_no_id():
    residues = load("residues")
    assert residues.decode([0, 23, 32, 8, 2, 1]) == "C<mask>S"
    assert OVERLAPPING.decode([OVERLAPPING.mask, *OVERLAPPING.encode("ACGT")]) == "<mask>GT"
    with pytest.raises(ValueError, match=r"33 at position 1 is no token id of residues \(0 to 32\)"):
        residues.decode([5, 33])
    with pytest.raises(ValueError, match="-1 at position 0"):
        residues.decode([-1])


# ---------------------------------------------------------------------------------------------------- each one


def test_the_residues_keep_their_ids():
    """Ids of saved models: these may never change."""
    assert alphabet.TOKENS[:5] == ("<cls>", "<pad>", "<eos>", "<unk>", "L") and len(alphabet.TOKENS) == 33
    assert alphabet.RESIDUES == "LAGVSERTIDPKQNFYMHWCXBUZO"
    assert (alphabet.CLS, alphabet.PAD, alphabet.EOS, alphabet.UNK, alphabet.MASK) == (0, 1, 2, 3, 32)
    assert alphabet.AMINO_ACID_IDS == (5, 23, 13, 9, 18, 6, 21, 12, 15, 4, 20, 17, 14, 16, 10, 8, 11, 7, 22, 19)
    assert alphabet.encode("CASSIRSSYEQYF") == load("residues").encode("CASSIRSSYEQYF")
    defaults = ModelConfig()
    assert load("residues").config_fields == {
        name: getattr(defaults, name) for name in ("alphabet_size", "pad", "mask", "before", "after")
    }


@settings(deadline=None)
@given(st.text("ACGTN", max_size=40))
def test_kmers_are_as_many_as_the_arithmetic_says(text):
    side_by_side, everywhere = load("nucleotide_3mers"), OVERLAPPING
    pieces = [side_by_side.tokens[i] for i in side_by_side.encode(text)[1:-1]]
    assert pieces == [text[i : i + 3] for i in range(0, len(text), 3)]
    pieces = [everywhere.tokens[i] for i in everywhere.encode(text)[1:-1]]
    if len(text) >= 3:
        assert pieces == [text[i : i + 3] for i in range(len(text) - 2)]
    else:
        assert pieces == [text] * bool(text)


def test_the_kmer_file_holds_every_word_once():
    expected = {"".join(p) for n in (1, 2, 3) for p in itertools.product("ACGTN", repeat=n)}
    pieces = load("nucleotide_3mers").pieces
    assert set(pieces) == expected and len(pieces) == 125 + 25 + 5


@pytest.mark.parametrize("drug", DRUGS)
def test_smiles_come_back_and_keep_two_letter_atoms_whole(drug):
    smiles, text = load("smiles"), DRUGS[drug]
    ids = smiles.encode(text)
    assert smiles.decode(ids) == text
    # By another way: split before every character that does not end a two-letter atom.
    expected, rest = [], text
    while rest:
        size = 2 if rest[:2] in ("Cl", "Br", "Na", "se") else 1
        expected, rest = [*expected, rest[:size]], rest[size:]
    assert [smiles.tokens[i] for i in ids[1:-1]] == expected


def test_no_two_letter_atom_could_also_be_two_atoms():
    """``CSn1cccc1`` is sulphur on an aromatic nitrogen, not tin: such a pair must not be a token."""
    pieces = load("smiles").pieces
    singles = {piece for piece in pieces if len(piece) == 1}
    assert {"Cl", "Br"} <= set(pieces)
    assert not [piece for piece in pieces if len(piece) > 1 and set(piece) <= singles]


# ------------------------------------------------------------------------------------------------ learned merges


def library(ours: Alphabet):
    """The same merges in the tokenizers library itself."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    return Tokenizer(BPE(vocab={t: i for i, t in enumerate(ours.tokens)}, merges=list(ours.merges)))


def test_merges_cut_every_chain_as_the_library_does(chains):
    ours, theirs = load("receptor_merges"), library(load("receptor_merges"))
    for chain in chains:
        assert ours.encode(chain)[1:-1] == theirs.encode(chain).ids


@settings(deadline=None)
@given(st.text("AB", max_size=40), st.lists(st.text("AB", min_size=1, max_size=30), min_size=1, max_size=8))
def test_merges_cut_any_text_as_the_library_does(text, texts):
    """Two letters make long runs, where the order of the joins shows."""
    ours = learn_merges(texts, 20, letters="AB", letter="letter")
    assert ours.encode(text)[1:-1] == library(ours).encode(text).ids
    assert ours.decode(ours.encode(text)) == text


def test_the_shipped_merges_are_learned_again_from_the_demo_data(chains, tmp_path):
    """The call in the docstring of ``learn_merges``. Neither the order of the texts nor the run matters."""
    ours = load("receptor_merges")
    path = Path(alphabet.__file__).with_name("alphabets") / "receptor_merges.json"
    for texts in (chains, chains[::-1]):
        learned = learn_merges(texts, 256, longest=4, name="receptor_merges", about=ours.about)
        learned.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


def test_merges_shorten_receptors_and_stay_within_their_limit(chains):
    ours = load("receptor_merges")
    assert len(ours.tokens) == 256 and max(map(len, ours.pieces)) == 4
    residues, tokens = sum(map(len, chains)), sum(len(ours.encode(chain)) - 2 for chain in chains)
    assert residues / tokens > 1.9


def test_the_commonest_pair_is_joined_first():
    learned = learn_merges(["CASSCASS", "CAF"], 10, letters="ACFS")
    assert learned.merges == (("C", "A"),)  # three times; A S twice
    assert learned.encode("CASS")[1:-1] == [learned.tokens.index(t) for t in ("CA", "S", "S")]


def test_learning_says_what_is_wrong():
    with pytest.raises(ValueError, match="text 1: 'J' at position 2 is no residue"):
        learn_merges(["CASS", "CAJ"], 40)
    with pytest.raises(ValueError, match="no text to learn merges from"):
        learn_merges([], 40)
    with pytest.raises(ValueError, match="size 29 is too small: 5 special tokens and 25 letters come first"):
        learn_merges(["CASS"], 29)


def test_without_the_library_the_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r"pip install 'airrformer\[bpe\]'"):
        learn_merges(["CASS"], 40)
    assert load("receptor_merges").encode("CASS")  # reading and cutting need no library


# --------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ALL)
def test_an_alphabet_written_is_the_same_when_read(name, tmp_path):
    ALL[name].save(tmp_path / "own.json")
    assert load(tmp_path / "own.json") == ALL[name]
    dataclasses.replace(ALL[name], name="renamed").save(tmp_path / "own.json")
    assert load(tmp_path / "own.json").name == "renamed"  # a file is read each time, a shipped one once


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tokens": None}, "not an alphabet"),
        ({"special": {"start": "<cls>"}}, "not an alphabet: 'pad' is missing"),
        ({"merges": ["CA S"]}, "merge CA + S: 'CA' is no token"),
        ({"merges": ["CAS"]}, "not an alphabet"),
        ({"overlapping": True}, "overlapping pieces need more than one letter"),
        ({"tokens": ["<cls>", "<pad>", "<eos>", "<unk>", "<mask>", "C", "C"]}, "token 'C' is there twice"),
        ({"tokens": ["<cls>", "<pad>", "<eos>", "<unk>", "<mask>"]}, "there must be tokens that text can make"),
    ],
)
def test_a_file_that_is_no_alphabet_is_refused_in_one_sentence(change, message, tmp_path):
    path = tmp_path / "own.json"
    load("residues").save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError) as error:
        load(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_a_name_that_is_not_shipped_is_refused_with_those_that_are():
    with pytest.raises(UserError, match=r"no alphabet is called 'smile'; there are nucleotide_3mers, .*smiles"):
        load("smile")
    with pytest.raises(UserError, match=r"nowhere\.json: cannot read the alphabet"):
        load("nowhere.json")


# ------------------------------------------------------------------------------------------- the core fits them all

TEXTS = {
    "residues": ("CASSIRSSYEQYF", "GILGFVFTL"),
    "receptor_merges": ("CASSIRSSYEQYF", "GILGFVFTL"),
    "nucleotide_3mers": ("TGTGCCAGCAG", "TGT"),
    "overlapping_3mers": ("TGTGCCAGCAG", "TGT"),
    "smiles": (DRUGS["chloroquine"], DRUGS["Ala-Ser"]),
}


def batch(ours: Alphabet, texts) -> torch.Tensor:
    rows = [torch.tensor(ours.encode(text)) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ours.pad)


@pytest.mark.parametrize("name", ALL)
def test_a_model_learns_and_is_saved_with_each_alphabet(name, tmp_path):
    ours = ALL[name]
    model = Transformer(ModelConfig(**ours.config_fields, layers=1, width=16, heads=2, feed_forward=32))
    initialise(model, torch.Generator().manual_seed(0))
    tokens = batch(ours, TEXTS[name])
    seen = tokens != ours.pad
    logits = model.logits(model(tokens))
    assert logits.shape == (*tokens.shape, len(ours.tokens))
    torch.nn.functional.cross_entropy(logits[seen], tokens[seen]).backward()
    rows = model.encoder.embedding.tokens.weight.grad.abs().sum(1)
    assert (rows[tokens[seen].unique()] > 0).all()

    weights.save(model, tmp_path)
    again = weights.load_own(tmp_path)
    assert again.config.alphabet_size == len(ours.tokens)
    torch.testing.assert_close(again.logits(again(tokens))[seen], logits.detach()[seen])


def test_all_pad_alike_so_that_a_source_may_have_another_alphabet():
    """A receptor that looks at a drug: ``ModelConfig.pad`` is one id for both sides."""
    assert {ours.pad for ours in ALL.values()} == {alphabet.PAD}
    residues, smiles = load("residues"), load("smiles")
    config = ModelConfig(
        **residues.config_fields, source_alphabet_size=len(smiles.tokens),
        form="encoder-decoder", causal=False, layers=1, width=16, heads=2, feed_forward=32,
    )  # fmt: skip
    model = Transformer(config).eval()
    receptors, drugs = batch(residues, TEXTS["residues"]), batch(smiles, TEXTS["smiles"])
    hidden = model(receptors, source=drugs)
    alone = model(receptors[1:, :11], source=drugs[1:, drugs[1] != smiles.pad])
    torch.testing.assert_close(hidden[1:, :11], alone, atol=1e-5, rtol=0)
