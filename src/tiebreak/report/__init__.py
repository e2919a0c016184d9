"""Reports of a verification run: JSON, HTML, JUnit and the terminal.

Every form is a view of one ``tiebreak.report.model.Report``.
"""
