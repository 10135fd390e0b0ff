"""Parts of benchmarks.simulation_accuracy."""
