"""Leaderboard, figures and the one-file page, from result files only."""

from airrformer.report.leaderboard import write_leaderboard
from airrformer.report.page import write_report
from airrformer.report.trainings import write_pretraining

__all__ = ["write_leaderboard", "write_pretraining", "write_report"]
