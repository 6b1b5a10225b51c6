"""Names of V, D, J and C genes, made standard: IMGT's, from any of the usual spellings, with ``tidytcells``.

A call is never turned into a gene that it may not mean: what could be two genes is a tie or no gene, with a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise

import tidytcells

HUMAN, MOUSE = "homosapiens", "musmusculus"
_PLAIN = {HUMAN: "human", MOUSE: "mouse"}
_SPECIES = {
    HUMAN: ("human", "homosapiens", "hsapiens", "homsap", "homo", "hsa", "9606", "ncbitaxon9606"),
    MOUSE: ("mouse", "musmusculus", "mmusculus", "musmus", "murine", "mmu", "10090", "ncbitaxon10090"),
}
_KNOWN = {"TR": (HUMAN, MOUSE), "IG": (HUMAN,)}  # whose genes tidytcells lists
_STATUS = {"P": "a pseudogene", "ORF": "an ORF"}

_LONGEST = 2000  # characters of a call; ties of many alleles have some hundreds
_NUMBERS = 6  # in a name, of which tidytcells tries all with and without a "-1"; TCRAV29-01/DV05-01 has four

# What immunoSEQ, 10x and others write where there is no gene.
_NO_GENE = {"", "x", "na", "nan", "none", "null", "no data", "unresolved", "unknown", ".", "-"}

# TRBV6-2*01,TRBV6-3*01; Homsap IGHV3-23*01 F, or Homsap IGHV3-23D*01 F
_SEPARATORS = re.compile(r"\s*(?:,\s*or\s+|[,;|&]|\s+or\s+|/(?=(?:TCR|TR|IG)[A-Z]))\s*", re.IGNORECASE)
# TRBV12-3/12-4, but not the slash of /DV4 or /OR9-2
_SLASH = re.compile(r"/(?!-?(?:DV|OR))", re.IGNORECASE)
_BEFORE = re.compile(r"([A-Za-z][A-Za-z. ]*?)\s+(?=(?:TR|IG)[A-Z])")  # IMGT's "Homsap "
_AFTER = re.compile(r"(?:\s+[(\[]?(?:F|P|ORF)[)\]]?)?(?:\s*\(see comment\))?$")  # and its functionality
_SPECIES_AFTER = re.compile(r"\s*\(([A-Za-z ]+)\)$")  # CoV-AbDab's "IGHV3-30 (Human)"
_SCORE = re.compile(r"\((\d+(?:\.\d+)?)\)$")  # MiXCR's "TRBV12-3*00(1234.5)"
_COLON = re.compile(r":(\d\d)$")  # TRBV19:01
_ALLELE = re.compile(r"\w{1,9}")
_GENE = re.compile(r"(?:(?:TCR|TR|IG)[A-Z]|[ABDGHKL][VDJ])[A-Z0-9()/._ -]{0,30}", re.IGNORECASE)

# Arden's nomenclature (1995), TCRAV7S2, BV17S1A1T, and the serological one, Va7.2, Vb8.1: other numbers than IMGT's.
_ARDEN = re.compile(r"(?:TCR|TR)?([ABGD]V\d+S\d+([APNT]\d*){0,4})", re.IGNORECASE)
_SEROLOGICAL = re.compile(
    r"(?:TCR|[hm])?[\s-]*V[\s-]*(?:alpha|beta|gamma|delta|[abgdαβγδ])[\s-]*\d+(?:\.\d+)?[A-Z]?", re.IGNORECASE
)
# Without "-", a family of immunoSEQ's, or an old name: TCRBV17 is TRBV19 in Arden's. Only immunoSEQ writes TCRBV09.
_FAMILY = re.compile(r"(?:TCR)?[AB]V[1-9]\d*|(?:TCR|TR)?[ABGD]V\d+-X", re.IGNORECASE)
# immunoSEQ numbers every gene: its TCRAV14-01 is TRAV14/DV4, while TRAV14-1 is a pseudogene.
_IMMUNOSEQ_FIRST = re.compile(r"TCR[ABGD]V\d+-0?1", re.IGNORECASE)


@dataclass(frozen=True)
class GeneCall:
    """A gene call as the tables keep it.

    ``symbol`` is as precise as the call is certain: an allele, a gene, several joined by commas where the call was a
    tie, or None where it is no gene of the species. ``note`` is what a reader of that chain should know, or None.
    ``why`` is the reason of any difference from what was given, respelling included; None where there is none.
    """

    symbol: str | None
    note: str | None = None
    why: str | None = None


class _NotAGene(Exception):
    """With the reason."""


@dataclass(frozen=True)
class _Found:
    """One of the names in a call: ``gene`` and ``allele`` (None: not known) and what was done to find it."""

    gene: str
    allele: str | None = None
    score: float | None = None
    notes: tuple[str, ...] = ()
    why: str | None = None

    @property
    def symbol(self) -> str:
        return f"{self.gene}*{self.allele}" if self.allele else self.gene


def species_name(text: str) -> str | None:
    """The key of a species of which genes are known, from its common, Latin or IMGT name; None for any other.

    >>> species_name("Homo sapiens"), species_name("MusMusculus"), species_name("rhesus")
    ('homosapiens', 'musmusculus', None)
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    names = {*words, *map("".join, pairwise(words))}
    found = [key for key, known in _SPECIES.items() if names & set(known)]
    starts = {"".join(words[:n]) for n in (1, 2)}
    # "HIS-mouse", a mouse with human genes, and "human/mouse" are neither.
    return found[0] if len(found) == 1 and starts & set(_SPECIES[found[0]]) else None


@lru_cache(maxsize=100_000)
def standardise(symbol: str, receptor: str | None = None, species: str = HUMAN, alleles: str = "keep") -> GeneCall:
    """The IMGT name of a gene symbol of any of the usual spellings.

    Args:
        symbol: such as ``TRBV19``, ``TCRBV19-01*01``, ``TRAV29DV5`` or a tie such as ``TRBV6-2*01,TRBV6-3*01``.
        receptor: ``TCR``, ``antibody``, or None to go by the symbol.
        species: a key of ``species_name``; symbols of any other species are kept as they are, with a note.
        alleles: ``keep`` what is given, cut to the ``gene``, or complete with the ``first`` (*01). A tie stays one.

    >>> standardise("TCRBV19-01*01").symbol
    'TRBV19*01'
    >>> standardise("TRBV16*01,TRBV16*02").symbol
    'TRBV16'
    >>> standardise("TRBV6-2*01,TRBV6-3*01").symbol
    'TRBV6-2*01,TRBV6-3*01'
    """
    if alleles not in ("keep", "gene", "first"):
        raise ValueError(f"alleles is keep, gene or first, not {alleles!r}")
    text = " ".join(symbol.split())
    if len(text) > _LONGEST:
        return GeneCall(None, *[f"gene call of {len(text):,} characters, {text[:20]}..., is not known"] * 2)
    parts = [part for part in _SEPARATORS.split(text) if part.lower() not in _NO_GENE]
    if not parts or text.lower() in _NO_GENE:
        return GeneCall(None, why="no gene is given")
    try:
        found = [one for part in parts for one in _read(part, receptor, species)]
    except _NotAGene as reason:
        return GeneCall(None, str(reason), str(reason))
    best = _best(found)
    names, left = _able(_one_each(best), species)
    changed = _with_alleles(names, alleles, species)
    notes = [note for one in best for note in one.notes]
    notes += [f"gene {one.symbol} is {status}, not functional" for one in names if (status := _status(one, species))]
    if len(best) < len(found):
        others = dict.fromkeys(one.symbol for one in found if one not in best)
        notes.append(f"gene {' or '.join(n.symbol for n in names)} has the highest score, above {', '.join(others)}")
    notes += [f"{one.symbol}, {_why_unable(one, species)}, is left out of the tie" for one in left]
    whys = [one.why for one in best if one.why]
    whys += ["several alleles of one gene"] * (len({one.symbol for one in best}) > len(names) + len(left))
    whys += ["the allele policy"] * (changed != names)
    genes = dict.fromkeys(one.symbol for one in changed)
    if len(genes) > 1:
        notes.append(f"gene {' or '.join(genes)} is a tie")
    kept = ",".join(genes)
    notes = list(dict.fromkeys(notes))
    why = "; ".join(dict.fromkeys([*notes, *whys])) or "spelling"
    return GeneCall(kept, "; ".join(notes) or None, None if kept == symbol else why)


def _best(found: list[_Found]) -> list[_Found]:
    """Those of the highest score, where all have one."""
    if any(one.score is None for one in found):
        return found
    highest = max(one.score for one in found)
    return [one for one in found if one.score == highest]


def _one_each(found: list[_Found]) -> list[_Found]:
    """One name a gene: its allele, or the gene where several of its alleles are named."""
    alleles: dict[str, set[str | None]] = {}
    for one in found:
        alleles.setdefault(one.gene, set()).add(one.allele)
    return [_Found(gene, named.pop() if len(named) == 1 else None) for gene, named in alleles.items()]


def _able(names: list[_Found], species: str) -> tuple[list[_Found], list[_Found]]:
    """Names of a tie that a receptor may come from, and the others; all of them where there is no such name."""
    able = [one for one in names if not _why_unable(one, species)]
    return (able, [one for one in names if one not in able]) if able else (names, [])


def _why_unable(name: _Found, species: str) -> str | None:
    if "/OR" in name.gene:
        return "an orphon on another chromosome"
    return "a pseudogene" if _status(name, species) == _STATUS["P"] else None


def _with_alleles(names: list[_Found], policy: str, species: str) -> list[_Found]:
    if policy == "gene":
        return [_Found(one.gene) for one in names]
    if policy == "first":
        return [one if one.allele else _Found(one.gene, _first_allele(one.gene, species)) for one in names]
    return names


def _status(name: _Found, species: str) -> str | None:
    """What a gene, or the allele that is named, is if it has no function."""
    known = genes_of(name.gene[:2], species).get(name.gene) if species in _KNOWN.get(name.gene[:2], ()) else None
    states = {known[name.allele]} if known and name.allele else set(known.values()) if known else {"F"}
    return None if "F" in states else " or ".join(_STATUS[state] for state in sorted(states))


# ------------------------------------------------------------------------------------------------ one name of a call


def _read(part: str, receptor: str | None, species: str) -> list[_Found]:
    """The genes that one part of a call names: one, or several joined by slashes. Raises ``_NotAGene``."""
    if before := _BEFORE.match(part):
        given = species_name(before[1])
        if given != species and (given or species in _PLAIN):
            there, here = _PLAIN.get(given, before[1]), _PLAIN.get(species, species)
            raise _NotAGene(f"gene {part[before.end() :]} is given as one of {there}, not {here}")
        part = part[before.end() :]
    after = _SPECIES_AFTER.search(part)
    if after and species_name(after[1]) == species:
        part = part[: after.start()]
    part = _AFTER.sub("", part)
    scored = _SCORE.search(part)
    score = float(scored[1]) if scored else None
    name, _, allele = _COLON.sub(r"*\1", part[: scored.start()] if scored else part).strip().partition("*")
    allele = allele.strip("0") and allele  # 00 is MiXCR's word for an allele that it does not tell
    if allele and not _ALLELE.fullmatch(allele):
        raise _NotAGene(f"gene {part} is not known")
    if species not in _PLAIN:
        return [_Found(name, allele or None, score, (f"gene {name} was not checked: no genes of {species} are known",))]
    try:
        return [replace(_known(name, allele, receptor, species), score=score)]
    except _NotAGene:
        first, *others = _SLASH.split(name)
        start = re.match(r"(?:TCR|TR|IG)?[A-Z][VDJ]", first, re.IGNORECASE)
        if not others or not start:
            raise
    pieces = [first, *(f"{start[0]}{other}" if other[:1].isdigit() else other for other in others)]
    return [replace(_known(piece, allele, receptor, species), score=score) for piece in pieces]


def _known(name: str, allele: str, receptor: str | None, species: str) -> _Found:
    """A gene of the species. Raises ``_NotAGene`` with the reason."""
    if _SEROLOGICAL.fullmatch(name) or (_ARDEN.fullmatch(name) and not _arden(name, species)):
        raise _NotAGene(f"gene {name} is a name of the old (Arden) nomenclature; give the IMGT name")
    if _FAMILY.fullmatch(name):
        raise _NotAGene(f"gene {name} names a family, or is a name of the old nomenclature; give the IMGT name")
    if not _GENE.fullmatch(name) or len(re.findall(r"\d+", name)) > _NUMBERS:
        raise _NotAGene(f"gene {name} is not known")
    kind = _kind(name, receptor)
    checked = species in _KNOWN[kind]
    gene = (_arden(name, species) or _gene(name, kind, species)) if checked else None
    if receptor and (receptor == "antibody") != (kind == "IG") and (gene or not checked):
        what = "an antibody gene, not one of a TCR" if kind == "IG" else "a TCR gene, not one of an antibody"
        raise _NotAGene(f"gene {name} is {what}")
    if not checked:
        note = f"gene {name} was not checked: no antibody genes of {_PLAIN[species]} are known"
        return _Found(name, allele or None, None, (note,))
    spelled = _spelled(name, kind)
    notes, why = [], None
    if gene != spelled:
        family = [known for known in genes_of(kind, species) if known.startswith(f"{spelled}-")]
        if len(family) > 1 and (gene is None or gene in family):
            raise _NotAGene(f"gene {name} names a family of {len(family)} genes, {family[0]} to {family[-1]}")
        other = _other_species(name, gene, kind, species)
        if other and (gene is None or not (gene.startswith(f"{spelled}-") or "/" in gene)):
            raise _NotAGene(f"gene {name} is no {_PLAIN[species]} gene but one of {_PLAIN[other]}")
        if gene is None:
            raise _NotAGene(f"gene {name} is not known")
        why = f"{name} is named {gene} by IMGT"
        if other:
            notes.append(f"gene {name} taken as {gene}; there is a {_PLAIN[other]} gene of that name")
    number = f"{int(allele):02}" if allele.isdecimal() else allele
    if number and number not in genes_of(kind, species)[gene]:
        notes.append(f"allele {gene}*{allele} is not known; kept as {gene}")
        number = None
    return _Found(gene, number or None, None, tuple(notes), why)


def _kind(name: str, receptor: str | None) -> str:
    """``IG`` or ``TR``: by the prefix, else by the receptor, else by the locus."""
    upper = name.upper()
    if upper.startswith(("IG", "TR", "TCR")):
        return "IG" if upper.startswith("IG") else "TR"
    return "IG" if receptor == "antibody" or (receptor is None and upper[0] in "HKL") else "TR"


def _gene(name: str, kind: str, species: str) -> str | None:
    """What ``tidytcells`` makes of a name without its allele."""
    family = tidytcells.ig if kind == "IG" else tidytcells.tr
    name = name.replace("_", "-")  # immunoSEQ's TCRBV20-or09_02
    if _IMMUNOSEQ_FIRST.fullmatch(name):
        name = name.rsplit("-", 1)[0]
    found = family.standardize(symbol=name, species=species, log_failures=False)
    if found is None and kind == "TR":
        # mouse TRDV8, which is TRAV14D-3/DV8
        shared = [gene for gene in genes_of(kind, species) if f"TR{gene.partition('/')[2]}" == _spelled(name, kind)]
        found = shared[0] if len(shared) == 1 else None
    return found


def _arden(name: str, species: str) -> str | None:
    """The gene of a full name of Arden's, such as TCRBV17S1A1T, from the table of ``tidytcells``.

    Short ones (TCRBV7S2) stand there for genes of that number in IMGT's too, so they tell nothing.
    """
    full = _ARDEN.fullmatch(name)
    return _gene(f"TCR{full[1].upper()}", "TR", species) if full and full[2] else None


def _prefixed(name: str, kind: str) -> str:
    return re.sub(r"^(?:TCR|TR|IG)?", kind, "".join(name.upper().replace("_", "-").split()), count=1)


def _spelled(name: str, kind: str) -> str:
    """The name with IMGT's prefix, and without the zeros of immunoSEQ."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", _prefixed(name, kind))


def _other_species(name: str, gene: str | None, kind: str, species: str) -> str | None:
    """Another species that has a gene of this name; of just this one where the name may be a gene of ours."""
    others = [other for other in _KNOWN[kind] if other != species]
    if gene is None:
        return next((other for other in others if _gene(name, kind, other)), None)
    return next((other for other in others if _prefixed(name, kind) in genes_of(kind, other)), None)


@cache
def genes_of(kind: str, species: str) -> dict[str, dict[str, str]]:
    """All genes of a species, ``TR`` or ``IG``, in order: their alleles, each with its functionality F, ORF or P."""
    family = tidytcells.ig if kind == "IG" else tidytcells.tr
    state = {symbol: f for f in ("F", "ORF", "P") for symbol in family.query(species=species, functionality=f)}
    found: dict[str, dict[str, str]] = {}
    for symbol in sorted(state, key=lambda name: [t.zfill(4) for t in re.split(r"(\d+)", name)]):
        gene, allele = symbol.split("*")
        found.setdefault(gene, {})[allele] = state[symbol]
    return found


def _first_allele(gene: str, species: str = HUMAN) -> str:
    """The number of a gene's first allele: 01, but for a few genes that have no such allele."""
    kind = gene[:2]
    return min(genes_of(kind, species)[gene]) if species in _KNOWN.get(kind, ()) else "01"
