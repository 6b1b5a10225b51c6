"""How one or two chains become tokens."""

from __future__ import annotations

import pytest

from airrformer.core.alphabet import ID, UNK
from airrformer.core.config import ALPHABET_SIZE, SEPARATOR, TAGS, ModelConfig
from airrformer.core.writing import ids_of, write

PLAIN = ModelConfig()
TAGGED = ModelConfig(tags=True, pairs=True, loops=True, segments=2, alphabet_size=ALPHABET_SIZE + len(TAGS))


def tag(name: str) -> int:
    return ALPHABET_SIZE + TAGS.index(name)


def test_a_chain_stands_between_start_and_end():
    written = write([ids_of("CAX")], PLAIN)
    assert written.tokens.tolist() == [0, ID["C"], ID["A"], ID["X"], 2]
    assert written.residues.tolist() == [1, 2, 3] and written.segments.tolist() == [0] * 5


def test_a_pair_with_tags_and_loops():
    written = write([ids_of("C|A"), ids_of("F")], TAGGED, ["TRA", "TRB"], "human")
    first = [0, tag("human"), tag("TRA"), ID["C"], SEPARATOR, ID["A"], 2]
    assert written.tokens.tolist() == [*first, tag("TRB"), ID["F"], 2]
    assert written.segments.tolist() == [0] * 7 + [1] * 3
    assert written.residues.tolist() == [3, 5, 8]  # no start, tag, separator or end


@pytest.mark.parametrize("loci", [(), (None,), ("TRX",)])
def test_what_is_not_known_is_unknown(loci):
    assert write([ids_of("CA")], TAGGED, loci, "mole rat").tokens.tolist()[:3] == [0, UNK, UNK]


def test_a_letter_that_is_no_residue_is_named():
    with pytest.raises(ValueError, match="'1' at position 2"):
        ids_of("CA1")


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"tags": True}, "tags need an alphabet of 42"), ({"pairs": True}, "pairs need 2 segments")],
)
def test_models_that_could_not_read_them_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields)
