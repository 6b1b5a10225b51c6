"""From records to chains: residues cleaned or translated, genes made standard, locus and regions found."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.nucleotides import MINIMUM_LETTERS, letters_of, looks_like_nucleotides, translate
from airrformer.parse.records import Record, Rejection
from airrformer.parse.residues import Rejected, clean_residues
from airrformer.receptors.genes import Bounds, anchor_notes, germline_j, has_germline_v, rebuild_chain, standardise
from airrformer.receptors.regions import Numbering, bare_cdr3, bounds_from_genes, junction_of, number_chains
from airrformer.receptors.tables import CHAIN_LOCI, CHAIN_OF_LOCUS

log = logging.getLogger(__name__)

# A record of fewer residues is a junction or a CDR3, not a V domain; the longest antibody CDR3s have about 40.
SHORTEST_DOMAIN = 50
SHORTEST_CDR3 = 3
HUMAN, MOUSE = "homosapiens", "musmusculus"

_LOCUS_WORDS = {
    "A": ["TRA"], "ALPHA": ["TRA"], "B": ["TRB"], "BETA": ["TRB"], "G": ["TRG"], "GAMMA": ["TRG"],
    "D": ["TRD"], "DELTA": ["TRD"], "H": ["IGH"], "HEAVY": ["IGH"], "VH": ["IGH"], "K": ["IGK"], "KAPPA": ["IGK"],
    "VK": ["IGK"], "LAMBDA": ["IGL"], "L": ["IGK", "IGL"], "LIGHT": ["IGK", "IGL"], "VL": ["IGK", "IGL"],
}  # fmt: skip
_PRODUCTIVE = {"t": True, "true": True, "1": True, "yes": True, "y": True, "productive": True,
               "f": False, "false": False, "0": False, "no": False, "n": False, "unproductive": False}  # fmt: skip


@dataclass
class Chain:
    """A chain of a receptor, with the record that it came from. Fields as in ``receptors.tables.CHAIN_COLUMNS``."""

    record: Record
    sequence_aa: str
    loci: list[str]  # declared or told by the genes: one, or two for a light chain, or none
    v_call: str | None = None
    j_call: str | None = None
    junction_aa: str | None = None
    productive: bool | None = None
    chain: str | None = None
    bounds: Bounds | None = None
    regions_by: str = "none"  # genes | numbering | cdr3_only | none
    notes: list[str] = field(default_factory=list)
    other_frames: tuple[tuple[int, str], ...] = ()
    species: str = "homosapiens"

    @property
    def locus(self) -> str | None:
        return self.loci[0] if len(self.loci) == 1 else None


def build_chains(
    records: list[Record], dataset: Dataset, workers: int, strict: bool = False
) -> tuple[list[Chain], list[Rejection], list[str]]:
    """Chains of the loci that the dataset asks for, in the order of the records; what is left out; and notes."""
    changes: Counter[str] = Counter()
    outcomes: list[Chain | Rejection] = []
    conventions = {file: _convention([r for r in records if r.file == file]) for file in {r.file for r in records}}
    species = {file: _species([r for r in records if r.file == file], dataset) for file in conventions}
    for record in records:
        try:
            outcomes.append(_draft(record, dataset, conventions[record.file], species[record.file], changes, strict))
        except Rejected as found:
            outcomes.append(_reject(record, found))
    chains = [outcome for outcome in outcomes if isinstance(outcome, Chain)]
    _find_regions(chains, workers)
    _treat_bare_cdr3s(chains, changes)
    for i, outcome in enumerate(outcomes):
        if isinstance(outcome, Chain):
            try:
                _name_chain(outcome, dataset, changes)
            except Rejected as found:
                outcomes[i] = _reject(outcome.record, found)
    chains = [outcome for outcome in outcomes if isinstance(outcome, Chain)]
    rejected = [outcome for outcome in outcomes if isinstance(outcome, Rejection)]
    notes = [f"{what}: {_of(count, 'record')}" for what, count in changes.items()]
    notes += [f"{file}: the genes are read as those of mouse" for file, name in species.items() if name != HUMAN]
    notes += [note for note in conventions.values() if note.startswith("cdr3_aa:") or note.startswith("junction_aa:")]
    return chains, rejected, notes


def _of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _reject(record: Record, found: Rejected) -> Rejection:
    return Rejection(record.file, record.line, record.id, found.reason, found.value)


# -------------------------------------------------------------------------------------------------------- one record


def _draft(
    record: Record, dataset: Dataset, convention: str, species: str, changes: Counter[str], strict: bool
) -> Chain:
    """What the record says by itself, before numbering. Raises ``Rejected``."""
    chain = Chain(record, "", _declared_loci(record.fields.get("locus")), species=species)
    chain.productive = _productive(record.fields.get("productive"))
    for name in ("v_call", "j_call"):
        setattr(chain, name, _gene(record.fields.get(name), dataset, species, chain.notes))
    if not chain.loci and (gene := chain.j_call or chain.v_call):
        # J before V: a delta chain may use a V gene such as TRAV29/DV5
        chain.loci = [gene[:3]]
    _check_loci(chain.loci, dataset)
    chain.junction_aa = _junction(record, chain, convention, strict)
    if record.sequence is not None:
        chain.sequence_aa = _residues(record, chain, changes, strict)
        return chain
    if not chain.junction_aa:
        raise Rejected("no sequence")
    if not record.rebuild:
        chain.sequence_aa = chain.junction_aa
        return chain
    try:
        rebuilt = rebuild_chain(chain.v_call or "", chain.junction_aa, chain.j_call or "", species)
    except ValueError as reason:
        reasons = [note for note in chain.notes if note.startswith("gene ")] or [str(reason)]
        raise Rejected(f"chain cannot be rebuilt: {reasons[0]}", chain.junction_aa) from None
    changes["chain rebuilt from V gene, junction and J gene"] += 1
    if rebuilt.note and "taken as" in rebuilt.note:
        changes["gene without an allele taken as *01"] += 1
    chain.sequence_aa, chain.bounds, chain.regions_by = rebuilt.sequence_aa, rebuilt.bounds, "genes"
    if rebuilt.note:
        chain.notes.append(rebuilt.note)
    return chain


def _declared_loci(value: str | None) -> list[str]:
    if value is None:
        return []
    word = value.strip().upper()
    if word in CHAIN_OF_LOCUS:
        return [word]
    if word not in _LOCUS_WORDS:
        raise Rejected(f"locus {value} is not known", value)
    return list(_LOCUS_WORDS[word])


def _check_loci(loci: list[str], dataset: Dataset) -> None:
    asked = [locus for chain in dataset.chains for locus in CHAIN_LOCI[chain]]
    if loci and not set(loci) & set(asked):
        raise Rejected(f"locus {'/'.join(loci)} is not among the chains asked for ({', '.join(dataset.chains)})")


def _productive(value: str | None) -> bool | None:
    productive = _PRODUCTIVE.get(value.strip().lower()) if value else None
    if productive is False:
        raise Rejected("not productive", value or "")
    return productive


def _species(records: list[Record], dataset: Dataset) -> str:
    """Human, unless clearly more of the V calls have germline residues in mouse: many names (TRBV19) are in both."""
    calls = Counter(record.fields["v_call"] for record in records if "v_call" in record.fields)
    if dataset.receptor == "antibody":
        return HUMAN

    def known(species: str) -> int:
        return sum(count for call, count in calls.items() if has_germline_v(call, species))

    return MOUSE if known(MOUSE) > known(HUMAN) + 0.1 * calls.total() else HUMAN


def _gene(call: str | None, dataset: Dataset, species: str, notes: list[str]) -> str | None:
    if not call:
        return None
    found = standardise(call, None if call.upper().startswith(("IG", "TR", "TC")) else dataset.receptor, species)
    if found.note:
        notes.append(found.note)
    return found.symbol


def _residues(record: Record, chain: Chain, changes: Counter[str], strict: bool) -> str:
    text = record.sequence or ""
    if record.molecule == "nucleotide":
        translation = translate(text)
        changes[f"translated in frame {translation.frame}"] += 1
        if translation.frame != 1:
            chain.notes.append(f"translated in frame {translation.frame}")
        chain.other_frames = translation.others
        return translation.sequence
    if len(letters_of(text)) >= MINIMUM_LETTERS and looks_like_nucleotides([text])[0]:
        raise Rejected("nucleotides among residues", text)
    cleaned = clean_residues(text, strict)
    for what in cleaned.changes:
        changes[what] += 1
    chain.notes += [f"{what}: {n}" for what, n in cleaned.changes.items() if what != "lower-case letters"]
    if len(cleaned.sequence) < SHORTEST_CDR3:
        raise Rejected(f"fewer than {SHORTEST_CDR3} residues", text)
    return cleaned.sequence


# --------------------------------------------------------------------------------------------------- junction or CDR3


def _convention(records: list[Record]) -> str:
    """Whether the junctions and CDR3s of a file have their anchors; a note that begins with the column's name.

    ``junction_aa`` is taken at its word unless it clearly has none (AIRR: with anchors); ``cdr3_aa`` is without them
    in AIRR, but many programs write junctions there. Raises ``UserError`` where one column mixes the two.
    """
    for column in ("junction_aa", "cdr3_aa"):
        values = [(r, r.fields[column].upper()) for r in records if column in r.fields]
        if not values:
            continue
        with_c = sum(value.startswith("C") for _, value in values) / len(values)
        ends = sum(value.endswith(("F", "W")) for _, value in values) / len(values)
        if len(values) >= 10 and 0.2 < with_c < 0.8:
            a, b = (next((r, v) for r, v in values if v.startswith("C") == which) for which in (True, False))
            raise UserError(
                f"{a[0].file}: column {column} mixes junctions with C104 ({a[1]}, line {a[0].line}) and CDR3s without "
                f"({b[1]}, line {b[0].line}); write all in one way"
            )
        if column == "junction_aa":
            if len(values) >= 10 and with_c <= 0.2:
                return "junction_aa: the values have no anchors; taken as CDR3s"
            return "junction"
        if with_c >= 0.8 and ends >= 0.8:
            return "cdr3_aa: the values have their anchors; taken as junctions"
    return "cdr3"


def _junction(record: Record, chain: Chain, convention: str, strict: bool) -> str | None:
    """The junction with anchors, as given or completed from a CDR3; C104 and the J gene's F/W118 are added."""
    column = "junction_aa" if "junction_aa" in record.fields else "cdr3_aa"
    text = record.fields.get(column)
    if text is None:
        return None
    residues = clean_residues(text, strict).sequence
    anchored = (column == "junction_aa") != convention.startswith(column)
    if anchored:
        if len(residues) < SHORTEST_CDR3:
            raise Rejected(f"junction of fewer than {SHORTEST_CDR3} residues", text)
        return residues
    try:
        anchor = germline_j(chain.j_call or "", chain.species).anchor
    except ValueError:
        anchor = "W" if chain.locus == "IGH" else "F"
    return f"C{residues}{anchor}"


# ------------------------------------------------------------------------------------------------------------ regions


def _find_regions(chains: list[Chain], workers: int) -> None:
    """Bounds from the genes where they fit exactly; the rest is numbered, all at once."""
    for chain in chains:
        if chain.bounds is None and chain.v_call and chain.j_call and chain.junction_aa:
            chain.bounds = bounds_from_genes(
                chain.sequence_aa, chain.v_call, chain.junction_aa, chain.j_call, chain.species
            )
            if chain.bounds:
                chain.regions_by = "genes"
    rest = [c for c in chains if c.bounds is None and len(c.sequence_aa) >= SHORTEST_DOMAIN]
    if not rest:
        return
    log.info("numbering %s", _of(len({c.sequence_aa for c in rest}), "chain"))
    for chain, numbering in zip(rest, number_chains([c.sequence_aa for c in rest], workers)):
        if numbering:
            _take(chain, numbering)
    # The open frame was not the right one where another open frame has a V domain.
    again = [(c, frame, protein) for c in rest if c.bounds is None for frame, protein in c.other_frames]
    for (chain, frame, protein), numbering in zip(again, number_chains([p for _, _, p in again], workers)):
        if numbering and chain.bounds is None:
            chain.sequence_aa = protein
            chain.notes.append(f"translated in frame {frame}, which holds the V domain")
            _take(chain, numbering)


def _take(chain: Chain, numbering: Numbering) -> None:
    chain.bounds, chain.regions_by = numbering.bounds, "numbering"
    if numbering.domains > 1:
        chain.notes.append(f"{numbering.domains} V domains, the first is numbered")
    if not chain.loci or (len(chain.loci) > 1 and numbering.locus in chain.loci):
        chain.loci = [numbering.locus]
    elif numbering.locus not in chain.loci:
        if numbering.locus in ("IGK", "IGL") and chain.loci[0] in ("IGK", "IGL"):
            chain.loci = [numbering.locus]
        elif {numbering.locus, *chain.loci} != {"TRA", "TRD"}:  # they share V genes
            chain.notes.append(f"given as {chain.locus}, but looks like {numbering.locus}")
    found = junction_of(chain.sequence_aa, numbering.bounds)
    if chain.junction_aa and found and chain.junction_aa != found:
        chain.notes.append(f"junction {chain.junction_aa} given, {found} found")
    chain.junction_aa = found or chain.junction_aa
    if found:
        chain.notes += anchor_notes(found)


def _treat_bare_cdr3s(chains: list[Chain], changes: Counter[str]) -> None:
    """Short records are junctions, or CDR3s where most of the file's short records do not run from C to F/W."""
    for file in {chain.record.file for chain in chains}:
        short = [
            c for c in chains if c.record.file == file and c.bounds is None and len(c.sequence_aa) < SHORTEST_DOMAIN
        ]
        anchored = sum(c.sequence_aa[0] == "C" and c.sequence_aa[-1] in "FW" for c in short) * 2 >= len(short)
        for chain in short:
            given = chain.junction_aa == chain.sequence_aa
            chain.bounds, chain.regions_by = bare_cdr3(chain.sequence_aa, anchored or given), "cdr3_only"
            if anchored or given:
                chain.junction_aa = chain.sequence_aa
                chain.notes += anchor_notes(chain.sequence_aa)
            chain.notes.append("junction only" if anchored or given else "CDR3 without anchors only")
            changes["junction or CDR3 only, no whole chain"] += 1


# -------------------------------------------------------------------------------------------------------- chain names


def _name_chain(chain: Chain, dataset: Dataset, changes: Counter[str]) -> None:
    """Which of the dataset's chains it is. Raises ``Rejected`` where it is none of them or cannot be told."""
    _check_loci(chain.loci, dataset)
    if chain.loci:
        chain.chain = CHAIN_OF_LOCUS[chain.loci[0]]
    elif len(dataset.chains) == 1:
        chain.chain = dataset.chains[0]
        chain.loci = list(CHAIN_LOCI[chain.chain])
        what = f"taken as {chain.chain}, the dataset's one chain"
        chain.notes.append(what)
        changes[what] += 1
    else:
        raise Rejected("chain cannot be told: no locus, no gene and no V domain", chain.sequence_aa)
    if any(" but looks like " in note for note in chain.notes):
        changes["locus differs from what numbering finds"] += 1
    if chain.bounds is None:
        chain.notes.append("no V domain found")
        changes["no V domain found, regions unknown"] += 1
