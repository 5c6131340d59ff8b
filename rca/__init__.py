"""Offline trace analysis and root-cause diagnosis for LLM inference incidents."""

from __future__ import annotations

__version__ = "0.1.0"
