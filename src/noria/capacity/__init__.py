"""The operating point: what a deployment can carry, from a model of its steps and the engine's own scheduler."""
