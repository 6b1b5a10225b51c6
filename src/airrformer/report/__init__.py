"""Leaderboard, figures and the one-file page, from result files only."""

from airrformer.report.leaderboard import write_leaderboard
from airrformer.report.page import write_report

__all__ = ["write_leaderboard", "write_report"]
