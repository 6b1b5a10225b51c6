"""Foreign weights for a run: looked for, downloaded once, and what came of it written down in ``status.json``."""

from __future__ import annotations

import logging
from pathlib import Path

from airrformer.config import AntibertyEncoder, Esm2Encoder
from airrformer.core import weights
from airrformer.errors import UserError
from airrformer.paths import write_json

logger = logging.getLogger(__name__)


def model_name(settings: Esm2Encoder | AntibertyEncoder) -> str:
    """The row of ``core.config.FAMILIES`` that an encoder of the config stands for."""
    return getattr(settings, "name", settings.kind)


def fetch(settings: Esm2Encoder | AntibertyEncoder, encoder: str, output: str | Path) -> dict:
    """Find the weights of ``encoder`` on this machine, else try to download them once; write and return its status.

    Where there are none, ``if_unreachable: skip`` makes the status 'skipped' with the reason, ``fail`` raises
    ``UserError`` with that sentence.
    """
    name = model_name(settings)
    path, source, reason = weights.find_local(name, settings.weights), "local", None
    if path is None and settings.weights is None:
        try:
            path, source = str(weights.download(name)), "download"
        except (ConnectionError, OSError) as error:
            reason = f"no download ({error})"
    if path is None:
        hint = weights.how_to_get(name, settings.weights)
        sentence = f"encoder {encoder}: the weights of {name} are not on this machine"
        sentence += f" and {reason}; {hint}" if reason else f"; {hint}"
        if settings.if_unreachable == "fail":
            raise UserError(f"{sentence}; or set `if_unreachable: skip` to go on without this encoder")
        logger.warning("%s; skipped: the next run uses the file once it is there", sentence)
        status = {"status": "skipped", "weights": None, "source": None, "sha256": None, "reason": sentence}
    else:
        logger.info("encoder %s: weights of %s at %s", encoder, name, path)
        digest = weights.sha256(path)
        status = {"status": "ready", "weights": path, "source": source, "sha256": digest, "reason": None}
    status = {"status": status.pop("status"), "kind": settings.kind, "encoder": encoder, "name": name, **status}
    write_json(Path(output) / "status.json", status)
    return status
