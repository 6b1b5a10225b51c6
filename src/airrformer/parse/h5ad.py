"""AnnData files (``.h5ad``, ``.h5mu``) as scirpy writes them: the chains of each cell under AIRR names.

HDF5 is read as it lies on disk, because the anndata package holds pandas below 3. Three layouts are known:

| scirpy | where | how |
| --- | --- | --- |
| 0.13 on | ``obsm["airr"]`` | an awkward array: cells x chains x AIRR fields |
| 0.5 to 0.12 | ``obs`` | ``IR_VJ_1_junction_aa``, ``IR_VDJ_1_v_call``, ...; the rest in ``extra_chains`` |
| before 0.5 | ``obs`` | ``TRA_1_cdr3``, ``TRA_1_v_gene``, ``TRB_1_expr``, ...: CDR3s with their anchors |

Format: https://anndata.readthedocs.io/en/latest/fileformat-prose.html and, for 0.6 and 0.7, files written by those.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airrformer.errors import UserError
from airrformer.parse.files import is_missing

BLOCK = 10_000  # cells that are in memory as text at a time

# (prefix, arm or locus, number, field): prefixes such as TCR_ come from joined tables.
_WIDE = re.compile(r"(?P<prefix>.*?)(?P<arm>(?:IR_)?(?:VJ|VDJ)|TR[ABGD]|IG[HKL])_(?P<number>\d)_(?P<field>\w+)")
# What the fields were called before scirpy took AIRR's names. Its CDR3s had their anchors; AIRR calls that a junction.
_OLD_FIELDS = {
    "cdr3": "junction_aa",
    "cdr3_nt": "junction",
    "v_gene": "v_call",
    "d_gene": "d_call",
    "j_gene": "j_call",
    "c_gene": "c_call",
    "expr": "duplicate_count",
    "expr_raw": "consensus_count",
}
# A slot of the wide layouts is a chain where it has one of these.
_TELLING = {"locus", "v_call", "j_call", "junction", "junction_aa", "cdr3_aa", "sequence", "sequence_aa"}
_CHAIN_FIELDS = _TELLING | {
    "cell_id", "sequence_id", "d_call", "c_call", "cdr3", "productive", "umi_count", "duplicate_count",
    "consensus_count",
}  # fmt: skip
# Alignments are most of a file's bytes, and nothing here reads them, nor lengths that the sequences tell.
_UNREAD = re.compile(r".*(_alignment|_alignment_aa|_cigar|_len|_length|junction_ins)")

Column = Callable[[int, int], "list[str | None]"]  # rows start to stop as text
Chains = Callable[[int, int], "list[list[dict[str, str]]]"]  # chains of the cells start to stop


def read_h5ad(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The chains of an AnnData or MuData file: (row of ``obs`` from 1, AIRR field -> text without missing values).

    ``cell_id`` is the name of the row; a cell without chains gives one dict of nothing else, so that it is counted.
    Further columns of ``obs`` (donor, sample, ...) come with every chain of their cell.

    Raises:
        UserError: h5py or awkward is not installed; the file is missing, damaged, no AnnData or without receptors; two
            cells have the same name.
    """
    with _open(path) as file:
        common = _labels(file["obs"]) if "mod" in file and "obs" in file else {}
        for data in _tables(path, file):
            obs = data["obs"]
            names = _index(obs)
            _check_names(path, names)
            columns = _columns(obs)
            chains, used = _chains(data, columns)
            labels = {name: column for name, column in columns.items() if name not in used | _CHAIN_FIELDS}
            for start in range(0, len(names), BLOCK):
                stop = min(start + BLOCK, len(names))
                blocks = {name: column(start, stop) for name, column in labels.items()}
                for i, found in enumerate(chains(start, stop)):
                    name = names[start + i]
                    cell = {label: text for label, texts in blocks.items() if (text := texts[i]) is not None}
                    for chain in found:
                        yield start + i + 1, {**common.get(name, {}), **cell, **chain, "cell_id": name}
                    if not found:
                        yield start + i + 1, {"cell_id": name}


@contextmanager
def _open(path: str) -> Iterator[Any]:
    try:
        import awkward  # noqa: F401
        import h5py
    except ImportError as error:
        raise UserError(
            f"{path}: AnnData files need the package {error.name}, which is not installed; "
            "install it with pip install 'airrformer[h5ad]'"
        ) from None
    try:
        size = Path(path).stat().st_size
        with h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: cannot read the file: there is none") from None
    except Exception as error:  # a damaged HDF5 file fails anywhere, with any exception of h5py, awkward or NumPy
        if not size:
            raise UserError(f"{path}: the file is empty") from None
        raise UserError(f"{path}: cannot be read as AnnData, it is damaged or another kind of file: {error}") from error


def _tables(path: str, file: Any) -> list[Any]:
    """The AnnData groups that hold receptors: the file itself, or the modalities of a MuData that do."""
    groups = list(file["mod"].values()) if "mod" in file else [file]
    if not all("obs" in group for group in groups):
        raise UserError(f"{path}: no AnnData file: it has no obs; there is {', '.join(file) or 'nothing'}")
    if not all("_index" in group["obs"].attrs for group in groups):
        raise UserError(f"{path}: written by anndata before 0.7; read it and write it again with a later one")
    found = [group for group in groups if _airr_array(group) is not None or _wide_slots(group["obs"])]
    if not found:
        raise UserError(
            f"{path}: no receptors in this AnnData file: neither an AIRR array in obsm (scirpy 0.13 or later) nor "
            "columns such as IR_VJ_1_junction_aa or TRA_1_cdr3 in obs"
        )
    return found


def _labels(obs: Any) -> dict[str, dict[str, str]]:
    """Cell -> what the common ``obs`` of a MuData says of it, without the copies of the modalities' own columns."""
    names = _index(obs)
    columns = {name: column(0, len(names)) for name, column in _columns(obs).items() if ":" not in name}
    columns = {name: texts for name, texts in columns.items() if name not in _CHAIN_FIELDS}
    return {
        cell: {name: text for name, texts in columns.items() if (text := texts[i]) is not None}
        for i, cell in enumerate(names)
    }


def _check_names(path: str, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        rows = [str(row) for row, name in enumerate(names, start=1) if name == repeated[0]]
        raise UserError(
            f"{path}: {len(rows)} cells have the name {repeated[0]!r} (rows {' and '.join(rows[:2])} of obs); make the "
            "names unique with obs_names_make_unique() and write the file again"
        )


# ------------------------------------------------------------------------------------------------------------ chains


def _chains(data: Any, columns: dict[str, Column]) -> tuple[Chains, set[str]]:
    """A reader of the cells' chains, and the columns of ``obs`` that are its own and no labels."""
    slots = _wide_slots(columns)
    used = {name for fields in slots.values() for name in fields.values()}
    used |= {"has_ir", "has_tcr", "multi_chain", "extra_chains"}
    array = _airr_array(data)
    if array is not None:
        return _from_airr_array(array), used
    extra = columns.get("extra_chains")

    def read(start: int, stop: int) -> list[list[dict[str, str]]]:
        cells: list[list[dict[str, str]]] = [[] for _ in range(stop - start)]
        for (_, arm, _), fields in slots.items():
            values = {f: columns[name](start, stop) for f, name in fields.items() if not _UNREAD.fullmatch(f)}
            for i, cell in enumerate(cells):
                chain = {field: text for field, texts in values.items() if (text := texts[i]) is not None}
                if _TELLING & set(chain):
                    locus = {} if arm.endswith(("VJ", "VDJ")) else {"locus": arm}
                    cell.append(locus | chain)
        for i, text in enumerate(extra(start, stop) if extra else []):
            cells[i] += _extra_chains(data.file.filename, start + i + 1, text)
        return cells

    return read, used


def _extra_chains(path: str, row: int, text: str | None) -> list[dict[str, str]]:
    try:
        return [_as_texts(chain) for chain in json.loads(text or "[]")]
    except (ValueError, TypeError, AttributeError):
        raise UserError(f"{path}: row {row} of obs: extra_chains is no JSON list of chains: {text[:40]!r}") from None


def _wide_slots(names: Any) -> dict[tuple[str, str, str], dict[str, str]]:
    """(prefix, arm, number) -> AIRR field -> column, for the columns of both wide layouts that belong to a chain."""
    slots: dict[tuple[str, str, str], dict[str, str]] = {}
    for name in names:
        if found := _WIDE.fullmatch(name):
            field = _OLD_FIELDS.get(found["field"], found["field"])
            slots.setdefault((found["prefix"], found["arm"], found["number"]), {})[field] = name
    return {slot: fields for slot, fields in slots.items() if _TELLING & set(fields)}


def _airr_array(data: Any) -> Any:
    """The awkward array of ``obsm`` that holds rearrangements, by its fields: its name can be chosen in scirpy."""
    for group in data["obsm"].values() if "obsm" in data else ():
        if group.attrs.get("encoding-type") == "awkward-array" and _TELLING & set(_fields_of(group)):
            return group
    return None


def _fields_of(array: Any) -> list[str]:
    import awkward

    return awkward.forms.from_json(array.attrs["form"]).columns()


def _from_airr_array(group: Any) -> Chains:
    import awkward

    form = awkward.forms.from_json(group.attrs["form"])
    form = form.select_columns([name for name in form.columns() if name and not _UNREAD.fullmatch(name)])
    buffers = {key: group[key][()] for key in form.expected_from_buffers()}
    array = awkward.from_buffers(form, int(group.attrs["length"]), buffers)
    return lambda start, stop: [[_as_texts(chain) for chain in cell or []] for cell in array[start:stop].to_list()]


def _as_texts(chain: dict[str, Any]) -> dict[str, str]:
    return {
        field: text
        for field, value in chain.items()
        if (text := _text(value)) is not None and not _UNREAD.fullmatch(field)
    }


# ----------------------------------------------------------------------------------------------------- columns of obs


def _columns(obs: Any) -> dict[str, Column]:
    """The columns of ``obs`` by name, without the index; what is no plain column (two-dimensional, ...) is left out."""
    names = [name for name in obs if name not in ("__categories", obs.attrs["_index"])]
    return {name: column for name in names if (column := _column(obs, obs[name])) is not None}


def _index(obs: Any) -> list[str]:
    element = obs[obs.attrs["_index"]]
    return [name or "" for name in _column(obs, element)(0, _rows(element))]


def _rows(element: Any) -> int:
    return (element if hasattr(element, "shape") else element["values"]).shape[0]


def _column(obs: Any, element: Any) -> Column | None:
    """One column, in any of AnnData's encodings; None where it is no column of single values."""
    encoding = element.attrs.get("encoding-type", "")
    if encoding == "categorical":
        return _categorical(element["codes"], _column(obs, element["categories"])(0, _rows(element["categories"])))
    if encoding.startswith("nullable-"):
        values, mask = _column(obs, element["values"]), element["mask"]
        return lambda start, stop: [
            None if missing else text for text, missing in zip(values(start, stop), mask[start:stop])
        ]
    if not hasattr(element, "shape") or len(element.shape) != 1 or element.dtype.names:
        return None
    if "categories" in element.attrs:  # anndata 0.7: a reference to a dataset in __categories
        categories = obs[element.attrs["categories"]]
        return _categorical(element, _column(obs, categories)(0, _rows(categories)))
    return lambda start, stop: [_text(value) for value in element[start:stop].tolist()]


def _categorical(codes: Any, categories: list[str | None]) -> Column:
    return lambda start, stop: [None if code < 0 else categories[code] for code in codes[start:stop]]


def _text(value: Any) -> str | None:
    """One value of a file as text; None where it is missing or no single value."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # whole numbers beside missing ones are stored as floats
    if not isinstance(value, (str, bool, int, float)) or is_missing(str(value)):
        return None
    return str(value).strip()
