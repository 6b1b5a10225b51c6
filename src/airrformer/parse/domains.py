"""Where the regions of chains lie: by their genes, by germline residues or by numbering; or why that is not known."""

from __future__ import annotations

import math
import re
from collections import Counter

from airrformer.config import Dataset
from airrformer.parse.chain import LOCUS_CONFLICT, Chain
from airrformer.parse.residues import SHORTEST_DOMAIN
from airrformer.parse.survey import Facts
from airrformer.receptors.germlines import anchor_notes
from airrformer.receptors.numbering import Numbering
from airrformer.receptors.regions import bare_cdr3, bounds_from_genes, bounds_from_germlines, junction_of, number_chains

# Where FWR4 begins: F/W118 in its motif or at the end of the sequence, C118 of TRAJ35, or, in antibodies that are much
# mutated, any residue before the rest of the motif.
_FWR4 = re.compile(r"[FW]G|[FW][GA].[GN]|[FW].{0,3}$|.G.G|...GT")
UNDECIDED = "would be numbered"
_UNDECIDED = Numbering(None, {}, 0, UNDECIDED)


class DomainFinder:
    """Finds the V domains of the chains of one file, batch by batch.

    Args:
        changes: what is done -> how often.
        workers: threads for the numbering.
        most_numbered: so many chains are numbered; of those after them it is undecided what they are.
    """

    def __init__(
        self, dataset: Dataset, facts: Facts, changes: Counter[str], workers: int, most_numbered: float
    ) -> None:
        self.dataset, self.facts, self.changes = dataset, facts, changes
        self.workers, self.most_numbered = workers, most_numbered

    def find(self, chains: list[Chain]) -> None:
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
                chain.sequence_aa, chain.frame = protein, frame
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
        if chain.compare_locus(numbering.locus, "looks like", self.dataset.locus_conflict == "correct"):
            self.changes[LOCUS_CONFLICT] += 1
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

    def _treat_short(self, chain: Chain) -> None:
        """A short record is a junction, or a CDR3 where most of the file's short records do not run from C to F/W.

        Of a new file of a model each is told by itself.

        Where junctions are given beside the sequences it is a fragment of a chain, which may hold its junction.
        """
        given = chain.junction_aa
        if given == chain.sequence_aa or not self.facts.with_junctions:
            self._treat_bare_cdr3(chain, given is not None or self.facts.is_junction(chain.sequence_aa))
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
