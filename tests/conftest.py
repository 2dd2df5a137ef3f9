"""One thread in every test: two that share a core with another process wait for each other most of the time."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, also in the processes that tests start
