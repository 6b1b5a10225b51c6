"""``python -m airrformer``: what the workflow's rules call."""

from airrformer.cli import main

main()
