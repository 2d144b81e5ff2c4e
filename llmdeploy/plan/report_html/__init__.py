"""A plan as one self-contained HTML page: bars, curves, choices, reasons, formulas."""

from llmdeploy.plan.report_html.page import render

__all__ = ["render"]
