"""datasets: what to read, what to predict, and what counts as a negative."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from airrformer.config.base import ChainName, Name, Once, Strict
from airrformer.errors import UserError

BY_FILE = "{file}"  # labels.column: the class is told by the name of the file
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


class Labels(Strict):
    """The table that says what each receptor binds (or its measured value)."""

    path: str | None = Field(
        None, description="CSV or TSV, plain or compressed; default: the columns are in the sequence table itself"
    )
    id: str = Field("receptor_id", description="its column with the receptor's id")
    column: str = Field(
        "label",
        description="column that holds the class, or the value for regression; `{file}`: the class is the file's name",
    )
    value: str | None = Field(
        None,
        description="column that says whether the row's receptor is of the row's class (1 / 0, 1 / -1, true / false); "
        "a receptor is then unknown for the classes that no row of it names. Default: each row says yes",
    )
    conflicts: Literal["drop", "positive", "negative", "error"] = Field(
        "drop",
        description="a receptor said to be of a class and not of it: make it unknown for that class, take one of the "
        "two, or stop",
    )
    classes: Annotated[list[str], Field(min_length=1), Once] | None = Field(
        None, description="keep these classes only, in this order; default: all"
    )


class Negatives(Strict):
    """Which receptors count as not of a class, and how many. One known to be of a class is never its negative."""

    methods: Annotated[list[Literal["given", "swapped", "background"]], Field(min_length=1), Once] | None = Field(
        None,
        description="given: rows that say no (labels.value, labels 0 or -1); swapped: receptors of the other classes; "
        "background: receptors without any label; default: given where there are any, else swapped",
    )
    ratio: Annotated[float, Field(gt=0)] | None = Field(
        None, description="swapped and background negatives for each positive, each drawn within its fold; null: all"
    )


class Dataset(Strict):
    """One set of receptors: sequence files, and the labels to predict."""

    sequences: str | Annotated[list[str], Field(min_length=1)] = Field(
        description="FASTA, FASTQ, AnnData or tables of any of the field's tools, plain or compressed, told by "
        "content; `$NAME` of the environment and patterns (`train/*.tsv.gz`) are expanded"
    )
    format: str = Field("auto", description="what the tables are, where the header does not tell: a name as parse says")
    id: str | None = Field(None, description="FASTA header template, such as '{receptor_id}|{locus}'")
    repeated_ids: Literal["error", "rename"] = Field(
        "error", description="FASTA ids that repeat: stop, or name the later ones id_2, id_3, ..."
    )
    columns: dict[str, str] | None = Field(
        None,
        description="table input: our column name -> the file's; 'TRA.junction_aa' where a row holds several chains",
    )
    molecule: Literal["auto", "protein", "nucleotide"] = Field(
        "auto", description="what the letters are; auto: all A/C/G/T/N and 60 letters or more in a file is nucleotide"
    )
    receptor: Literal["TCR", "antibody"] = Field(description="decides genes, clusters and which encoders fit")
    species: str = Field(
        "auto", description="whose genes: human, mouse or another; auto: a column species, else human or mouse by genes"
    )
    alleles: Literal["keep", "gene", "first"] = Field(
        "keep", description="gene names: as given, cut to the gene, or with *01 where no allele is given"
    )
    chains: Annotated[list[ChainName], Field(min_length=1), Once] = Field(
        description="chains of one receptor, in the order of their features; light is IGK or IGL"
    )
    missing_chain: Literal["reject", "zero"] = Field(
        "reject", description="a receptor that lacks a chain: reject it, or give it zeros and an indicator column"
    )
    several_chains: Literal["top", "drop"] = Field(
        "top",
        description="several chains of a kind: the productive one with most UMIs, then reads, or drop the receptor",
    )
    min_umis: Annotated[int, Field(ge=0)] = Field(0, description="chains with fewer UMIs are rejected as ambient")
    unknown_productive: Literal["keep", "reject"] = Field(
        "keep", description="chains that nothing says are productive; those said not to be are always rejected"
    )
    locus_conflict: Literal["warn", "correct", "reject"] = Field(
        "warn", description="a chain given as one locus that numbering finds to be another"
    )
    cdr3_anchors: Literal["auto", "with", "without", "each"] = Field(
        "auto", description="whether CDR3s have C104 and F/W118; auto: told by the file; each: told value by value"
    )
    rebuild: Literal["auto", "always", "never"] = Field(
        "auto",
        description="chains known by V, CDR3 and J only, or by their CDRs: put together from germline residues, or "
        "what is given alone (junction, CDRs); auto: only TCRs with genes, because antibodies are mutated",
    )
    leader_and_constant: Literal["keep", "cut"] = Field(
        "keep", description="residues before and after the V domain, where it is found"
    )
    labels: Labels | None = Field(None, description="what to predict; without it the dataset is embedded only")
    groups: dict[Name, str] = Field({}, description="group name -> column of the labels table")
    negatives: Negatives = Field(Negatives(), description="what counts as not of a class; see below")
    duplicates: Literal["keep", "merge"] = Field(
        "keep",
        description="receptors with the same chains and genes: keep each, or make them one with the labels of all",
    )
    parent: dict[ChainName, str] | None = Field(
        None,
        description="chain -> residues of the variant that a mutational scan started from: of the whole chain, or of "
        "its CDR3 (split: parent)",
    )
    task: Literal["classification", "regression"] = Field(
        "classification", description="whether labels are classes, or numbers such as a KD or a melting temperature"
    )

    @property
    def named_species(self) -> str | None:
        """The species that the config names; None where the genes or a column tell it, receptor by receptor."""
        return None if self.species == "auto" else self.species

    @property
    def files(self) -> list[str]:
        """The sequence files to open. Raises ``UserError`` where a variable is not set or a pattern finds nothing."""
        return [path for key, text in self._written if key == "sequences" for path in expand(text, key)]

    @property
    def label_files(self) -> list[str]:
        """The table of labels, where it is not the sequence table itself. Raises as ``files`` does."""
        found = [path for key, text in self._written if key == "labels.path" for path in expand(text, key)]
        if len(found) > 1:
            raise UserError(f"labels.path: {len(found)} files are like {self.labels.path!r}; labels are one table")
        return found

    @property
    def moving(self) -> list[str]:
        """Of these files those that the config names by a variable of the environment: moved, they are the same."""
        named = [(key, text) for key, text in self._written if _VARIABLE.search(text) and not Path(text).exists()]
        return [path for key, text in named for path in expand(text, key)]

    @property
    def _written(self) -> list[tuple[str, str]]:
        """(key, path as it is written)."""
        sequences = [self.sequences] if isinstance(self.sequences, str) else self.sequences
        labels = [self.labels.path] if self.labels and self.labels.path else []
        return [*(("sequences", text) for text in sequences), *(("labels.path", text) for text in labels)]


def expand(written: str, key: str) -> list[str]:
    """The files that a path of the config stands for: ``$NAME``, ``${NAME}``, ``*``, ``?`` and ``[]`` are expanded.

    What there is a file of is that file, whatever its name. The config itself keeps what is written, so that nothing
    runs again because data have moved. Raises ``UserError`` that begins with ``key``.
    """
    if written == "-" or Path(written).exists():
        return [written]

    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if not os.environ.get(name):
            raise UserError(f"{key}: ${name} is not set; export {name}=FOLDER")
        return os.environ[name]

    path = _VARIABLE.sub(value, written)
    if Path(path).exists() or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise UserError(f"{key}: no file is like {path!r}; mend the folder or the pattern")
    return found
