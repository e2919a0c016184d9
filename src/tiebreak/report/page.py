"""The report as one HTML file that needs no other."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from tiebreak.report.model import Report
from tiebreak.report.summary import describe_faults, verdict


def encode_page(report: Report) -> bytes:
    """Encode a report as a self-contained HTML page."""
    loader = PackageLoader("tiebreak.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template("report.html.j2")
    text = template.render(report=report, verdict=verdict(report), describe_faults=describe_faults)
    return text.encode() + b"\n"
