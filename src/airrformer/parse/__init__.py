"""parse: sequence files and tables become two tables, chains and receptors, and a list of what is left out."""

from airrformer.parse.dataset import Parsed, parse_dataset, parse_input

__all__ = ["Parsed", "parse_dataset", "parse_input"]
