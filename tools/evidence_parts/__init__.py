"""The parts of docs/evidence that are made from results/; `python tools/evidence.py` puts them into the pages."""
