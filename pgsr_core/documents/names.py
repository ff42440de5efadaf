"""Names of the documents in a bundle."""

CHECKS_FILE = "checks.json"
PACKAGE_FILE = "datapackage.json"
PRIVACY_FILE = "privacy.json"
REPORT_FILE = "report.html"
