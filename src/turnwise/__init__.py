"""Multi-agent workflows that survive anything: every turn is a line on one log."""

from turnwise.errors import TurnwiseError

__all__ = ["TurnwiseError", "__version__"]
__version__ = "0.1.0.dev0"
