"""From records to chains: residues cleaned or translated, genes made standard, locus and regions found."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field

from airrformer.config import Dataset
from airrformer.parse.nucleotides import MINIMUM_LETTERS, letters_of, looks_like_nucleotides, translate
from airrformer.parse.records import Record, Rejection
from airrformer.parse.residues import SHORTEST_CDR3, SHORTEST_DOMAIN, Rejected, clean_residues
from airrformer.parse.survey import Facts
from airrformer.receptors.genes import GeneCall, species_name, standardise
from airrformer.receptors.germlines import Bounds, anchor_notes, germline_j, rebuild_chain
from airrformer.receptors.numbering import Numbering
from airrformer.receptors.regions import (
    bare_cdr3,
    bounds_from_genes,
    bounds_from_germlines,
    cut,
    junction_of,
    number_chains,
    outside,
)
from airrformer.receptors.tables import CHAIN_LOCI, CHAIN_OF_LOCUS

_LOCUS_WORDS = {
    "A": ["TRA"], "ALPHA": ["TRA"], "B": ["TRB"], "BETA": ["TRB"], "G": ["TRG"], "GAMMA": ["TRG"],
    "D": ["TRD"], "DELTA": ["TRD"], "H": ["IGH"], "HEAVY": ["IGH"], "VH": ["IGH"], "K": ["IGK"], "KAPPA": ["IGK"],
    "VK": ["IGK"], "LAMBDA": ["IGL"], "L": ["IGK", "IGL"], "LIGHT": ["IGK", "IGL"], "VL": ["IGK", "IGL"],
    "TCRA": ["TRA"], "TCRB": ["TRB"], "TCRG": ["TRG"], "TCRD": ["TRD"],
}  # fmt: skip
_YES = {"t", "true", "1", "1.0", "yes", "y", "productive", "functional", "in", "in-frame"}
_NO = {"f", "false", "0", "0.0", "no", "n", "unproductive", "non-productive", "nonproductive", "out", "stop"}
_NO_STARTS = ("no ", "unproductive", "rearranged sequence (but")  # IMGT/HighV-QUEST
# Where FWR4 begins: F/W118 in its motif, C118 of TRAJ35, or F/W118 at the end of the sequence.
_FWR4 = re.compile(r"[FWCL]G.G|[FW][GA].[GN]|[FW].{0,3}$|[FW]G")
UNDECIDED = "would be numbered"
UNTOLD = "chain cannot be told: no locus, no gene and no V domain"
_UNDECIDED = Numbering(None, {}, 0, UNDECIDED)


@dataclass(slots=True)
class Chain:
    """A chain of a receptor, with the record that it came from. Fields as in ``receptors.tables.CHAIN_COLUMNS``."""

    record: Record
    sequence_aa: str
    loci: list[str]  # declared or told by the genes: one, or two for a light chain, or none
    species: str
    v_call: str | None = None
    j_call: str | None = None
    c_call: str | None = None
    junction_aa: str | None = None
    productive: bool | None = None
    chain: str | None = None
    bounds: Bounds | None = None
    unnumbered: str | None = None  # why there are no bounds
    conflict: str | None = None  # what contradicts the locus that is given
    regions_by: str = "none"  # genes | germlines | numbering | cdr3_only | none
    notes: list[str] = field(default_factory=list)
    other_frames: tuple[tuple[int, str], ...] = ()
    open_part: bool = False  # every frame has a stop: it is a chain only if the part without one holds a V domain

    @property
    def locus(self) -> str | None:
        return self.loci[0] if len(self.loci) == 1 else None


@dataclass
class Account:
    """What is counted over all files: changes (what -> records) and gene names.

    ``genes``: file -> (column, given, kept, why) -> records.
    """

    changes: Counter[str] = field(default_factory=Counter)
    genes: dict[str, Counter[tuple[str, str, str, str]]] = field(default_factory=dict)


class ChainBuilder:
    """Builds the chains of one file's records, batch by batch.

    Args:
        workers: threads for the numbering.
        strict: reject what would be mended.
        most_numbered: so many chains are numbered; of those after them it is undecided what they are.
        told_only: a chain must say which one it is; otherwise it is the dataset's one chain.
    """

    def __init__(
        self,
        dataset: Dataset,
        facts: Facts,
        account: Account,
        workers: int = 1,
        strict: bool = False,
        most_numbered: float = math.inf,
        told_only: bool = False,
    ) -> None:
        self.dataset, self.facts, self.workers, self.strict = dataset, facts, workers, strict
        self.most_numbered, self.told_only = most_numbered, told_only
        self.changes = account.changes
        self._genes = account.genes
        self._asked = {locus for chain in dataset.chains for locus in CHAIN_LOCI[chain]}
        self._rebuild = dataset.rebuild == "always" or (dataset.rebuild == "auto" and dataset.receptor == "TCR")

    def build(self, records: list[Record | Rejection]) -> list[Chain | Rejection]:
        """A chain or a rejection for each record, in order."""
        outcomes: list[Chain | Rejection] = []
        for record in records:
            if isinstance(record, Rejection):
                outcomes.append(record)
                continue
            try:
                outcomes.append(self._draft(record))
            except Rejected as found:
                outcomes.append(_reject(record, found))
        self._find_regions([outcome for outcome in outcomes if isinstance(outcome, Chain)])
        for i, outcome in enumerate(outcomes):
            if isinstance(outcome, Chain):
                try:
                    self._finish(outcome)
                except Rejected as found:
                    outcomes[i] = _reject(outcome.record, found)
        return outcomes

    # ---------------------------------------------------------------------------------------------------- one record

    def _draft(self, record: Record) -> Chain:
        """What the record says by itself, before numbering. Raises ``Rejected``."""
        fields = record.fields
        chain = Chain(record, "", _declared_loci(fields.get("locus")), self._species(fields))
        if "productive" in fields or self.dataset.unknown_productive == "reject":
            chain.productive = self._productive(fields.get("productive"))
        for flag, reason in (("is_cell", "not a cell"), ("high_confidence", "not of high confidence")):
            if flag in fields and fields[flag].lower() in _NO:
                raise Rejected(reason, fields[flag])
        for name in ("v_call", "j_call", "c_call"):
            if name in fields:
                setattr(chain, name, self._gene(name, fields[name], chain))
        if gene := chain.j_call or chain.v_call or chain.c_call:
            # J before V: a delta chain may use a V gene such as TRAV29/DV5
            self._compare_loci(chain, gene[:3], "its genes are those of")
        self._check_loci(chain)
        if self.dataset.min_umis:
            self._check_umis(fields)
        chain.junction_aa = self._junction(record, chain)
        if "sequence_aa" in fields or "sequence" in fields or "aligned" in fields:
            chain.sequence_aa = self._residues(record, chain)
            return chain
        if not chain.junction_aa:
            raise Rejected("no sequence")
        if self._rebuild and self.facts.with_genes:
            self._put_together(chain)
        else:
            chain.sequence_aa = chain.junction_aa
        return chain

    def _species(self, fields: dict[str, str]) -> str:
        given = fields.get("species")
        if given is None or self.dataset.species != "auto":
            return self.facts.species
        return species_name(given) or given

    def _productive(self, value: str | None) -> bool | None:
        word = value.lower() if value else ""
        productive = True if word in _YES else False if word in _NO or word.startswith(_NO_STARTS) else None
        if productive is False:
            raise Rejected("not productive", value or "")
        if productive is None and self.dataset.unknown_productive == "reject":
            raise Rejected("not known to be productive", value or "")
        return productive

    def _gene(self, column: str, call: str, chain: Chain) -> str | None:
        found = self._standardised(call, chain)
        if column == "c_call" and found.symbol is None:
            return call  # subclasses are not always told: IGHG
        if found.note:
            chain.notes.append(found.note)
        if found.symbol != call:
            change = (column, call, found.symbol or "", found.why or "")
            self._genes.setdefault(chain.record.file, Counter())[change] += 1
        return found.symbol

    def _standardised(self, call: str, chain: Chain) -> GeneCall:
        receptor = None if call[:2].upper() in ("IG", "TR", "TC") else self.dataset.receptor
        return standardise(call, receptor, chain.species, self.dataset.alleles)

    def _check_loci(self, chain: Chain) -> None:
        if chain.loci and not self._asked.intersection(chain.loci):
            asked = ", ".join(self.dataset.chains)
            raise Rejected(f"locus {'/'.join(chain.loci)} is not among the chains asked for ({asked})")

    def _check_umis(self, fields: dict[str, str]) -> None:
        umis = count_of(fields.get("umi_count") or fields.get("duplicate_count"))
        if umis is not None and umis < self.dataset.min_umis:
            raise Rejected(f"fewer than {self.dataset.min_umis} UMIs: ambient", str(umis))

    def _residues(self, record: Record, chain: Chain) -> str:
        fields = record.fields
        name = "sequence_aa" if "sequence_aa" in fields else "sequence" if "sequence" in fields else "aligned"
        text = fields[name]
        if name == "aligned" or self.facts.molecules[name] == "nucleotide":
            translation = translate(text, fields.get("rev_comp", "").lower() in _YES, chain.junction_aa)
            self.changes[f"translated in frame {translation.frame}"] += 1
            if translation.frame != 1:
                chain.notes.append(f"translated in frame {translation.frame}")
            chain.other_frames, chain.open_part = translation.others, translation.part
            return translation.sequence
        cleaned = clean_residues(text, self.strict)
        if cleaned.changes:
            for what in cleaned.changes:
                self.changes[what] += 1
            chain.notes += [f"{what}: {n}" for what, n in cleaned.changes.items() if what != "lower-case letters"]
        sequence = cleaned.sequence
        if len(sequence) >= MINIMUM_LETTERS and len(letters_of(text)) >= MINIMUM_LETTERS:
            if looks_like_nucleotides([text])[0]:
                raise Rejected("nucleotides among residues", text)
        elif len(sequence) < SHORTEST_CDR3:
            raise Rejected(f"fewer than {SHORTEST_CDR3} residues", text)
        return sequence

    def _put_together(self, chain: Chain) -> None:
        """The V domain from germline residues and the junction. Raises ``Rejected`` where a gene has none."""
        fields = chain.record.fields
        lost = [name for name in ("v_call", "j_call") if name in fields and getattr(chain, name) is None]
        try:
            if lost:
                raise ValueError(self._standardised(fields[lost[0]], chain).why)
            rebuilt = rebuild_chain(chain.v_call or "", chain.junction_aa or "", chain.j_call or "", chain.species)
        except ValueError as reason:
            raise Rejected(f"chain cannot be rebuilt: {reason}", chain.junction_aa or "") from None
        self.changes["chain rebuilt from V gene, junction and J gene"] += 1
        if rebuilt.note and "taken as" in rebuilt.note:
            self.changes["gene completed with an allele that has residues"] += 1
        if not chain.j_call:
            self.changes["J gene not given, told by the end of the junction"] += 1
        chain.sequence_aa, chain.bounds, chain.regions_by = rebuilt.sequence_aa, rebuilt.bounds, "genes"
        if rebuilt.note:
            chain.notes.append(rebuilt.note)

    def _junction(self, record: Record, chain: Chain) -> str | None:
        """The junction with anchors, as given or completed from a CDR3; C104 and the J gene's F/W118 are added."""
        fields = record.fields
        column = "junction_aa" if "junction_aa" in fields else "cdr3_aa"
        text = fields.get(column)
        if text is None:
            if "junction" not in fields:
                return None
            return self._translated_junction(fields["junction"])
        cleaned = clean_residues(text, self.strict)
        residues = cleaned.sequence
        for what in cleaned.changes:
            self.changes[what] += 1
        if "final stops taken off" in cleaned.changes and residues[-1] not in "FW":
            raise Rejected("not productive: a stop in the junction", text)
        if self.facts.anchors[column, record.slot].see(record.line, residues):
            if len(residues) < SHORTEST_CDR3:
                raise Rejected(f"junction of fewer than {SHORTEST_CDR3} residues", text)
            return residues
        try:
            anchor = germline_j(chain.j_call or "", chain.species).anchor
        except ValueError:
            anchor = "W" if chain.locus == "IGH" else "F"
        return f"C{residues}{anchor}"

    def _translated_junction(self, nucleotides: str) -> str:
        letters = letters_of(nucleotides)
        if len(letters) % 3:
            raise Rejected(f"not productive: junction of {len(letters)} nucleotides is out of frame", nucleotides)
        translation = translate(letters, frames=(1,))
        self.changes["junction translated"] += 1
        return translation.sequence

    # ------------------------------------------------------------------------------------------------------- regions

    def _find_regions(self, chains: list[Chain]) -> None:
        """Bounds from the genes where they fit exactly; the rest is numbered, all at once."""
        rest: list[Chain] = []
        for chain in chains:
            if chain.bounds is not None:
                continue
            if len(chain.sequence_aa) < SHORTEST_DOMAIN:
                self._treat_short(chain)
                continue
            if chain.v_call and chain.j_call:
                found = bounds_from_genes(
                    chain.sequence_aa, chain.v_call, chain.junction_aa, chain.j_call, chain.species
                )
                if found:
                    chain.bounds, chain.regions_by = found, "genes"
                    chain.junction_aa = junction_of(chain.sequence_aa, found) or chain.junction_aa
                    continue
            rest.append(chain)
        if not rest:
            return
        for chain, numbering in zip(rest, self._numbered([chain.sequence_aa for chain in rest])):
            self._take(chain, numbering)
        # The open frame was not the right one where another open frame has a V domain.
        again = [(c, frame, protein) for c in rest if c.bounds is None for frame, protein in c.other_frames]
        for (chain, frame, protein), numbering in zip(again, self._numbered([protein for _, _, protein in again])):
            if numbering.bounds and chain.bounds is None:
                chain.sequence_aa = protein
                chain.notes.append(f"translated in frame {frame}, which holds the V domain")
                self._take(chain, numbering)

    def _numbered(self, sequences: list[str]) -> list[Numbering]:
        if self.most_numbered == math.inf:
            return number_chains(sequences, self.workers)
        found = [bounds_from_germlines(sequence) for sequence in sequences]
        left = [sequence for sequence, laid in zip(sequences, found) if laid is None][: int(self.most_numbered)]
        self.most_numbered -= len(left)
        numbered = dict(zip(left, number_chains(left, self.workers)))
        return [laid or numbered.get(sequence, _UNDECIDED) for sequence, laid in zip(sequences, found)]

    def _take(self, chain: Chain, numbering: Numbering) -> None:
        if not numbering.bounds:
            if numbering.locus and not chain.loci:
                chain.loci = [numbering.locus]
            if not self._finds_junction(chain):
                chain.unnumbered = numbering.reason
            return
        chain.bounds, chain.regions_by, chain.unnumbered = dict(numbering.bounds), numbering.by, None
        if numbering.domains > 1:
            chain.notes.append(f"{numbering.domains} V domains, the first is numbered")
        self._compare_loci(chain, numbering.locus, "looks like")
        found = junction_of(chain.sequence_aa, chain.bounds)
        given = chain.junction_aa
        if given and given != found and self._ends_as_given(chain, given):
            return
        start = chain.bounds["cdr3"][1]
        if not _FWR4.match(chain.sequence_aa, start):
            # A chain that stops or shifts its frame within CDR3: numbering ends it somewhere.
            chain.bounds = {region: at for region, at in chain.bounds.items() if region not in ("cdr3", "fwr4")}
            chain.notes.append("no F118 or W118 is found, so where CDR3 ends is not known")
            self.changes["CDR3 without an end, no F118 or W118"] += 1
            return
        if given and found and given != found:
            chain.notes.append(f"junction {given} given, {found} found")
        chain.junction_aa = found or given
        if found:
            chain.notes += anchor_notes(found)

    def _ends_as_given(self, chain: Chain, given: str) -> bool:
        """Whether the given junction begins at the C104 that is found: then it ends where it is given to end."""
        assert chain.bounds is not None
        start = chain.bounds["cdr3"][0]
        after = chain.sequence_aa[start:]
        inner = given[1:-1]
        if chain.sequence_aa[start - 1] != given[0] or not inner or not after.startswith(inner):
            return False
        end = start + len(inner)
        chain.bounds["cdr3"] = (start, end)
        last = max(stop for _, stop in chain.bounds.values())
        if chain.sequence_aa[end : end + 1] == given[-1]:
            chain.bounds["fwr4"] = (end, max(last, end + 1))
            chain.notes += anchor_notes(given)
        else:
            chain.bounds.pop("fwr4", None)
            chain.notes.append("the sequence has no F118 or W118 after the CDR3 that is given")
        return True

    def _compare_loci(self, chain: Chain, locus: str | None, how: str) -> None:
        """What was given against what is found; a TRD chain may use V genes of TRA, and light is either."""
        if locus is None or chain.loci == [locus]:
            return
        if not chain.loci or locus in chain.loci or {locus, *chain.loci} == {"IGK", "IGL"}:
            chain.loci = [locus]
        elif {locus, *chain.loci} != {"TRA", "TRD"} and chain.conflict is None:
            chain.conflict = f"given as {'/'.join(chain.loci)}, but {how} {locus}"
            chain.notes.append(chain.conflict)
            self.changes["locus differs from what the chain or its genes say"] += 1
            if self.dataset.locus_conflict == "correct":
                chain.loci = [locus]

    def _treat_short(self, chain: Chain) -> None:
        """A short record is a junction, or a CDR3 where most of the file's short records do not run from C to F/W.

        Where junctions are given beside the sequences it is a fragment of a chain, which may hold its junction.
        """
        given = chain.junction_aa
        if given == chain.sequence_aa or not self.facts.with_junctions:
            self._treat_bare_cdr3(chain, given is not None or self.facts.bare_anchored)
            return
        if not self._finds_junction(chain):
            chain.unnumbered = "a fragment of a chain without its junction"

    def _finds_junction(self, chain: Chain) -> bool:
        """Whether the given junction is in a fragment of a chain: then its CDR3 is known, if nothing else is."""
        at = chain.sequence_aa.find(chain.junction_aa) if chain.junction_aa else -1
        if at < 0 or chain.other_frames:
            return False
        chain.bounds, chain.regions_by = {"cdr3": (at + 1, at + len(chain.junction_aa or "") - 1)}, "genes"
        chain.notes.append("a fragment with its junction")
        self.changes["fragment of a chain with its junction"] += 1
        return True

    def _treat_bare_cdr3(self, chain: Chain, anchored: bool) -> None:
        chain.bounds, chain.regions_by = bare_cdr3(chain.sequence_aa, anchored), "cdr3_only"
        if anchored:
            chain.junction_aa = chain.sequence_aa
            chain.notes += anchor_notes(chain.sequence_aa)
        chain.notes.append("junction only" if anchored else "CDR3 without anchors only")
        self.changes["junction or CDR3 only, no whole chain"] += 1

    # --------------------------------------------------------------------------------------------------- chain names

    def _finish(self, chain: Chain) -> None:
        """Which of the dataset's chains it is. Raises ``Rejected`` where it is none of them or cannot be told."""
        if chain.conflict and self.dataset.locus_conflict == "reject":
            raise Rejected(f"chain {chain.conflict}", chain.sequence_aa)
        if chain.unnumbered == UNDECIDED and (chain.open_part or not chain.loci):
            raise Rejected(UNDECIDED)
        if chain.open_part and chain.bounds is None:
            raise Rejected("not productive: a stop codon in every reading frame", chain.sequence_aa)
        self._check_loci(chain)
        if chain.loci:
            chain.chain = CHAIN_OF_LOCUS[chain.loci[0]]
        elif len(self.dataset.chains) == 1 and not self.told_only:
            chain.chain = self.dataset.chains[0]
            chain.loci = list(CHAIN_LOCI[chain.chain])
            what = f"taken as {chain.chain}, the dataset's one chain"
            chain.notes.append(what)
            self.changes[what] += 1
        else:
            raise Rejected(UNTOLD, chain.sequence_aa)
        if chain.bounds is None:
            reason = chain.unnumbered or "no V domain found"
            chain.notes.append(reason)
            self.changes[f"regions unknown: {reason}"] += 1
        elif chain.regions_by != "cdr3_only":
            self._leader_and_constant(chain)

    def _leader_and_constant(self, chain: Chain) -> None:
        assert chain.bounds is not None
        around = outside(chain.sequence_aa, chain.bounds, chain.locus)
        if not (around.before or around.after):
            return
        self.changes["leader before the V domain"] += around.leader
        self.changes["constant region after the V domain"] += around.constant is not None and len(around.after) >= 5
        chain.notes += around.notes
        if self.dataset.leader_and_constant == "cut":
            chain.sequence_aa, chain.bounds = cut(chain.sequence_aa, chain.bounds)
            self.changes["residues outside the V domain cut off"] += 1


def count_of(value: str | None) -> int | None:
    """A count as text (``12`` or ``12.0``), or None where it is none."""
    try:
        number = float(value) if value else None
    except ValueError:
        return None
    return int(number) if number is not None and 0 <= number < 2**62 else None


def _reject(record: Record, found: Rejected) -> Rejection:
    return Rejection(record.file, record.line, record.id, found.reason, found.value)


def _declared_loci(value: str | None) -> list[str]:
    if value is None:
        return []
    word = value.strip().upper()
    if word in CHAIN_OF_LOCUS:
        return [word]
    word = word.removeprefix("TCR_").removeprefix("BCR_")
    if word == "LIGHT":
        return ["IGK", "IGL"]
    if word in CHAIN_LOCI or word in ("HEAVY",):
        return list(CHAIN_LOCI.get(word, ("IGH",)))
    if word not in _LOCUS_WORDS:
        raise Rejected(f"locus {value[:40]} is not known", value)
    return list(_LOCUS_WORDS[word])
