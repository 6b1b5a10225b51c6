"""From records to chains: residues cleaned or translated, genes made standard, locus and regions found."""

from __future__ import annotations

import math
import re
from collections import Counter

from airrformer.config import Dataset
from airrformer.parse.chain import LOCUS_CONFLICT, Account, Chain
from airrformer.parse.columns import SHORT_CDRS
from airrformer.parse.domains import UNDECIDED, DomainFinder
from airrformer.parse.files import ASN_ALA_ASN
from airrformer.parse.nucleotides import MINIMUM_LETTERS, letters_of, looks_like_nucleotides, translate
from airrformer.parse.records import Record, Rejection
from airrformer.parse.residues import SHORTEST_CDR3, SHORTEST_DOMAIN, Rejected, clean_residues
from airrformer.parse.survey import Facts
from airrformer.receptors.genes import HUMAN, MOUSE, GeneCall, species_name, standardise
from airrformer.receptors.germlines import Bounds, anchor_notes, germline_j, rebuild_chain, rebuild_from_cdrs
from airrformer.receptors.regions import cut, outside
from airrformer.receptors.tables import CHAIN_LOCI, CHAIN_OF_LOCUS

_LOCUS_WORDS = {
    "A": ["TRA"], "ALPHA": ["TRA"], "B": ["TRB"], "BETA": ["TRB"], "G": ["TRG"], "GAMMA": ["TRG"],
    "D": ["TRD"], "DELTA": ["TRD"], "H": ["IGH"], "HEAVY": ["IGH"], "VH": ["IGH"], "K": ["IGK"], "KAPPA": ["IGK"],
    "VK": ["IGK"], "LAMBDA": ["IGL"], "L": ["IGK", "IGL"], "LIGHT": ["IGK", "IGL"], "VL": ["IGK", "IGL"],
    "TCRA": ["TRA"], "TCRB": ["TRB"], "TCRG": ["TRG"], "TCRD": ["TRD"],
}  # fmt: skip
_YES = {"t", "true", "1", "1.0", "yes", "y", "productive", "functional", "in", "in-frame"}
_NO = {"f", "false", "0", "0.0", "no", "n", "unproductive", "non-productive", "nonproductive", "out", "stop"}
# IMGT/HighV-QUEST writes "unproductive (see comment)" and "rearranged sequence (but no junction found)"
_NO_STARTS = ("no ", "not ", "non", "unproductive", "false", "out", "pseudo", "rearranged sequence (but")
_LONGEST_JUNCTION = 80  # residues; the longest antibody junctions have about 45, those of cattle 70
_FEWEST_NUCLEOTIDES = 21  # so many letters A, C, G, T and nothing else are no CDR3
# In the notes of ``genes.standardise``: no human gene but one of mouse; given as one of mouse, not human.
_OF_ANOTHER = re.compile(r"(?:gene but|given as) one of ([\w. ]+)")
TAKEN_FOR_GRANTED = "the dataset's one chain"  # in the note of a chain that says nothing of its locus
UNTOLD = "chain cannot be told: no locus, no gene and no V domain"


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
        self.dataset, self.facts, self.strict, self.told_only = dataset, facts, strict, told_only
        self.changes = account.changes
        self._domains = DomainFinder(dataset, facts, account.changes, workers, most_numbered)
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
        self._domains.find([outcome for outcome in outcomes if isinstance(outcome, Chain)])
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
        if "species" in fields:
            chain.told_species = species_name(fields["species"]) or fields["species"].strip().lower()
        if "productive" in fields or self.dataset.unknown_productive == "reject":
            chain.productive = self._productive(fields.get("productive"))
        if chain.productive is None:
            for flag, words, reason in (("vj_in_frame", _NO, "out of frame"), ("stop_codon", _YES, "a stop codon")):
                if fields.get(flag, "").lower() in words:
                    raise Rejected(f"not productive: {reason}", fields[flag])
        for flag, reason in (("is_cell", "not a cell"), ("high_confidence", "not of high confidence")):
            if flag in fields and fields[flag].lower() in _NO:
                raise Rejected(reason, fields[flag])
        for name in ("v_call", "j_call", "c_call"):
            if name in fields:
                setattr(chain, name, self._gene(name, fields[name], chain))
        if chain.told_species is None and (chain.v_call or chain.j_call or self.dataset.species != "auto"):
            chain.told_species = chain.species
        self._compare_genes(chain)
        self._check_loci(chain)
        if self.dataset.min_umis:
            self._check_umis(fields)
        chain.junction_aa = self._junction(record, chain)
        if "sequence_aa" in fields or "sequence" in fields or "aligned" in fields:
            chain.sequence_aa = self._residues(record, chain)
            junction = chain.junction_aa
            if not junction or len(chain.sequence_aa) >= SHORTEST_DOMAIN or "sequence_aa" in fields:
                return chain
            if junction in chain.sequence_aa:
                return chain
            self.changes["sequence that is no chain (an epitope?), not used"] += 1
        if not chain.junction_aa:
            raise Rejected("no sequence")
        with_cdrs = self.facts.from_cdrs(record)
        mutated = with_cdrs and self.dataset.receptor == "antibody"  # its CDRs are not those of the germline
        if self._rebuild and self.facts.from_genes(record) and not mutated:
            self._put_together(chain)
        elif with_cdrs:
            self._join_cdrs(chain)
        else:
            chain.sequence_aa = chain.junction_aa
        return chain

    def _compare_genes(self, chain: Chain) -> None:
        """Whether the genes are of one locus, the one that is given. J goes before V, which alpha and delta share."""
        correct = self.dataset.locus_conflict == "correct"
        for gene, shared in ((chain.j_call, False), (chain.v_call, True), (chain.c_call, False)):
            locus = gene[:3] if gene and gene[:3] in CHAIN_OF_LOCUS else None
            if chain.compare_locus(locus, "has a gene of", correct, shared):
                self.changes[LOCUS_CONFLICT] += 1

    def _species(self, fields: dict[str, str]) -> str:
        given = fields.get("species")
        if given is None or self.dataset.species != "auto":
            return self._species_of_genes(fields) if self.facts.each else self.facts.species
        return species_name(given) or given

    def _species_of_genes(self, fields: dict[str, str]) -> str:
        """The usual species, unless a gene is one of the other's alone; of antibodies genes tell nothing."""
        usual = self.facts.species
        other = MOUSE if usual == HUMAN else HUMAN
        calls = [fields[name] for name in ("v_call", "j_call") if name in fields]
        foreign = [c for c in calls if c[:2].upper() != "IG" and not standardise(c, "TCR", usual).symbol]
        return other if any(standardise(call, "TCR", other).symbol for call in foreign) else usual

    def _productive(self, value: str | None) -> bool | None:
        word = value.lower() if value else ""
        productive = True if word in _YES else False if word in _NO or word.startswith(_NO_STARTS) else None
        if productive is False:
            raise Rejected("not productive", value or "")
        if productive is None and word:
            self.changes[f"productive is {word[:20]!r}, which is taken as not known"] += 1
        if productive is None and self.dataset.unknown_productive == "reject":
            raise Rejected("not known to be productive", value or "")
        return productive

    def _gene(self, column: str, call: str, chain: Chain) -> str | None:
        found = self._standardised(call, chain)
        if column == "c_call" and found.symbol is None:
            return call  # subclasses are not always told: IGHG
        segment = column[0].upper()
        if found.symbol and column != "c_call" and not all(segment in s[3:] for s in found.symbol.split(",")):
            found = GeneCall(None, *[f"gene {found.symbol} is no {segment} gene"] * 2)
        if found.note:
            chain.notes.append(found.note)
        if chain.told_species is None and found.symbol is None and (other := _OF_ANOTHER.search(found.note or "")):
            chain.told_species = species_name(other[1]) or other[1].lower()
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
        given = fields.get("umi_count") or fields.get("duplicate_count")
        umis = count_of(given)
        if given and umis is None:
            raise Rejected("UMIs are no number", given)
        if umis is not None and umis < self.dataset.min_umis:
            raise Rejected(f"fewer than {self.dataset.min_umis} UMIs: ambient", str(umis))

    def _residues(self, record: Record, chain: Chain) -> str:
        fields = record.fields
        name = "sequence_aa" if "sequence_aa" in fields else "sequence" if "sequence" in fields else "aligned"
        text = fields[name]
        if name == "aligned" or self.facts.molecules[name] == "nucleotide":
            translation = translate(text, fields.get("rev_comp", "").lower() in _YES, chain.junction_aa)
            chain.frame, chain.other_frames, chain.open_part = translation.frame, translation.others, translation.part
            return translation.sequence
        sequence = self._cleaned(text, chain)
        if len(sequence) >= MINIMUM_LETTERS and len(letters_of(text)) >= MINIMUM_LETTERS:
            if looks_like_nucleotides([text])[0]:
                raise Rejected("nucleotides among residues", text)
        elif _are_nucleotides(sequence):
            raise Rejected("nucleotides among residues", text)
        elif len(sequence) < SHORTEST_CDR3:
            raise Rejected(f"fewer than {SHORTEST_CDR3} residues", text)
        return sequence

    def _cleaned(self, text: str, chain: Chain) -> str:
        """Residues by the table of ``residues``; what is changed is counted and noted. Raises ``Rejected``."""
        cleaned = clean_residues(text, self.strict)
        if cleaned.changes:
            for what in cleaned.changes:
                self.changes[what] += 1
            chain.notes += [f"{what}: {n}" for what, n in cleaned.changes.items() if what != "lower-case letters"]
        return cleaned.sequence

    def _join_cdrs(self, chain: Chain) -> None:
        """A chain of which the three CDRs are known and nothing else: one after the other. Raises ``Rejected``.

        With ``rebuild: always`` they are laid into germline frameworks, where some are like them.
        """
        fields = chain.record.fields
        cdrs = {}
        for name in SHORT_CDRS:
            if name not in fields:
                raise Rejected(f"no {name}, and the chain is known by its CDRs only")
            text = fields[name]
            cdrs[name.removesuffix("_aa")] = text if text == ASN_ALA_ASN else self._cleaned(text, chain)
        if self._rebuild:
            try:
                self._lay_into_germline(chain, cdrs)
                return
            except ValueError as reason:  # a framework that is not theirs would tell a model what is not so
                chain.notes.append(f"not laid into germline frameworks: {reason}")
                self.changes["CDRs not laid into germline frameworks, which are unlike them"] += 1
        bounds: Bounds = {}
        for name, residues in cdrs.items():
            bounds[name] = (len(chain.sequence_aa), len(chain.sequence_aa) + len(residues))
            chain.sequence_aa += residues
        start = len(chain.sequence_aa)
        chain.sequence_aa += (chain.junction_aa or "")[1:-1]
        bounds["cdr3"] = (start, len(chain.sequence_aa))
        chain.bounds, chain.regions_by = bounds, "cdrs_only"
        chain.notes.append("known by its CDRs only")
        self.changes["known by its CDRs only"] += 1

    def _lay_into_germline(self, chain: Chain, cdrs: dict[str, str]) -> None:
        """The V domain from the CDRs and the germline residues nearest to them. Raises ``ValueError`` for none."""
        loci = chain.loci or sorted(self._asked)
        rebuilt = rebuild_from_cdrs(
            *(cdrs["cdr1"], cdrs["cdr2"], chain.junction_aa or ""),
            *(loci, chain.species, chain.v_call, chain.j_call),
        )
        self.changes["chain rebuilt from its CDRs and the nearest germline frameworks"] += 1
        if " is taken" in (rebuilt.note or ""):
            self.changes["J gene not given, and not told by the end of the junction: the first is taken"] += 1
        chain.sequence_aa, chain.bounds, chain.regions_by = rebuilt.sequence_aa, rebuilt.bounds, "genes"
        chain.notes.append(rebuilt.note or "")

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
        if self.facts.molecules[column] == "nucleotide":
            text = self._translated_junction(text)
        cleaned = clean_residues(text, self.strict)
        residues = cleaned.sequence
        if _are_nucleotides(residues):
            raise Rejected("nucleotides among residues", text)
        if len(residues) > _LONGEST_JUNCTION:
            raise Rejected(f"junction of more than {_LONGEST_JUNCTION} residues; is it a whole chain?", text)
        for what in cleaned.changes:
            self.changes[what] += 1
        if "final stops taken off" in cleaned.changes and residues[-1] not in "FW":
            raise Rejected("not productive: a stop in the junction", text)
        if self.facts.anchors[column, record.slot].see(record.line, residues):
            if len(residues) < SHORTEST_CDR3:
                raise Rejected(f"junction of fewer than {SHORTEST_CDR3} residues", text)
            if anchor_notes(residues):
                self.changes["junction without C104 or F/W118, kept as it is"] += 1
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
        try:
            residues = translate(letters, frames=(1,)).sequence
        except Rejected as found:
            reason = "not productive: a stop in the junction" if "stop codon" in found.reason else found.reason
            raise Rejected(reason, nucleotides) from None
        self.changes["junction translated"] += 1
        return residues

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
            what = f"taken as {chain.chain}, {TAKEN_FOR_GRANTED}"
            chain.notes.append(what)
            self.changes[what] += 1
        else:
            raise Rejected(UNTOLD, chain.sequence_aa)
        if chain.frame is not None:
            self.changes[f"translated in frame {chain.frame}"] += 1
            if chain.frame != 1:
                chain.notes.append(f"translated in frame {chain.frame}")
        if chain.bounds is None:
            reason = chain.unnumbered or "no V domain found"
            chain.notes.append(reason)
            self.changes[f"regions unknown: {reason}"] += reason != UNDECIDED
        elif chain.regions_by not in ("cdrs_only", "cdr3_only"):
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


def _are_nucleotides(residues: str) -> bool:
    return len(residues) >= _FEWEST_NUCLEOTIDES and set(residues) <= set("ACGTN")


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
    # TCR_Alpha, TCR beta, beta chain, Kappa light
    word = re.sub(r"^(TCR|BCR)[ _-]|[ _-](CHAIN|LIGHT)$", "", word.replace("α", "ALPHA").replace("β", "BETA"))
    if word not in _LOCUS_WORDS:
        raise Rejected(f"locus {value[:40]} is not known", value)
    return list(_LOCUS_WORDS[word])
