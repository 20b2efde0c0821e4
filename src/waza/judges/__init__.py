"""How a model gives a verdict."""
