"""Notebooks run from the first cell to the last, and the outputs stored in them are those that come out.

From the first cell that trains on, numbers are those of the machine (and of its clock): there the words must agree, and
the pictures nearly. What numbers must hold, the notebooks assert.

Outputs are stored because a reader on a web page sees nothing else. ``python tests/notebooks/test_notebooks.py`` runs
the notebooks and writes them again.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import re
import tempfile
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

from airrformer.config import load_config
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "workflow" / "notebooks").glob("*.ipynb"))
EXAMPLE = ROOT / "config" / "examples" / "reversal.yaml"
# Of 255, on average over a picture. The same version draws the same; another may move letters a little.
SAME_VERSION, OTHER_VERSION = 0.02, 2.0
AFTER_TRAINING = 10.0  # four other seeds differ by 5.1 at most; the two maps of that size, one from the other, by 22


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, run in ``folder``: it may need no file beside it."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", record_timing=False, coalesce_streams=True, resources=resources
    ).execute()
    notebook.metadata["language_info"] = {"name": "python"}  # not which version ran it, and not when
    for cell in notebook.cells:
        cell.metadata = nbformat.NotebookNode()
    return notebook


def printed(cell: nbformat.NotebookNode) -> str:
    """All that a cell prints. An error, or a warning, is no output to store."""
    for output in cell.get("outputs", []):
        assert output.output_type in ("stream", "display_data"), output
        assert output.get("name", "stdout") == "stdout", output
    return "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream")


def words(text: str) -> str:
    """What is printed but for its numbers, and the spaces that line them up."""
    return " ".join(re.sub(r"-?\d[\d,.]*", "#", text).split())


def pictures(cell: nbformat.NotebookNode) -> list[tuple[str, np.ndarray]]:
    """The figures of a cell: the version that drew each, and its pixels (height, width, colours), 0 to 255."""
    outputs = [output for output in cell.get("outputs", []) if output.output_type == "display_data"]
    images = [Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))) for output in outputs]
    return [(image.text["Software"], np.asarray(image, dtype=float)) for image in images]


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def stored_and_run(request, tmp_path_factory) -> tuple[nbformat.NotebookNode, nbformat.NotebookNode]:
    stored = nbformat.read(request.param, as_version=4)
    run = execute(request.param, tmp_path_factory.mktemp("notebook"))
    return stored, run


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["one_receptor", "reversal"]


def test_the_full_model_is_the_one_that_the_example_trains():
    (notebook,) = (path for path in NOTEBOOKS if path.stem == "reversal")
    cells = nbformat.read(notebook, as_version=4).cells
    (source,) = (cell.source for cell in cells if cell.source.startswith("FULL = "))
    shown = {"ModelConfig": ModelConfig, "Transformer": Transformer, "dataclasses": dataclasses}
    exec(source, shown)
    example = load_config(EXAMPLE).encoders["reversal"]
    assert shown["FULL"] == example.model.to_model_config(example.objective)


def test_what_is_stored_is_what_comes_out(stored_and_run):
    stored, run = stored_and_run
    drawn, trained = 0, False
    for number, (before, after) in enumerate(zip(stored.cells, run.cells, strict=True)):
        trained |= before.cell_type == "code" and re.search(r"^train\(", before.source, re.MULTILINE) is not None
        compared = words if trained else str
        assert compared(printed(before)) == compared(printed(after)), f"cell {number} is stale: write the outputs again"
        old, new = pictures(before), pictures(after)
        assert len(old) == len(new), f"cell {number}: its figures are stale, write the outputs again"
        for (one, before_pixels), (other, after_pixels) in zip(old, new):
            assert before_pixels.shape == after_pixels.shape, f"cell {number}: its figure has another size"
            difference = np.abs(before_pixels - after_pixels).mean()
            limit = AFTER_TRAINING if trained else SAME_VERSION if one == other else OTHER_VERSION
            assert difference < limit, f"cell {number}: its figure is stale, write the outputs again"
        drawn += len(new)
    assert drawn >= 4


def test_what_is_stored_came_from_one_run_and_names_no_machine(stored_and_run):
    stored, _ = stored_and_run
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(cell.metadata == {} for cell in stored.cells)  # no times, no settings of an editor
    text = nbformat.writes(stored)
    assert "/home/" not in text and "/tmp" not in text
    assert len(text) < 500_000


if __name__ == "__main__":
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path)
