"""Repository analysis, a campaign that ships: lines, dependencies, tests and last change of many items."""

from holdfast.analysis.discovery import find_items
from holdfast.analysis.tasks import analyse, analysis_spec, report

__all__ = ["analyse", "analysis_spec", "find_items", "report"]
