"""The reference backend on torch."""

import os

# Read by torch's OpenMP as it is loaded. A thread that waits for another sleeps at once: by default it spins, and
# where a server's own threads want the same cores, a step then takes several times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
