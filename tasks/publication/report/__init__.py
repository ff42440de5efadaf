"""The release on one page: report.html."""
