"""Imports run one way, and torch is imported only where it is needed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCH_FREE = [
    "airrformer",
    "airrformer.cli",
    "airrformer.config",
    "airrformer.versions",
    "airrformer.core.weights",
    "airrformer.embed.checkpoints",
    "airrformer.embed.store",
    "airrformer.receptors.clusters",
    "airrformer.receptors.genes",
    "airrformer.receptors.regions",
    "airrformer.receptors.splits",
    "airrformer.parse",
    "airrformer.classify",
    "airrformer.report",
]


def test_import_contracts_hold():
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_what_reads_checks_and_plans_needs_no_torch():
    code = f"""
import importlib, sys
for name in {TORCH_FREE!r}:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{{name}} imports torch")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
