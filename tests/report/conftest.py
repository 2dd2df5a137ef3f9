"""Run folders and files of results as fixtures."""

from run_files import make_results, make_run, recipe_dict

__all__ = ["make_results", "make_run", "recipe_dict"]
