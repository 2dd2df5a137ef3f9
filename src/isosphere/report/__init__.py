"""Figures, tables and the page, from run folders and files of results; nothing here trains."""

from importlib import import_module
from typing import Any

PLACES = {"FIGURES": "figure", "Figure": "figure", "inspection": "inspect", "write_page": "page"}

__all__ = ["FIGURES", "Figure", "inspection", "tables", "write_page"]


def __getattr__(name: str) -> Any:
    if name in PLACES:
        return getattr(import_module(f"isosphere.report.{PLACES[name]}"), name)
    if name == "tables":
        return import_module("isosphere.report.tables")
    raise AttributeError(f"module 'isosphere.report' has no attribute {name!r}")
