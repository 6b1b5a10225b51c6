"""Foreign weights for a run: looked for, downloaded once, and what came of it written down in ``status.json``."""

from __future__ import annotations

import logging
from pathlib import Path

from airrformer.config import PublishedEncoder
from airrformer.core import weights
from airrformer.errors import UserError
from airrformer.paths import write_json

logger = logging.getLogger(__name__)


def fetch(settings: PublishedEncoder, encoder: str, output: str | Path) -> dict:
    """Find the weights of ``encoder`` on this machine, else try to download them once; write and return its status.

    Where there are none, ``if_unreachable: skip`` makes the status 'skipped' with the reason, ``fail`` raises
    ``UserError`` with that sentence.
    """
    name = settings.published_name
    try:
        path, source = _obtain(name, settings.weights)
    except _Nowhere as nowhere:
        sentence = f"encoder {encoder}: {nowhere}"
        if settings.if_unreachable == "fail":
            raise UserError(f"{sentence}; or set `if_unreachable: skip` to go on without this encoder") from None
        logger.warning("%s; skipped: the next run uses the file once it is there", sentence)
        return _write_status(output, "skipped", encoder, name, reason=sentence)
    logger.info("encoder %s: weights of %s at %s", encoder, name, path)
    return _write_status(output, "ready", encoder, name, path, source)


def fetch_by_name(name: str, output: str | Path | None = None) -> str:
    """The file with the weights of the published model ``name``, from this machine or one download.

    With ``output``, a ``status.json`` in that folder makes it one that ``airrformer.load`` takes. Raises ``UserError``
    that says what to do where the weights can be had nowhere.
    """
    try:
        path, source = _obtain(name, None)
    except _Nowhere as nowhere:
        raise UserError(str(nowhere)) from None
    if output is not None:
        _write_status(output, "ready", Path(output).name, name, path, source)
    return path


class _Nowhere(Exception):
    """The weights can be had nowhere; says why and what to do."""


def _obtain(name: str, file: str | None) -> tuple[str, str]:
    """Path and source ("local", "download") of the weights of ``name``. Raises ``_Nowhere``."""
    path = weights.find_local(name, file)
    if path is not None:
        return path, "local"
    sentence = f"the weights of {name} are not on this machine"
    if file is None:
        try:
            return str(weights.download(name)), "download"
        except OSError as error:  # ConnectionError is one
            sentence += f" and no download ({error})"
    raise _Nowhere(f"{sentence}; {weights.how_to_get(name, file)}")


def _write_status(
    output: str | Path,
    status: str,
    encoder: str,
    name: str,
    path: str | None = None,
    source: str | None = None,
    reason: str | None = None,
) -> dict:
    content = {
        "status": status,
        "kind": weights.CHECKPOINTS[name].kind,
        "encoder": encoder,
        "name": name,
        "weights": path,
        "source": source,
        "sha256": None if path is None else weights.sha256(path),
        "reason": reason,
    }
    write_json(Path(output) / "status.json", content)
    return content
